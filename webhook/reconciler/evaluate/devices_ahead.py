"""What pods of higher priority take of the candidates' devices: the scheduler allocates theirs first.

A device that several claims can share is not counted: a pod in front does not take all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.devices import DeviceFilter
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.victims.candidates import Candidates

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class DevicesAhead:
    """The devices that are left on each candidate for a preemptor whose needs are `own`.

    Its victims there and the pods in the rows `gone` have left; `place` lets pods in front take theirs. By candidate,
    `held` are devices that are kept for others.
    """

    def __init__(
        self, candidates: Candidates, gone: Rows, own: DeviceFilter, held: Mapping[int, Collection[DeviceId]]
    ) -> None:
        uids, self._own, self._candidates = candidates.snapshot.pods.uids, own, candidates
        leaving = {uids[row] for row in gone.tolist()}
        self._gone = [
            leaving | {uids[row] for row in candidates.victims_of(number).tolist()}
            for number in range(len(candidates.nodes))
        ]
        self._taken: list[set[DeviceId]] = [set(held.get(number, ())) for number in range(len(candidates.nodes))]
        self._settled: list[set[str]] = [set() for _ in self._gone]
        """By candidate, the claims with a name that have been allocated for a pod in front: all others share them."""

    def place(self, pods: Collection[Pod], needs: DeviceFilter, count: Ints) -> Ints:
        """Let so many of these pods, which are alike, come to each candidate: how many of them get their devices."""
        example = next(iter(pods))
        names = [entry.get("resourceClaimName") for entry in example.spec.resource_claims or ()]
        named = {f"{example.metadata.namespace}/{name}" for name in names if name}
        came = np.zeros_like(count)
        for place in np.flatnonzero(count).tolist():
            node, taken, settled = int(self._candidates.nodes[place]), self._taken[place], self._settled[place]
            self._gone[place] |= {pod.metadata.uid for pod in pods}  # what plans hold for them, they take here
            for _ in range(int(count[place])):
                devices = needs.allocation(node, self._gone[place], taken, settled)
                if devices is None:
                    break
                taken |= set(devices)
                settled |= named
                came[place] += 1
                if not devices:
                    came[place] = count[place]
                    break
        return came

    def lost(self, among: Mask) -> Mask:
        """On which of the candidates `among` these the preemptor does not get its devices any more."""
        lost = np.zeros_like(among)
        for place in np.flatnonzero(among).tolist():
            if self._taken[place]:
                node, gone = int(self._candidates.nodes[place]), self._gone[place]
                lost[place] = self._own.allocation(node, gone, self._taken[place], self._settled[place]) is None
        return lost
