"""Pods that take a part of a candidate's devices before all of them are free (docs/reconciler.md#devices).

A nomination reserves no devices, and they come free claim by claim. The scheduler tries the preemptor first each time.
As long as something is missing the preemptor gets nothing, and a pod that wants less takes what is free. That is a
waiting pod, of whatever priority and scheduler, or the pod that a controller puts in a victim's place at once
(docs/kubernetes-behaviour.md K43).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.devices import DeviceFilter, needs_devices
from webhook.preemption.filters.filtering import prefilter
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.candidates import Candidate
from webhook.reconciler.evaluate.room import add_amounts, free_now, needed_by
from webhook.reconciler.preemptors import unschedulable_since
from webhook.reconciler.state.state import State

_GROUPS = 16
"""Groups of waiting pods that are looked at."""
_CANDIDATES = 16
"""The best candidates, which are looked at one by one."""
_OVERLOOKED = 60.0
"""If no scheduler has said anything of a pod for so many seconds, none is taken to look at it."""
_AT_ONCE = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers that replace a pod as soon as it leaves or is gone. A Job does so after ten seconds."""
ONE_BY_ONE = "wherever devices can be freed they come free one by one, and {} would take a part of them first"
"""Why nobody is evicted for devices: with who takes a part."""


class ChosenCandidate(NamedTuple):
    """The candidate to take, and why not a better one: empty if it is the best."""

    candidate: Candidate
    because: str


def choose(state: State, pod: Pod, decision: Decision, now: float) -> ChosenCandidate | str | None:
    """The best candidate of which nobody takes a part. If there is none, who takes a part; None without candidates.

    `now` is in seconds since the epoch.
    """
    best = decision.selected
    if best is None or not decision.asks_for_devices:
        return ChosenCandidate(best, "") if best is not None else None
    takers, first = EarlyTakers(state, pod, now), ""
    for candidate in decision.shortlist(_CANDIDATES):
        taker = takers.on(candidate.node, [victim.key for victim in candidate.victims])
        if not taker:
            why = f"{first} would take a part of the devices of {best.node} before all are free" if first else ""
            return ChosenCandidate(candidate, why)
        first = first or taker
    return ONE_BY_ONE.format(first)


class EarlyTakers:
    """The waiting pods that ask for devices, each group with what it needs; but for those placed `together`."""

    def __init__(self, state: State, pod: Pod, now: float, together: Collection[Pod] = ()) -> None:
        self._snapshot = state.snapshot
        self._served = {member.metadata.uid for member in (pod, *together)}
        self._own, self._need = _needs(state, pod), needed_by(state.snapshot, compile_pod(pod))
        self._others: list[tuple[Pod, DeviceFilter]] = []
        for group in sorted(state.waiting.groups(), key=lambda group: -group.priority):
            example = next((member for member in group.pods.values() if self._may_take(member, now)), None)
            if example is not None and (needs := _needs(state, example)) is not None:
                self._others.append((example, needs))
            if len(self._others) == _GROUPS:
                break

    def _may_take(self, other: Pod, now: float) -> bool:
        """Whether it is another pod, for which no plan is made or holds devices, and its scheduler looks at it."""
        uid, meta = other.metadata.uid, other.metadata
        if uid in self._served or self._snapshot.device_claims.planned_for(uid):
            return False
        return unschedulable_since(other) is not None or now - epoch_or(meta.creation_timestamp, 0.0) < _OVERLOOKED

    def on(self, host: str, victims: Collection[str]) -> str:
        """Who takes a part on a node before all victims, by `namespace/name`, are gone; empty for nobody.

        A pod that has no room beside the preemptor takes none: the nomination keeps the room.
        """
        pods, claims, own = self._snapshot.pods, self._snapshot.device_claims, self._own
        node = self._snapshot.nodes.find(host)
        if node is None or own is None or self._need is None:
            return ""
        leaving = [row for row in pods.leaving().tolist() if pods.node[row] == node]
        rows = np.union1d(self._snapshot.pod_rows(victims), leaving).astype(np.intp)
        gone = {pods.uids[row]: row for row in rows.tolist()}
        holders = [uid for uid in gone if claims.used_by(uid)]
        parts = [gone.keys() - {last} for last in holders if len(holders) > 1]
        parts = [part for part in parts if own.allocation(node, part) is None]
        if not parts:
            return ""
        free = free_now(self._snapshot, np.array([node]))
        add_amounts(free, pods.amounts, rows, np.zeros(len(rows), np.intp))
        beside = free[:, 0] - self._need
        for example, needs in self._others:
            need = needed_by(self._snapshot, compile_pod(example))
            if need is None or (beside < need).any() or not fits_on(self._snapshot, example, host, without=rows):
                continue
            taken = filter(None, (needs.allocation(node, part) for part in parts))
            if any(own.allocation(node, gone, devices) is None for devices in taken):
                return f"{key_of(example)} of priority {example.spec.priority or 0}, which waits,"
        for uid in holders:
            owner, used = pods.owners.values[pods.owner[gone[uid]]], pods.amounts[:, gone[uid]]
            if owner is None or owner.kind not in _AT_ONCE or (beside[1 : 1 + len(used)] < used).any():
                continue
            held = [device for key in claims.used_by(uid) for device in devices_of(claims.claims[key])]
            if held and own.allocation(node, gone, held) is None:
                return f"the pod that {owner.kind} {owner.name} puts in place of a victim"
        return ""


def _needs(state: State, pod: Pod) -> DeviceFilter | None:
    """What the pod needs of devices; None if it needs none, or it cannot be told."""
    try:
        incoming = compile_pod(pod)
        return prefilter(state.snapshot, incoming).devices if needs_devices(state.snapshot, incoming) else None
    except ClusterError:
        return None
