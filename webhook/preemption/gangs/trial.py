"""Pods that are put on nodes for a moment, so that the filters count them; afterwards the snapshot is as before."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.devices import ClaimConsumer
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.snapshot import Snapshot

Kind = TypeVar("Kind", bound=np.generic)


_NO_POD = "a member of a gang"  # no pod has such a name


class TrialPlacement:
    """The waiting members of a gang in a snapshot: every one has a row, none a nomination, until the trial ends."""

    def __init__(self, snapshot: Snapshot, members: Iterable[Pod]) -> None:
        self.snapshot = snapshot
        self._pods = snapshot.pods
        self._members = tuple(members)
        self._known: list[Pod] = []

    def __enter__(self) -> Self:
        for pod in self._members:
            if self._pods.find(pod.metadata.namespace, pod.metadata.name) is not None:
                self._known.append(pod)
            self.take_off(pod)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pod in self._members:
            self.snapshot.release_devices(_of_trial(pod), pod.metadata.namespace)
            if pod in self._known:
                self._pods.put(pod)
            else:
                self._pods.remove(pod.metadata.namespace, pod.metadata.name)

    def put_on(self, pod: Pod, node: int, devices: Collection[DeviceId] = ()) -> None:
        """Let the member be on the node in this row, with these devices, which give way to nobody."""
        self._put(pod, self.snapshot.nodes.names[node])
        if devices:
            nobody = ClaimConsumer(resource="pods", name=_NO_POD, uid=_NO_POD)
            self.snapshot.hold_devices(_of_trial(pod), pod.metadata.namespace, nobody, devices)

    def take_off(self, pod: Pod) -> None:
        """Let the member wait, without a nomination and devices."""
        self._put(pod, "")
        self.snapshot.release_devices(_of_trial(pod), pod.metadata.namespace)

    def padded(self, column: NDArray[Kind] | None) -> NDArray[Kind] | None:
        """A column by pod row that was made before the trial, with entries for the members."""
        if column is None or len(column) >= self._pods.rows:
            return column
        padded: NDArray[Kind] = np.append(column, np.zeros(self._pods.rows - len(column), column.dtype))
        return padded

    def _put(self, pod: Pod, node: str) -> None:
        spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=None)
        status = msgspec.structs.replace(pod.status, nominated_node_name="")
        self._pods.put(msgspec.structs.replace(pod, spec=spec, status=status))


def _of_trial(pod: Pod) -> str:
    """What the devices of a member are held for; no plan has such a name."""
    return f"trial of {pod.metadata.name}"
