"""Pods, and the budgets for their disruption."""

from typing import Any

import msgspec

from webhook.kube.objects.meta import Condition, KubeObject, KubeStruct, LabelSelector, Quantity
from webhook.kube.objects.placement import Affinity, Toleration, TopologySpreadConstraint


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


class Volume(KubeStruct):
    """A pod's volume, if it can bind the pod to a place."""

    name: str = ""
    persistent_volume_claim: ClaimReference | None = None
    ephemeral: dict[str, Any] | None = None


class PodSpec(KubeStruct):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    service_account_name: str = ""
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
    resource_claim_statuses: list[dict[str, Any]] | None = None


class Pod(KubeObject):
    """A pod. What its status says of resources is kept only while it tells of a resize in place: hardly ever."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def __post_init__(self) -> None:
        """Let go of what each running pod repeats in its status: its containers would weigh double."""
        status, spec = self.status, self.spec
        status.container_statuses = _resized(spec.containers, status.container_statuses)
        init = status.init_container_statuses
        status.init_container_statuses = _resized(spec.init_containers, init)
        if status.resources:
            asked = spec.resources.requests if spec.resources else None
            if not asked or not _differs(status, asked):
                status.resources = None
                status.allocated_resources = None


def _resized(
    containers: list[Container] | None, statuses: list[ContainerStatus] | None
) -> list[ContainerStatus] | None:
    """The statuses that report other requests than the container of that name makes."""
    reporting = [status for status in statuses or () if status.resources]
    if not reporting:
        return None
    asked = {row.name: row.resources.requests for row in containers or () if row.resources}
    return [row for row in reporting if _differs(row, asked.get(row.name) or {})] or None


def _differs(status: ContainerStatus | PodStatus, asked: dict[str, Quantity]) -> bool:
    """Whether what it has or was allotted is not what it asks for, as far as it is reported."""
    assert status.resources is not None
    both = status.resources.requests, status.allocated_resources
    told = [amounts for amounts in both if amounts]
    if not told:
        return bool(asked)
    return any(amounts != asked for amounts in told)


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
    conditions: list[Condition] | None = None


class PodDisruptionBudget(KubeObject):
    """A disruption budget."""

    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)
