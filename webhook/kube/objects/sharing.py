"""Pods without repetition: what thousands of pods have in common is kept once.

A pod of ordinary size takes 9 kB when every part of it is an object of its own. The pods of one workload differ in a
few hundred bytes: names, uids, versions, instants, nodes. Everything else is replaced by equal parts seen before.
**Shared parts must not be changed in place**; `msgspec.structs.replace` makes a pod with other parts.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Generic, TypeVar

import msgspec

from webhook.kube.objects.meta import Condition, OwnerReference
from webhook.kube.objects.pod import Pod, PodSpec, Volume
from webhook.kube.pods import RESIZE_PENDING

V = TypeVar("V")

_MOST = 8 << 20
"""Bytes that the keys of one generation of shared parts take, at most: some 6000 workloads' specs."""
_ENTRY = 256
"""Bytes that an entry takes beside its key, about."""

_encode = msgspec.json.Encoder().encode


class SharedParts(Generic[V]):
    """Values by what they say, bounded: those used recently, whose keys take at most `most` to twice as many bytes.

    There are two generations. What is found in the older one moves to the younger; when that is full it becomes the
    older, and what nobody asked for is forgotten. Whoever holds a forgotten value keeps it, unshared from then on.

    With `repeated` a value is kept from the second time on that it is given, for values of which many come once only.
    """

    def __init__(self, most: int = _MOST, *, repeated: bool = False) -> None:
        self._most = most
        self._repeated = repeated
        self._size = 0
        self._once: set[int] = set()
        """Hashes of keys that were given once."""
        self._young: dict[str | bytes, V] = {}
        self._old: dict[str | bytes, V] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: str | bytes, value: V) -> V:
        """The value kept under the key; this one, which is then kept, if there is none yet."""
        shared = self._young.get(key)
        if shared is not None:
            return shared
        if self._repeated and key not in self._old and hash(key) not in self._once:
            if len(self._once) * _ENTRY >= self._most:
                self._once.clear()
            self._once.add(hash(key))
            return value
        size = len(key) + _ENTRY
        if self._size + size > self._most:
            self._old, self._young, self._size = self._young, {}, 0
            if size > self._most:
                return value
        self._size += size
        shared = self._young[key] = self._old.pop(key, value)
        return shared


class SharedPods:
    """Makes of decoded pods what is kept of them; call it with each.

    Of a pod that has a node no decision reads images, ports that are not the host's, volumes that bind it to nothing,
    and the messages and instants of its conditions, but for since when it wants to grow and the instants of the
    conditions `timed`. They are left out: they differ from workload to workload, or from pod to pod.
    """

    def __init__(self, most: int = _MOST, *, timed: Collection[str] = ()) -> None:
        self._timed = frozenset((RESIZE_PENDING, *timed))
        self._specs: SharedParts[PodSpec] = SharedParts(most)
        self._labels: SharedParts[dict[str, str]] = SharedParts(most)
        self._annotations: SharedParts[dict[str, str]] = SharedParts(most, repeated=True)  # each plan comes once
        self._owners: SharedParts[list[OwnerReference]] = SharedParts(most)
        self._conditions: SharedParts[list[Condition]] = SharedParts(most)
        self._texts: SharedParts[str] = SharedParts(most)

    def __call__(self, pod: Pod) -> Pod:
        """The pod with shared parts; the one given is used up."""
        meta, status, texts = pod.metadata, pod.status, self._texts
        if meta.labels:
            meta.labels = self._labels.get(_encode(meta.labels), meta.labels)
        if meta.annotations:
            meta.annotations = self._annotations.get(_encode(meta.annotations), meta.annotations)
        if meta.owner_references:
            meta.owner_references = self._owners.get(_encode(meta.owner_references), meta.owner_references)
        meta.namespace = texts.get(meta.namespace, meta.namespace)
        meta.generate_name = texts.get(meta.generate_name, meta.generate_name)
        status.phase = texts.get(status.phase, status.phase)
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
                spec.volumes = [volume for volume in spec.volumes if volume != Volume(name=volume.name)] or None
            if status.conditions:
                for condition in status.conditions:
                    condition.message = ""
                    if condition.type not in self._timed:
                        condition.last_transition_time = None
                status.conditions = self._conditions.get(_encode(status.conditions), status.conditions)
        # A spec with the parts of the first one that was equal but for node and volumes
        node, volumes = texts.get(spec.node_name, spec.node_name), spec.volumes
        spec.node_name, spec.volumes = "", None
        pod.spec = copy.copy(self._specs.get(_encode(spec), spec))
        pod.spec.node_name, pod.spec.volumes = node, volumes
        return pod
