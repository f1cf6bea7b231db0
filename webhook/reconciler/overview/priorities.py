"""The ladder of priorities: the PriorityClasses, their pods, and the reserved ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod, PriorityClass
from webhook.page.model import Band, Ladder, Rung
from webhook.preemption.victims.rules import SYSTEM_CRITICAL
from webhook.reconciler.evaluate.victim_exclusions import immovable
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

__all__ = ["ladder"]

_RUNGS, _BANDS = 60, 20
_OWN = Band("Kubernetes' own classes", 1_000_000_001, 2**31 - 1)
"""Above what users may define (`HighestUserDefinablePriority`)."""
Name = tuple[str, int]
"""A PriorityClass, empty for none, and a priority."""


def ladder(state: State, policy_set: PolicySet, unplaced: Iterable[Pod], now: float) -> Ladder:
    """Every class and every priority in use, the highest first.

    `unplaced` are the pods on no node; `now` is in seconds since the epoch.
    """
    running = _on_nodes(state, policy_set, now)
    pending = Counter((pod.spec.priority_class_name, pod.spec.priority or 0) for pod in unplaced)
    classes = {(one.metadata.name, one.value): one for one in state.snapshot.classes.values()}
    rungs = [
        _rung(name, policy_set, classes.get(name), running.get(name), pending[name])
        for name in classes.keys() | running.keys() | pending.keys()
    ]
    rungs.sort(key=lambda rung: (rung.running + rung.pending == 0, -rung.running, -rung.value, rung.name))
    shown = sorted(rungs[:_RUNGS], key=lambda rung: (-rung.value, rung.name))
    bands = [_OWN, *_reserved(policy_set)] if shown else list(_reserved(policy_set))
    return Ladder(tuple(shown), tuple(bands[:_BANDS]), len(rungs) - len(shown))


def _reserved(policy_set: PolicySet) -> Iterable[Band]:
    for policy in policy_set.policies.priority:
        for rule in policy.rules:
            if rule.reserve is not None:
                yield Band(f"{policy.name}/{rule.name}", rule.reserve.from_, rule.reserve.to)


def _rung(name: Name, policy_set: PolicySet, known: PriorityClass | None, running: Rung | None, pending: int) -> Rung:
    """What is known of a class: who preempts for it, and its pods."""
    class_name, value = name
    managed = policy_set.managed(class_name)
    policy = ""
    if managed is not None and managed.twin:
        policy = f"{managed.policy.name}, as {managed.twin}"
    elif managed is not None and known is not None and known.preemption_policy == "Never":
        policy = managed.policy.name
    counts = running or Rung(name="", value=0)
    return Rung(
        name=class_name or "no class",
        value=value,
        running=counts.running,
        preemptible=counts.preemptible,
        protected=counts.protected,
        first_end=counts.first_end,
        last_end=counts.last_end,
        pending=pending,
        policy=policy,
        preempts=known is not None and known.preemption_policy != "Never",
    )


def _on_nodes(state: State, policy_set: PolicySet, now: float) -> dict[Name, Rung]:
    """The pods on nodes, counted by class and priority."""
    pods = state.snapshot.pods
    rows = np.flatnonzero(pods.node[: pods.rows] >= 0)
    if not rows.size:
        return {}
    may, until = _let_go(state, policy_set, rows)
    profiles, priorities = pods.profile[rows].astype(np.int64), pods.priority[rows]
    keys, inverse = np.unique((profiles << 33) + (priorities + 2**31), return_inverse=True)
    free = may & (until <= now)
    counted: dict[Name, Rung] = {}
    ends = np.where(may & ~free & np.isfinite(until), until, np.nan)
    first, last = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    finite = ~np.isnan(ends)
    np.minimum.at(first, inverse[finite], ends[finite])
    np.maximum.at(last, inverse[finite], ends[finite])
    size, of_free, of_kept = (np.bincount(inverse[mask], minlength=len(keys)) for mask in (may | True, free, ~may))
    for at, key in enumerate(keys.tolist()):
        profile = pods.profiles.values[key >> 33]
        assert profile is not None
        one = Rung(
            name=profile.priority_class_name,
            value=(key & (2**33 - 1)) - 2**31,
            running=int(size[at]),
            preemptible=int(of_free[at]),
            protected=int(size[at] - of_free[at] - of_kept[at]),
            first_end=float(first[at]) if np.isfinite(first[at]) else None,
            last_end=float(last[at]) if np.isfinite(last[at]) else None,
        )
        name = (one.name, one.value)
        counted[name] = _added(counted[name], one) if name in counted else one
    return counted


def _let_go(
    state: State, policy_set: PolicySet, rows: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """For the pods in these rows: whether some policy may make them victims, and from when on, in seconds."""
    pods = state.snapshot.pods
    may = np.zeros(rows.size, np.bool_)
    until = np.full(rows.size, np.inf)
    for policy in policy_set.policies.preemption:
        rules = policy_set.rules[policy.name]
        of_profile = np.zeros(len(pods.profiles.values), np.bool_)
        seconds = np.zeros(len(pods.profiles.values))
        for number, profile in pods.profiles.used():
            of_profile[number] = rules.reason(profile, state.snapshot.classes).may_go
            seconds[number] = rules.protection(profile)
        mine, window = of_profile[pods.profile[rows]], seconds[pods.profile[rows]]
        may |= mine
        ends = np.where(window > 0, pods.start[rows] + window, -np.inf)
        until = np.where(mine, np.minimum(until, ends), until)
    may &= (pods.priority[rows] < SYSTEM_CRITICAL) & ~immovable(state, ())[rows]
    return may, until


def _added(one: Rung, other: Rung) -> Rung:
    """The pods of two profiles of one class and priority."""
    return Rung(
        name=one.name,
        value=one.value,
        running=one.running + other.running,
        preemptible=one.preemptible + other.preemptible,
        protected=one.protected + other.protected,
        first_end=min((end for end in (one.first_end, other.first_end) if end is not None), default=None),
        last_end=max((end for end in (one.last_end, other.last_end) if end is not None), default=None),
    )
