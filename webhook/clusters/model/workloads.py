"""What workloads say of their pods, as far as somebody here goes by it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.kube.objects.meta import KubeObject, KubeStruct
from webhook.kube.objects.pod import PodSpec


class TemplateSpec(PodSpec):
    """A pod's spec with what the API server goes by when it makes the pod; in stored pods that has happened."""

    runtime_class_name: str = ""


class PodTemplate(KubeObject):
    """What a workload's pods are made of."""

    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class WorkloadSpec(KubeStruct):
    """How many pods a workload wants, and which; a Job wants `parallelism`, a DaemonSet one a node."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: dict[str, Any] | None = None
    pod_replacement_policy: str | None = None
    suspend: bool = False
    paused: bool = False
    strategy: dict[str, Any] | None = None
    """How a Deployment is rolled out."""
    update_strategy: dict[str, Any] | None = None
    """The same of a StatefulSet or a DaemonSet."""
    pod_management_policy: str | None = None
    ordinals: dict[str, Any] | None = None
    volume_claim_templates: list[KubeObject] | None = None
    """Their names are those of the volumes that a StatefulSet's pods have of their own."""
    selector: dict[str, Any] | None = None
    """A LabelSelector, of a ReplicationController a plain map of labels."""
    template: Any = None
    """What its pods are made of: JSON data, or as a subclass says."""
    min_ready_seconds: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    persistent_volume_claim_retention_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    managed_by: str | None = None

    @property
    def wanted(self) -> int:
        """How many pods a workload with replicas is to have."""
        return 1 if self.replicas is None else self.replicas


class Workload(KubeObject):
    """A workload as controllers read it; two versions of its pods are told apart by `spec.template`."""

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: Any = msgspec.field(default_factory=dict)

    @property
    def told(self) -> Mapping[str, Any]:
        """Its status as it was written, as JSON data."""
        told: Mapping[str, Any] = self.status
        return told

    def pod_template(self) -> dict[str, Any] | None:
        """What its pods are made of, as a JSON object of the caller's own; None if that is not known."""
        template: dict[str, Any] | None = self.spec.template
        return copy.deepcopy(template)
