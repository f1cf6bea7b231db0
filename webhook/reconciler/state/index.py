"""Pods by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, KeysView
from functools import partial
from typing import Generic, TypeVar

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of, workload_of
from webhook.preemption.snapshot.columns import take_out
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of

V = TypeVar("V")
T = TypeVar("T")


class Index(dict[V, dict[str, T]], Generic[V, T]):
    """By each of the values that `values_of` has for them, the objects by key; values without objects are forgotten."""

    def __init__(self, values_of: Callable[[T], Collection[V]]) -> None:
        super().__init__()
        self._values_of = values_of
        self._values: dict[str, Collection[V]] = {}

    @property
    def known(self) -> KeysView[str]:
        """The keys of the objects that have values."""
        return self._values.keys()

    def of(self, key: str) -> Collection[V]:
        """The values of the object of that key; none if it is not known."""
        return self._values.get(key, ())

    def put(self, key: str, item: T | None) -> Collection[V]:
        """Add or update an object, None takes it away; the values under which it has come or is no longer."""
        old, new = self._values.get(key, ()), () if item is None else self._values_of(item)
        changed: Collection[V] = ()
        if not (old or new):  # so it is with most pods
            return changed
        if old != new:
            changed = {*old, *new}
            for value in old:
                take_out(self, value, key)
            self._values.pop(key, None)
            if new:
                self._values[key] = new
        if item is not None:
            for value in new:
                self.setdefault(value, {})[key] = item
        return changed


class PodIndexes:
    """Pods, taken with what is expected of them, by `namespace/name`."""

    def __init__(self) -> None:
        self.leaving: dict[str, Pod] = {}
        """Pods on a node that are terminating."""
        self.nominated: Index[str, Pod] = Index(lambda pod: _known(pod.status.nominated_node_name))
        """By node, the pods without one that are nominated to it."""
        self.members: Index[GroupKey, Pod] = Index(lambda pod: _known(group_of(pod), NO_GROUP))
        """By group, its pods that wait for a node."""
        self.owned: Index[str, Pod] = Index(lambda pod: _known(workload_of(pod)))
        """By owner (`kube.pods.workload_of`), its pods on nodes."""
        self.keeping: Index[str, Pod] = Index(partial(device_claims_of, made=False))
        """By claim on devices, `namespace/name`, the pods that keep it in use (`Pending`)."""

    def put(self, key: str, pod: Pod | None) -> Collection[str]:
        """Add or update a pod, None takes it away; the claims that other pods keep in use by that."""
        placed = pod if pod is not None and pod.spec.node_name else None
        unplaced = pod if placed is None else None
        self.leaving.pop(key, None)
        if placed is not None and placed.metadata.deletion_timestamp:
            self.leaving[key] = placed
        self.owned.put(key, placed)
        self.nominated.put(key, unplaced)
        waits = unplaced is not None and not unplaced.metadata.deletion_timestamp
        self.members.put(key, unplaced if waits else None)
        if placed is not None and controller_of(placed.metadata) is None:
            return self.keeping.put(key, None)
        return self.keeping.put(key, pod)


def _known(value: V, none: object = "") -> tuple[V, ...]:
    return () if value == none else (value,)


def device_claims_of(pod: Pod, *, made: bool = True) -> frozenset[str]:
    """The claims on devices, `namespace/name`, that a pod names, and those that were `made` for it by its templates."""
    if not pod.spec.resource_claims:
        return frozenset()
    rows = [*pod.spec.resource_claims, *((pod.status.resource_claim_statuses or ()) if made else ())]
    names = (row.get("resourceClaimName") for row in rows)
    return frozenset(f"{pod.metadata.namespace}/{name}" for name in names if name)
