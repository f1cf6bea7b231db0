"""Pods without repetition: what thousands of pods have in common is kept once.

A pod of ordinary size takes 9 kB when every part of it is an object of its own. The pods of one workload differ in a
few hundred bytes: names, uids, versions, instants, nodes. Everything else is replaced by equal parts seen before.
**Shared parts must not be changed in place**; `msgspec.structs.replace` makes a pod with other parts.
"""

import copy
import sys
from collections.abc import Collection
from typing import Any

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.objects.pod import Pod, Volume
from webhook.kube.pods import RESIZE_PENDING

_MOST, _FEW = 8192, 1024
"""Different parts that are kept of one kind. Of annotations few: many come once only, such as plans."""
_LONGEST = 4096
"""Bytes that a part which is shared says at most; a workload's spec says some 1300."""

_encode = msgspec.json.Encoder().encode


class _Parts(Newest[bytes, Any]):
    """Values by what they say, the newest ones. Whoever holds a forgotten value keeps it, unshared from then on."""

    def shared(self, value: Any) -> Any:
        """The value that says the same; this one, which is then kept, if there is none yet."""
        key = _encode(value)
        if len(key) > _LONGEST:
            return value
        return self.made(key, lambda: value)


class SharedPods:
    """Makes of decoded pods what is kept of them; call it with each.

    Of a pod that has a node no decision reads images, ports that are not the host's, volumes that bind it to nothing,
    and the messages and instants of its conditions, but for since when it wants to grow and the instants of the
    conditions `timed`. They are left out: they differ from workload to workload, or from pod to pod.
    """

    def __init__(self, *, timed: Collection[str] = ()) -> None:
        self._timed = frozenset((RESIZE_PENDING, *timed))
        self._specs, self._labels, self._owners, self._conditions = (_Parts(_MOST) for _ in range(4))
        self._annotations = _Parts(_FEW)

    def __call__(self, pod: Pod) -> Pod:
        """The pod with shared parts; the one given is used up."""
        meta, status = pod.metadata, pod.status
        meta.labels = self._labels.shared(meta.labels)
        meta.annotations = self._annotations.shared(meta.annotations)
        meta.owner_references = self._owners.shared(meta.owner_references)
        meta.namespace = sys.intern(meta.namespace)
        meta.generate_name = sys.intern(meta.generate_name)
        status.phase = sys.intern(status.phase)
        if status.start_time == meta.creation_timestamp:
            status.start_time = meta.creation_timestamp
        spec = pod.spec
        if spec.node_name:
            # Leave out what is not read of a pod that has a node
            for container in (*(spec.containers or ()), *(spec.init_containers or ())):
                container.image = ""
                if container.ports:
                    container.ports = [port for port in container.ports if port.host_port] or None
            if spec.volumes:
                spec.volumes = [row for row in spec.volumes if row != Volume(name=row.name)] or None
            if status.conditions:
                for condition in status.conditions:
                    condition.message = ""
                    if condition.type not in self._timed:
                        condition.last_transition_time = None
                status.conditions = self._conditions.shared(status.conditions)
        # A spec with the parts of the first one that was equal but for node and volumes
        node, volumes = sys.intern(spec.node_name), spec.volumes
        spec.node_name, spec.volumes = "", None
        pod.spec = copy.copy(self._specs.shared(spec))
        pod.spec.node_name, pod.spec.volumes = node, volumes
        return pod
