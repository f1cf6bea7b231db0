"""The kinds of objects that decide what happens in a cluster, and of each of them only what decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.clusters.model.new_pods import template_metadata
from webhook.clusters.model.workloads import PodTemplate, Workload, WorkloadSpec
from webhook.clusters.scheduling.default_spread import Selecting
from webhook.kube.objects.meta import KubeObject, KubeStruct, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    POD,
    PRIORITY_CLASS,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    RESOURCE_QUOTA,
    RUNTIME_CLASS,
    SERVICE,
    STATEFUL_SET,
    Resource,
)
from webhook.preemption.snapshot.kinds import PODS, SNAPSHOT_KINDS


class WorkloadStatus(KubeStruct):
    """What a workload has come to; a Job with these conditions makes no more pods."""

    conditions: list[dict[str, Any]] | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    update_revision: str = ""
    """The label of a StatefulSet's pods of its newest template."""


class SimulatedSpec(WorkloadSpec):
    """What a workload wants, with as much of its template as decides."""

    template: PodTemplate | None = None


class SimulatedWorkload(Workload):
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or ReplicationController."""

    spec: SimulatedSpec = msgspec.field(default_factory=SimulatedSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def told(self) -> dict[str, Any]:
        """Its status, as JSON data."""
        told: dict[str, Any] = msgspec.to_builtins(self.status)
        return told

    def pod_template(self) -> dict[str, Any] | None:
        """What its pods are made of, as JSON data, but for what says something of one pod; None if it is not known."""
        template = self.spec.template
        if template is None:
            return None
        return {"metadata": template_metadata(template.metadata), "spec": msgspec.to_builtins(template.spec)}


class CronJobSpec(KubeStruct):
    """When it makes Jobs."""

    schedule: str = ""


class CronJob(KubeObject):
    """A CronJob, which reports name: it makes no Jobs here."""

    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)


class NewPodRules(KubeObject):
    """A LimitRange or a ResourceQuota (`spec`), or a RuntimeClass: what new pods get of it, or may not have."""

    spec: dict[str, Any] | None = None
    overhead: dict[str, Any] | None = None
    scheduling: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind in a cluster file; without the `needed` ones nothing can be said."""

    resource: Resource
    type: type[Any]
    needed: bool = False

    @property
    def name(self) -> str:
        """`Pod`, `Node` and so on."""
        return self.resource.title


_NEEDED = frozenset({NAMESPACE, PRIORITY_CLASS, NODE, POD})

KINDS: tuple[Kind, ...] = (
    *(Kind(kind.resource, kind.type_, kind.resource in _NEEDED) for kind in SNAPSHOT_KINDS if kind is not PODS),
    Kind(SERVICE, Selecting),
    *(Kind(resource, NewPodRules) for resource in (LIMIT_RANGE, RESOURCE_QUOTA, RUNTIME_CLASS)),
    Kind(CRON_JOB, CronJob),
    *(
        Kind(resource, SimulatedWorkload)
        for resource in (DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, DAEMON_SET, JOB)
    ),
    Kind(POD, Pod, needed=True),
)
"""In the order in which they are read and written: pods last, when what they are judged by is there."""

BY_KIND = {kind.name: kind for kind in KINDS}
_BY_GROUP = {(kind.resource.group, kind.resource.kind): kind for kind in KINDS}


def kind_of(api_version: str, name: str) -> Kind | None:
    """The kind of an object that says so; if it says no `apiVersion`, that of this name."""
    return _BY_GROUP.get((api_version.rpartition("/")[0], name)) if api_version else BY_KIND.get(name)


WORKLOADS = tuple(kind for kind in KINDS if kind.type is SimulatedWorkload)


@dataclass(slots=True)
class ClusterObjects:
    """The objects of one cluster by kind and key; `taken_at` is in seconds since the epoch.

    `annotations` are the keys that were kept of pods and classes, None for all; `absent` says by kind why it is
    missing.
    """

    taken_at: float
    annotations: frozenset[str] | None = None
    absent: dict[str, str] = field(default_factory=dict)
    anonymized: bool = False
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, kind: Kind, item: Any) -> None:
        """Take an object; a later one of the same name replaces an earlier one."""
        self.objects.setdefault(kind.name, {})[key_of(item)] = item

    def of(self, kind: str) -> dict[str, Any]:
        """The objects of a kind by key."""
        return self.objects.get(kind, {})

    def pending(self) -> list[Pod]:
        """The pods that wait for a node, the most important first, then by name."""
        waiting: list[Pod] = [
            pod
            for pod in self.of("Pod").values()
            if not pod.spec.node_name and not pod.metadata.deletion_timestamp and pod.status.phase in {"", "Pending"}
        ]
        return sorted(waiting, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.namespace, pod.metadata.name))
