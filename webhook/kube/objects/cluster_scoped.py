"""The cluster-scoped objects: nodes, namespaces and priority classes."""

import msgspec

from webhook.kube.objects.meta import Condition, KubeObject, KubeStruct, Quantity
from webhook.kube.objects.placement import Taint


class NodeSpec(KubeStruct):
    """A node's taints and whether it takes new pods."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(KubeStruct):
    """What a node has."""

    allocatable: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None


class Node(KubeObject):
    """A node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(KubeObject):
    """A namespace, of which rules read name, labels and annotations."""


class PriorityClass(KubeObject):
    """A priority by name. `value` is an int32; decoding leaves the range to the rule that checks it."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""
