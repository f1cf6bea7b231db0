"""The Kubernetes objects this project reads, each with only the fields it uses.

Field names are Kubernetes' own in snake_case; in JSON they are camelCase. Unknown fields are ignored on
decoding, so a newer API version passes. A collection that Kubernetes may leave out *or* send as `null` is
None when empty: read it as `spec.tolerations or ()`. Instants stay RFC 3339 strings (`webhook.kube.instants`
parses them) and quantities stay as sent (`webhook.kube.quantity` parses them): decoding must not fail on a
value that only one rule looks at.
"""

from __future__ import annotations

from webhook.kube.objects.cluster_scoped import (
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    PriorityClass,
)
from webhook.kube.objects.meta import (
    Condition,
    LabelSelector,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    Quantity,
    Requirement,
    key_of,
)
from webhook.kube.objects.placement import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from webhook.kube.objects.pod import (
    ClaimReference,
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    RestartRule,
    Volume,
)
from webhook.kube.objects.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
)

__all__ = [
    "Affinity",
    "CSINode",
    "ClaimReference",
    "Condition",
    "Container",
    "ContainerPort",
    "ContainerStatus",
    "LabelSelector",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodSpec",
    "PodStatus",
    "PreferredSchedulingTerm",
    "PriorityClass",
    "Quantity",
    "Requirement",
    "ResourceRequirements",
    "RestartRule",
    "StorageClass",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "WeightedPodAffinityTerm",
    "key_of",
]
