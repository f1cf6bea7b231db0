"""The Kubernetes objects this project reads, each with only the fields it uses.

Field names are Kubernetes' own in snake_case; in JSON they are camelCase. Unknown fields are ignored on
decoding, so a newer API version passes. A collection that Kubernetes may leave out *or* send as `null` is
None when empty: read it as `spec.tolerations or ()`. Instants stay RFC 3339 strings (`webhook.kube.instants`
parses them) and quantities stay as sent (`webhook.kube.quantity` parses them): decoding must not fail on a
value that only one rule looks at.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Affinity",
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
    "key_of",
]

Quantity = str | int | float
"""A resource quantity as JSON carries it; the API server always sends the string."""


class KubeStruct(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Base of every object and part of one: camelCase in JSON, unknown fields ignored."""


class OwnerReference(KubeStruct):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(KubeStruct):
    """What every object carries."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class Requirement(KubeStruct):
    """One row of `matchExpressions` or `matchFields`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(KubeStruct):
    """A label selector; what an absent or empty one means depends on who asks."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(KubeStruct):
    """Requirements that hold together; terms of one selector are alternatives."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(KubeStruct):
    """Alternatives of node selector terms."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(KubeStruct):
    """The required half of node affinity; preferences do not decide whether a pod fits."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(KubeStruct):
    """One required term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(KubeStruct):
    """The required terms of pod affinity or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None


class Affinity(KubeStruct):
    """Where a pod wants to run, relative to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(KubeStruct):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(KubeStruct):
    """How evenly matching pods must lie over a topology."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ResourceRequirements(KubeStruct):
    """What a container or a pod asks for."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(KubeStruct):
    """A port, of which only the host's part is contended."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class RestartRule(KubeStruct):
    """What happens when a container exits; some actions need a node that declares them."""

    action: str = ""


class Container(KubeStruct):
    """A container's claims on its node."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None


class ClaimReference(KubeStruct):
    """A pod's reference to a PersistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class Volume(KubeStruct):
    """A pod's volume, where it can bind the pod to a place."""

    name: str = ""
    persistent_volume_claim: ClaimReference | None = None
    ephemeral: dict[str, Any] | None = None


class PodSpec(KubeStruct):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    host_network: bool = False
    host_users: bool | None = None
    resource_claims: list[dict[str, Any]] | None = None
    scheduling_group: dict[str, Any] | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_gates: list[dict[str, Any]] | None = None


class Condition(KubeStruct):
    """A condition of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(KubeStruct):
    """What a container has (`resources`) and was allotted, which is not what it asks for while it is resized."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class PodStatus(KubeStruct):
    """What became of a pod so far."""

    phase: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class Pod(KubeStruct):
    """A pod. What its status says of resources is kept only while it tells of a resize in place: hardly ever."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def __post_init__(self) -> None:
        """Let go of what every running pod repeats in its status, which would double what its containers weigh."""
        status = self.status
        if status.container_statuses:
            status.container_statuses = _resized(self.spec.containers, status.container_statuses)
        if status.init_container_statuses:
            status.init_container_statuses = _resized(self.spec.init_containers, status.init_container_statuses)
        if status.resources:
            asked = self.spec.resources.requests if self.spec.resources else None
            if not (asked and _differs(status, asked)):
                status.resources = status.allocated_resources = None


def _resized(containers: list[Container] | None, statuses: list[ContainerStatus]) -> list[ContainerStatus] | None:
    """The statuses that report other requests than the container of that name makes."""
    asked = {one.name: one.resources.requests for one in containers or () if one.resources}
    return [one for one in statuses if one.resources and _differs(one, asked.get(one.name) or {})] or None


def _differs(status: ContainerStatus | PodStatus, asked: dict[str, Quantity]) -> bool:
    """Whether what it has or was allotted is not what it asks for; a half that is not reported is no difference."""
    assert status.resources is not None
    told = [given for given in (status.resources.requests, status.allocated_resources) if given]
    return any(given != asked for given in told) or bool(asked and not told)


class Taint(KubeStruct):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


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


class ObjectReference(KubeStruct):
    """A reference from one object to another."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(KubeStruct):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(KubeStruct):
    """A volume's reach, class and claim."""

    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    access_modes: list[str] | None = None
    capacity: dict[str, Quantity] | None = None
    volume_mode: str = "Filesystem"


class PersistentVolume(KubeStruct):
    """A persistent volume."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: dict[str, Any] | None = None


class PersistentVolumeClaimSpec(KubeStruct):
    """What a claim asks for and what it is bound to."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class PersistentVolumeClaim(KubeStruct):
    """A claim on a persistent volume."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: dict[str, Any] | None = None


class StorageClass(KubeStruct):
    """How volumes of a class come to be."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[dict[str, Any]] | None = None


def key_of(obj: Any) -> str:
    """`namespace/name` of a namespaced object, `name` of a cluster-wide one."""
    meta: ObjectMeta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
