"""Waiting pods that could take a part of a candidate's devices before all are free (docs/reconciler.md#devices).

A nomination reserves no devices, and they come free claim by claim. The preemptor is tried first each time, but as long
as something is missing it gets nothing, and a pod that wants less, of whatever priority and scheduler, takes it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from webhook.kube.objects import Pod, key_of
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.devices import DeviceFilter, needs_devices
from webhook.preemption.filters.filtering import prefilter
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.candidates import Candidate
from webhook.reconciler.state.state import State

__all__ = ["ChosenCandidate", "choose"]

_GROUPS = 16
"""Groups of waiting pods that are looked at."""
_CANDIDATES = 8
"""Candidates among which one is looked for from which nobody takes a part."""


class ChosenCandidate(NamedTuple):
    """The candidate to take and what to tell of it, which is empty if there is nothing to tell."""

    candidate: Candidate
    because: str


def choose(state: State, pod: Pod, decision: Decision) -> ChosenCandidate | None:
    """The best candidate from which no waiting pod can take a part, else the best one; None if there is none."""
    best = decision.selected
    if best is None or not decision.asks_for_devices:
        return ChosenCandidate(best, "") if best is not None else None
    takers = _EarlyTakers(state, pod)
    first = takers.of(best)
    if first is None:
        return ChosenCandidate(best, "")
    might = f"{key_of(first)} of priority {first.spec.priority or 0}, which waits, might take a part of the devices"
    for other in decision.shortlist(_CANDIDATES):
        if other.node != best.node and takers.of(other) is None:
            return ChosenCandidate(other, f"{might} of {best.node} before all of them are free")
    return ChosenCandidate(best, f"{might} before all of them are free, on every node that was looked at")


class _EarlyTakers:
    """The waiting pods that ask for devices, each group with what it needs."""

    def __init__(self, state: State, pod: Pod) -> None:
        self._snapshot, self._pod = state.snapshot, pod
        self._own = _needs(state, pod)
        self._others: list[tuple[Pod, DeviceFilter]] = []
        asking = (group for group in state.waiting.groups() if self._asks(group.example))
        for group in heapq.nlargest(_GROUPS, asking, key=lambda one: one.priority):
            example = next((one for one in group.pods.values() if one.metadata.uid != pod.metadata.uid), None)
            if example is not None and (needs := _needs(state, example)) is not None:
                self._others.append((example, needs))

    def _asks(self, example: Pod) -> bool:
        """Whether a pod asks for devices, looked at quickly."""
        served = self._snapshot.devices.class_of_resource
        containers = example.spec.containers or ()
        asked = (name for one in containers if one.resources for name in one.resources.requests or ())
        return bool(example.spec.resource_claims) or any(name in served for name in asked)

    def of(self, candidate: Candidate) -> Pod | None:
        """A waiting pod that could take a part on this candidate so that the preemptor does not get its devices."""
        pods, claims = self._snapshot.pods, self._snapshot.device_claims
        node = self._snapshot.nodes.find(candidate.node)
        if node is None or self._own is None or not self._others:
            return None
        leaving = [row for row in pods.leaving().tolist() if pods.node[row] == node]
        rows = np.union1d(self._snapshot.pod_rows([victim.key for victim in candidate.victims]), leaving).astype(
            np.intp
        )
        gone = {pods.uids[row] for row in rows.tolist()}
        holders = [uid for uid in gone if claims.used_by(uid)]
        early = [gone - {last} for last in holders if len(holders) > 1]
        early = [some for some in early if self._own.allocation(node, some) is None]
        for example, needs in self._others:
            if any(self._loses(node, gone, needs.allocation(node, some)) for some in early) and fits_on(
                self._snapshot, example, candidate.node, without=rows
            ):
                return example
        return None

    def _loses(self, node: int, gone: Collection[str], taken: Collection[DeviceId] | None) -> bool:
        """Whether the preemptor lacks devices once everybody is gone, and these are taken."""
        if not taken or self._own is None:
            return False
        return self._own.allocation(node, gone, taken) is None


def _needs(state: State, pod: Pod) -> DeviceFilter | None:
    """What the pod needs of devices; None if it needs none, or it cannot be told."""
    try:
        incoming = compile_pod(pod)
        if not needs_devices(state.snapshot, incoming):
            return None
        return prefilter(state.snapshot, incoming).devices
    except ClusterError:
        return None
