"""Which pods kube-scheduler spreads though they do not ask for it: those of a Service, ReplicaSet or StatefulSet.

Mirrors `helper.DefaultSelector` and the system defaults of PodTopologySpread (`defaultingType: System`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import KubeObject, KubeStruct, LabelSelector
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.kube.resources import REPLICA_SET, REPLICATION_CONTROLLER, SERVICE, STATEFUL_SET, Resource

SELECTING: tuple[Resource, ...] = (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET)
"""The resources whose selectors matter."""


class SelectingSpec(KubeStruct):
    """Which pods it selects."""

    selector: dict[str, Any] | None = None


class Selecting(KubeObject):
    """As much of an object as tells which pods are its own; a Service's selector is a plain map of labels."""

    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)


class Selectors:
    """The selectors of services and controllers, by namespace."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._controllers: dict[tuple[str, str], LabelSelector] = {}
        """(Kind, `namespace/name`) to its selector."""

    def changed(self, resource: Resource, change: Change[Any]) -> None:
        """Take over a change of one of the SELECTING resources; a selector that cannot be read selects nothing."""
        namespace, new = change.key.partition("/")[0], change.new
        given = (new.spec.selector if new is not None else None) or {}
        if resource is SERVICE:
            if given:
                self._services.setdefault(namespace, {})[change.key] = given
            else:
                self._services.get(namespace, {}).pop(change.key, None)
            return
        selector = {"matchLabels": given} if resource is REPLICATION_CONTROLLER else given
        self._controllers.pop((resource.kind, change.key), None)
        if given:
            with suppress(msgspec.ValidationError):
                self._controllers[resource.kind, change.key] = msgspec.convert(selector, LabelSelector)

    def of(self, pod: Pod) -> LabelSelector | None:
        """What the pods that this one is spread among have in common; None if nothing spreads it."""
        meta = pod.metadata
        labels, together = meta.labels or {}, dict[str, str]()
        for wanted in self._services.get(meta.namespace, {}).values():
            if wanted.items() <= labels.items():
                together |= wanted
        owner = controller_of(meta)
        controller = self._controllers.get((owner.kind, f"{meta.namespace}/{owner.name}")) if owner else None
        if controller is not None:
            together |= controller.match_labels or {}
        rows = controller.match_expressions if controller else None
        return LabelSelector(match_labels=together or None, match_expressions=rows) if together or rows else None
