"""Nodes, namespaces, priority classes and disruption budgets."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.kube.objects.meta import Condition, KubeStruct, LabelSelector, ObjectMeta, Quantity
from webhook.kube.objects.placement import Taint

__all__ = [
    "Namespace",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PriorityClass",
]


class NodeSpec(KubeStruct):
    """A node's taints and whether it takes new pods."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(KubeStruct):
    """What a node has."""

    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None


class Node(KubeStruct):
    """A node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(KubeStruct):
    """A namespace, of which rules read name, labels and annotations."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class PriorityClass(KubeStruct):
    """A priority by name. `value` is an int32; decoding leaves the range to the rule that checks it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""


class PodDisruptionBudgetSpec(KubeStruct):
    """Which pods a budget covers and how many must stay."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(KubeStruct):
    """How many disruptions a budget has left; `disrupted_pods` are already counted."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int | None = None
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(KubeStruct):
    """A disruption budget."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)
