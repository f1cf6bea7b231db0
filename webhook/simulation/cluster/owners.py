"""Controllers of pods, and the pods as they send them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.kube.objects import OwnerReference, Pod
from webhook.policy.model import MARK, OWN_ANNOTATIONS
from webhook.simulation.snapshot.objects import PodTemplate

__all__ = ["Owner", "body_of"]

_API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}
_FILLED_IN = ("nodeName", "priority", "preemptionPolicy")
"""Fields of a pod that its controller does not send."""
Json = dict[str, Any]


@dataclass(slots=True)
class Owner:
    """A controller with the pods it has that are not leaving."""

    kind: str
    key: str
    uid: str
    wanted: int | None
    """How many pods; None if as many as there were, each replaced by itself."""
    active: dict[str, None] = field(default_factory=dict)
    leaving: dict[str, Pod] = field(default_factory=dict)
    sample: Pod | None = None
    made: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""
        return self.key.partition("/")[0]


def body_of(owner: Owner, template: PodTemplate, on: str = "") -> Json:
    """A pod of a template as its controller sends it; a DaemonSet's is for the node `on`."""
    meta, spec = template.metadata, msgspec.to_builtins(template.spec)
    for name in _FILLED_IN:
        spec.pop(name, None)
    if on:
        _pin(spec, on)
    labels = {key: text for key, text in (meta.labels or {}).items() if key != MARK}
    annotations = {key: text for key, text in (meta.annotations or {}).items() if key not in OWN_ANNOTATIONS}
    name = owner.key.partition("/")[2]
    reference = OwnerReference(
        kind=owner.kind, name=name, uid=owner.uid, api_version=_API.get(owner.kind, "v1"), controller=True
    )
    return {
        "metadata": {
            "generateName": f"{name}-",
            "namespace": owner.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [msgspec.to_builtins(reference)],
        },
        "spec": spec,
    }


def _pin(spec: Json, node: str) -> None:
    """Confine a pod to a node as the DaemonSet controller does, and let it put up with a cordon."""
    row = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.get("affinity") or {}
    affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [row]}}
    spec["affinity"] = affinity
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), cordon]
