"""The workloads: which kinds there are, and where each keeps the template of its pods. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["TEMPLATE_PATHS", "WORKLOADS", "WorkloadKind", "template_of"]


class WorkloadKind(NamedTuple):
    """A kind of object that makes pods; `template` is the path to the template of its pods."""

    kind: str
    template: tuple[str, ...] = ("spec", "template")


WORKLOADS = {
    ("apps", "deployments"): WorkloadKind("Deployment"),
    ("apps", "statefulsets"): WorkloadKind("StatefulSet"),
    ("apps", "daemonsets"): WorkloadKind("DaemonSet"),
    ("apps", "replicasets"): WorkloadKind("ReplicaSet"),
    ("", "replicationcontrollers"): WorkloadKind("ReplicationController"),
    ("batch", "jobs"): WorkloadKind("Job"),
    ("batch", "cronjobs"): WorkloadKind("CronJob", ("spec", "jobTemplate", "spec", "template")),
}
"""By group and resource."""

TEMPLATE_PATHS = tuple(dict.fromkeys(workload.template for workload in WORKLOADS.values()))
"""Every place in which some workload keeps its template."""

_BY_RESOURCE = {resource: workload for (_, resource), workload in WORKLOADS.items()}


def template_of(obj: dict[str, Any] | None, resource: str) -> dict[str, Any] | None:
    """The pod template of an object of this resource, such as `deployments`; None if it has none."""
    workload = _BY_RESOURCE.get(resource)
    if workload is None:
        return None
    part: Any = obj
    for key in workload.template:
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else None
