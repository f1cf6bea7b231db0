"""Pods that take a part of a candidate's devices before all of them are free (docs/reconciler.md#devices).

A nomination reserves no devices, and they come free claim by claim. The scheduler tries the preemptor first each time.
As long as something is missing the preemptor gets nothing, and a pod that wants less takes what is free. That is a
waiting pod, of whatever priority and scheduler, or the pod that a controller puts in a victim's place at once
(docs/kubernetes-behaviour.md K43).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.devices import DeviceFilter, needs_devices
from webhook.preemption.filters.filtering import prefilter, run_filters
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.candidates import Candidate
from webhook.reconciler.preemptors import unschedulable_since
from webhook.reconciler.state.state import State

Rows = NDArray[np.intp]

_GROUPS = 16
"""Groups of waiting pods that are looked at."""
_CANDIDATES = 8
"""The best candidates, which are looked at one by one."""
_MORE_CANDIDATES = 500
"""Further candidates: of these only those are looked at to which no waiting pod comes."""
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
    takers = EarlyTakers(state, pod, now)
    first = takers.of(best)
    if not first:
        return ChosenCandidate(best, "")
    for other in chain(decision.shortlist(_CANDIDATES), takers.missed_by_all(decision)):
        if other.node != best.node and not takers.of(other):
            return ChosenCandidate(
                other, f"{first} would take a part of the devices of {best.node} before all are free"
            )
    return ONE_BY_ONE.format(first)


class EarlyTakers:
    """The waiting pods that ask for devices, each group with what it needs; but for those placed `together`."""

    def __init__(self, state: State, pod: Pod, now: float, together: Collection[Pod] = ()) -> None:
        self._snapshot = state.snapshot
        self._served = {member.metadata.uid for member in (pod, *together)}
        self._own, self._amounts = _needs(state, pod), compile_pod(pod).amounts
        self._others: list[tuple[Pod, DeviceFilter]] = []
        asking = (group for group in state.waiting.groups() if self._asks(group.example))
        for group in heapq.nlargest(_GROUPS, asking, key=lambda group: group.priority):
            example = next((member for member in group.pods.values() if self._may_take(member, now)), None)
            if example is not None and (needs := _needs(state, example)) is not None:
                self._others.append((example, needs))

    def _may_take(self, other: Pod, now: float) -> bool:
        """Whether it is another pod, for which no plan is made or holds devices, and its scheduler looks at it."""
        uid, meta = other.metadata.uid, other.metadata
        if uid in self._served or self._snapshot.device_claims.planned_for(uid):
            return False
        return unschedulable_since(other) is not None or now - epoch_or(meta.creation_timestamp, 0.0) < _OVERLOOKED

    def missed_by_all(self, decision: Decision) -> Iterator[Candidate]:
        """The candidates after the best ones to which no waiting pod comes, in the order of preference."""
        more = decision.shortlist(_CANDIDATES + _MORE_CANDIDATES)[_CANDIDATES:]
        gone = np.union1d(
            self._snapshot.pod_rows([victim.key for other in more for victim in other.victims]),
            self._snapshot.pods.leaving(),
        ).astype(np.intp)
        reached = np.zeros(self._snapshot.nodes.rows, np.bool_)
        for example, _ in self._others if more else ():
            reached |= run_filters(prefilter(self._snapshot, compile_pod(example), gone)).code == 0
        for other in more:
            node = self._snapshot.nodes.find(other.node)
            if node is not None and (not reached[node] or len(other.victims) == 1):
                yield other

    def _asks(self, example: Pod) -> bool:
        """Whether a pod asks for devices, looked at quickly."""
        served = self._snapshot.devices.class_of_resource
        containers = example.spec.containers or ()
        asked = (name for container in containers if container.resources for name in container.resources.requests or ())
        return bool(example.spec.resource_claims) or any(name in served for name in asked)

    def of(self, candidate: Candidate) -> str:
        """Who takes a part on this candidate so that the preemptor does not get its devices; empty for nobody."""
        return self.on(candidate.node, [victim.key for victim in candidate.victims])

    def on(self, host: str, victims: Collection[str]) -> str:
        """The same of a node and its victims, by `namespace/name`."""
        pods, claims = self._snapshot.pods, self._snapshot.device_claims
        node = self._snapshot.nodes.find(host)
        if node is None or self._own is None:
            return ""
        leaving = [row for row in pods.leaving().tolist() if pods.node[row] == node]
        rows = np.union1d(self._snapshot.pod_rows(victims), leaving).astype(np.intp)
        gone = {pods.uids[row]: row for row in rows.tolist()}
        holders = [uid for uid in gone if claims.used_by(uid)]
        early = [gone.keys() - {last} for last in holders if len(holders) > 1]
        early = [some for some in early if self._own.allocation(node, some) is None]
        if not early:
            return ""
        for example, needs in self._others:
            taken = (needs.allocation(node, some) for some in early)
            if (
                any(self._loses(node, gone, some) for some in taken)
                and fits_on(self._snapshot, example, host, without=rows)
                and self._has_room(node, rows, compile_pod(example).amounts)
            ):
                return f"{key_of(example)} of priority {example.spec.priority or 0}, which waits,"
        for uid in holders:
            held = [device for key in claims.used_by(uid) for device in devices_of(claims.claims[key])]
            owner = pods.owners.values[pods.owner[gone[uid]]]
            if owner is not None and owner.kind in _AT_ONCE and self._loses(node, gone, held):
                amounts = dict(
                    zip(self._snapshot.nodes.resources.names, pods.amounts[:, gone[uid]].tolist(), strict=False)
                )
                if self._has_room(node, rows, amounts):
                    return f"the pod that {owner.kind} {owner.name} puts in place of a victim"
        return ""

    def _loses(self, node: int, gone: Collection[str], taken: Collection[DeviceId] | None) -> bool:
        """Whether the preemptor lacks devices once everybody is gone, and these are taken."""
        if not taken or self._own is None:
            return False
        return self._own.allocation(node, gone, taken) is None

    def _has_room(self, node: int, gone: Rows, amounts: Mapping[str, int]) -> bool:
        """Whether such a pod has room once these are gone. The preemptor's nomination keeps room for the preemptor."""
        nodes, served = self._snapshot.nodes, self._snapshot.devices.class_of_resource
        for name, amount in amounts.items():
            row = nodes.resources.index.get(name)
            if row is None or row >= len(nodes.used) or name in served:
                continue
            free = nodes.allocatable[row, node] - nodes.used[row, node] + self._snapshot.pods.amounts[row, gone].sum()
            if free - self._amounts.get(name, 0) < amount:
                return False
        return True


def _needs(state: State, pod: Pod) -> DeviceFilter | None:
    """What the pod needs of devices; None if it needs none, or it cannot be told."""
    try:
        incoming = compile_pod(pod)
        if not needs_devices(state.snapshot, incoming):
            return None
        return prefilter(state.snapshot, incoming).devices
    except ClusterError:
        return None
