"""The ladder of priorities: PriorityClasses, their pods, and reserved ranges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from webhook.kube.objects.pod import Pod
from webhook.page.model import Band, Ladder, Rung
from webhook.preemption.snapshot.columns import Floats, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.eligible import matched_pods, protection_ends, static_pods
from webhook.preemption.victims.rules import SYSTEM_CRITICAL
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

_RUNGS, _BANDS = 60, 20
_OWN = Band("Kubernetes' own classes", 1_000_000_001, 2**31 - 1)
"""Above what users may define (`HighestUserDefinablePriority`)."""
Name = tuple[str, int]
"""A PriorityClass, empty for none, and a priority."""


def ladder(state: State, policy_set: PolicySet, unplaced: Iterable[Pod], now: float) -> Ladder:
    """Every class and every priority in use, the highest first.

    `unplaced` are pods on no node; `now` is seconds since the epoch.
    """
    classes = {(row.metadata.name, row.value): row for row in state.snapshot.classes.values()}
    pending = Counter((pod.spec.priority_class_name, pod.spec.priority or 0) for pod in unplaced)
    pods = state.snapshot.pods
    rows = np.flatnonzero(pods.node[: pods.rows] >= 0)
    may, until = _let_go(state, policy_set, rows, now)
    on_nodes = _by_name(state.snapshot, rows)
    rungs = []
    for name in classes.keys() | on_nodes.keys() | pending.keys():
        known, managed, policy = classes.get(name), policy_set.managed(name[0]), ""
        preempts = known is not None and known.preemption_policy != "Never"
        if managed and managed.twin:
            policy = f"{managed.policy.name}, as {managed.twin}"
        elif managed and known and not preempts:
            policy = managed.policy.name
        here = np.concatenate(on_nodes[name])
        ends = until[here][may[here]]
        windows = ends[(ends > now) & np.isfinite(ends)].tolist()
        rung = Rung(
            name=name[0] or "no class",
            value=name[1],
            running=len(here),
            preemptible=int((ends <= now).sum()),
            protected=int((ends > now).sum()),
            pending=pending[name],
            first_end=min(windows, default=None),
            last_end=max(windows, default=None),
            policy=policy,
            preempts=preempts,
        )
        rungs.append(rung)
    rungs.sort(key=lambda row: (row.running + row.pending == 0, -row.running, -row.value, row.name))
    shown = sorted(rungs[:_RUNGS], key=lambda rung: (-rung.value, rung.name))
    bands = [
        Band(f"{policy.name}/{rule.name}", rule.reserve.from_, rule.reserve.to)
        for policy, rule in policy_set.policies.rules
        if rule.reserve is not None
    ]
    if shown and not any(band.first <= _OWN.first and _OWN.last <= band.last for band in bands):
        bands.insert(0, _OWN)
    return Ladder(tuple(shown), tuple(bands[:_BANDS]), len(rungs) - len(shown))


def _by_name(snapshot: Snapshot, rows: Rows) -> defaultdict[Name, list[Rows]]:
    """By class and priority the places of such pods in `rows`, in parts."""
    pods = snapshot.pods
    class_of = {number: profile.priority_class_name for number, profile in pods.profiles.used()}
    named = defaultdict[Name, list[Rows]](lambda: [np.empty(0, np.intp)])
    alike = pods.profile[rows].astype(np.int64) * 2**33 + pods.priority[rows]
    _, sizes = np.unique(alike, return_counts=True)
    for places in np.split(np.argsort(alike, kind="stable"), np.cumsum(sizes)[:-1]) if rows.size else ():
        row = rows[places[0]]
        named[class_of[int(pods.profile[row])], int(pods.priority[row])].append(places)
    return named


def _let_go(state: State, policy_set: PolicySet, rows: Rows, now: float) -> tuple[Mask, Floats]:
    """Whether some policy may evict these pods (rows), and from when on (seconds)."""
    snapshot, pods = state.snapshot, state.snapshot.pods
    may, until = np.zeros(rows.size, np.bool_), np.full(rows.size, np.inf)
    for policy in policy_set.policies.preemption:
        rules = policy_set.rules[policy.name]
        profiles, classes = pods.profiles.values, snapshot.classes
        may_go = [profile and rules.reason(profile, classes).may_go for profile in profiles]
        mine = np.array(may_go, np.bool_)[pods.profile[rows]]
        if rules.pairs is not None:  # whom no pair names as a victim, nobody may evict
            named = [matched_pods(snapshot, pair.victims)[rows] for pair in rules.pairs]
            mine &= np.logical_or.reduce(named)
        may |= mine
        protected = protection_ends(snapshot, rules, now)
        ends = np.full(rows.size, -np.inf) if protected is None else protected[rows]
        if policy.schedule and not policy.schedule.holds(now):
            ends = np.maximum(ends, policy.schedule.begins(now) or np.inf)
        until = np.where(mine, np.minimum(until, ends), until)
    may &= (pods.priority[rows] < SYSTEM_CRITICAL) & ~static_pods(snapshot)[rows]
    return may, until
