"""Lists as tables (`meta.k8s.io/v1` Table), the way `kubectl get` asks for them.

The columns of each kind have Kubernetes' names and ways of putting things (`printers/internalversion`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from webhook.clusters.embedded.protocol.api_resources import BY_STORAGE, ApiResource, Object
from webhook.clusters.embedded.rendering import cells
from webhook.clusters.embedded.rendering.cells import age
from webhook.clusters.embedded.storage.object_store import StoredObject

_META = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


class Column(NamedTuple):
    """One column: `cell` gets the object and the time in seconds since the epoch; `wide` is for `-o wide`."""

    name: str
    cell: Callable[[Object, float], Any]
    wide: bool = False
    type: str = "string"


_NAME = Column("Name", cells.at("metadata.name"))
_AGE = Column("Age", cells.age_of())
_CREATED = Column("Created At", cells.at("metadata.creationTimestamp"), type="date")
_TEMPLATE = [
    Column("Containers", cells.containers("name"), wide=True),
    Column("Images", cells.containers("image"), wide=True),
]
_SELECTED = [*_TEMPLATE, Column("Selector", cells.selector, wide=True)]


def _number(name: str, path: str, default: int = 0) -> Column:
    return Column(name, cells.at(path, default), type="integer")


_REPLICAS = [
    _NAME,
    _number("Desired", "spec.replicas"),
    _number("Current", "status.replicas"),
    _number("Ready", "status.readyReplicas"),
    _AGE,
    *_SELECTED,
]
_BOUND = [
    _NAME,
    Column("Role", cells.role),
    _AGE,
    Column("Users", cells.subjects("User"), wide=True),
    Column("Groups", cells.subjects("Group"), wide=True),
    Column("ServiceAccounts", cells.subjects("ServiceAccount"), wide=True),
]
_HOOKS = [_NAME, Column("Webhooks", cells.count("webhooks"), type="integer"), _AGE]

_COLUMNS: dict[str, list[Column]] = {
    "ClusterRoleBinding": _BOUND,
    "ConfigMap": [_NAME, Column("Data", cells.count("data"), type="integer"), _AGE],
    "CronJob": [
        _NAME,
        Column("Schedule", cells.at("spec.schedule")),
        Column("Timezone", cells.text("spec.timeZone")),
        Column("Suspend", lambda obj, _now: "True" if obj["spec"].get("suspend") else "False", type="boolean"),
        Column("Active", cells.count("status.active"), type="integer"),
        Column(
            "Last Schedule",
            lambda obj, now: (
                age(obj["status"]["lastScheduleTime"], now) if obj["status"].get("lastScheduleTime") else cells.NONE
            ),
        ),
        _AGE,
        *_SELECTED,
    ],
    "DaemonSet": [
        _NAME,
        _number("Desired", "status.desiredNumberScheduled"),
        _number("Current", "status.currentNumberScheduled"),
        _number("Ready", "status.numberReady"),
        _number("Up-to-date", "status.updatedNumberScheduled"),
        _number("Available", "status.numberAvailable"),
        Column(
            "Node Selector", lambda obj, _now: cells.pairs(obj["spec"]["template"]["spec"].get("nodeSelector") or {})
        ),
        _AGE,
        *_SELECTED,
    ],
    "Deployment": [
        _NAME,
        Column("Ready", cells.fraction("status.readyReplicas", "spec.replicas")),
        _number("Up-to-date", "status.updatedReplicas"),
        _number("Available", "status.availableReplicas"),
        _AGE,
        *_SELECTED,
    ],
    "Event": [
        Column("Last Seen", cells.last_seen),
        Column("Type", cells.at("type")),
        Column("Reason", cells.at("reason")),
        Column("Object", cells.involved),
        Column("Subobject", cells.at("involvedObject.fieldPath"), wide=True),
        Column("Source", cells.source, wide=True),
        Column("Message", lambda obj, _now: str(obj.get("message") or "").strip()),
        Column("First Seen", lambda obj, now: age(cells.first(obj), now), wide=True),
        Column("Count", cells.times, wide=True),
        Column("Name", cells.at("metadata.name"), wide=True),
    ],
    "Job": [
        _NAME,
        Column("Status", cells.job_status),
        Column("Completions", cells.completions),
        Column("Duration", cells.duration),
        _AGE,
        *_SELECTED,
    ],
    "Lease": [_NAME, Column("Holder", cells.at("spec.holderIdentity")), _AGE],
    "MutatingWebhookConfiguration": _HOOKS,
    "Namespace": [_NAME, Column("Status", cells.at("status.phase")), _AGE],
    "Node": [
        _NAME,
        Column("Status", cells.node_status),
        Column("Roles", cells.node_roles),
        _AGE,
        Column("Version", cells.at("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", cells.node_address("InternalIP"), wide=True),
        Column("External-IP", cells.node_address("ExternalIP"), wide=True),
        Column("OS-Image", cells.text("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", cells.text("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column("Container-Runtime", cells.text("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
    ],
    "PersistentVolume": [
        _NAME,
        Column("Capacity", cells.at("spec.capacity.storage")),
        Column("Access Modes", cells.access_modes("spec.accessModes")),
        Column("Reclaim Policy", cells.at("spec.persistentVolumeReclaimPolicy")),
        Column("Status", cells.at("status.phase")),
        Column("Claim", cells.claim),
        Column("StorageClass", cells.at("spec.storageClassName")),
        Column("VolumeAttributesClass", cells.text("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", cells.at("status.reason")),
        _AGE,
        Column("VolumeMode", cells.text("spec.volumeMode", "<unset>"), wide=True),
    ],
    "PersistentVolumeClaim": [
        _NAME,
        Column("Status", cells.at("status.phase")),
        Column("Volume", cells.at("spec.volumeName")),
        Column("Capacity", cells.at("status.capacity.storage")),
        Column("Access Modes", cells.access_modes("status.accessModes")),
        Column("StorageClass", cells.at("spec.storageClassName")),
        Column("VolumeAttributesClass", cells.text("spec.volumeAttributesClassName", "<unset>")),
        _AGE,
        Column("VolumeMode", cells.text("spec.volumeMode", "<unset>"), wide=True),
    ],
    "Pod": [
        _NAME,
        Column("Ready", lambda obj, _now: cells.pod_ready(obj)),
        Column("Status", lambda obj, _now: cells.pod_status(obj)),
        Column("Restarts", cells.pod_restarts),
        _AGE,
        Column("IP", cells.text("status.podIP"), wide=True),
        Column("Node", cells.text("spec.nodeName"), wide=True),
        Column("Nominated Node", cells.text("status.nominatedNodeName"), wide=True),
        Column("Readiness Gates", cells.readiness_gates, wide=True),
    ],
    "PodDisruptionBudget": [
        _NAME,
        Column("Min Available", cells.text("spec.minAvailable", "N/A")),
        Column("Max Unavailable", cells.text("spec.maxUnavailable", "N/A")),
        _number("Allowed Disruptions", "status.disruptionsAllowed"),
        _AGE,
    ],
    "PriorityClass": [
        _NAME,
        _number("Value", "value"),
        Column("Global-Default", cells.at("globalDefault", default=False), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", cells.at("preemptionPolicy")),
    ],
    "ReplicaSet": _REPLICAS,
    "ReplicationController": _REPLICAS,
    "RoleBinding": _BOUND,
    "Secret": [_NAME, Column("Type", cells.at("type")), Column("Data", cells.count("data"), type="integer"), _AGE],
    "Service": [
        _NAME,
        Column("Type", cells.at("spec.type")),
        Column("Cluster-IP", cells.text("spec.clusterIP")),
        Column("External-IP", lambda _obj, _now: cells.NONE),
        Column("Port(s)", cells.ports),
        _AGE,
        Column("Selector", cells.selector, wide=True),
    ],
    "ServiceAccount": [_NAME, Column("Secrets", cells.count("secrets"), type="integer"), _AGE],
    "StatefulSet": [_NAME, Column("Ready", cells.fraction("status.readyReplicas", "spec.replicas")), _AGE, *_TEMPLATE],
    "StorageClass": [
        Column("Name", cells.class_name),
        Column("Provisioner", cells.at("provisioner")),
        Column("ReclaimPolicy", cells.at("reclaimPolicy")),
        Column("VolumeBindingMode", cells.at("volumeBindingMode")),
        Column("AllowVolumeExpansion", cells.at("allowVolumeExpansion", default=False)),
        _AGE,
    ],
    "CSINode": [_NAME, Column("Drivers", cells.count("spec.drivers"), type="integer"), _AGE],
    "ValidatingWebhookConfiguration": _HOOKS,
}


def columns_of(resource: ApiResource) -> list[Column]:
    """The columns of a resource's table."""
    return _COLUMNS.get(resource.kind, [_NAME, _CREATED])


def table(
    resource: ApiResource,
    records: Sequence[StoredObject],
    metadata: Object,
    include: str = "Metadata",
    *,
    headed: bool = True,
) -> bytes:
    """Records as a Table; `include` is None, Metadata or Object; the columns are left out unless `headed`."""
    now = time.time()
    shown = columns_of(resource)
    stored = BY_STORAGE[resource.key]
    rows = []
    for record in records:
        obj = record.object(stored)
        row: Object = {"cells": [column.cell(obj, now) for column in shown]}
        phase = (obj.get("status") or {}).get("phase") if resource.kind == "Pod" else None
        if phase in ("Succeeded", "Failed"):
            message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
            row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
        if include == "Metadata":
            row["object"] = {**_META, "metadata": obj["metadata"]}
        elif include == "Object":
            row["object"] = record.object(resource)
        rows.append(row)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": "",
            "priority": 1 if column.wide else 0,
        }
        for column in shown
    ]
    document = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if headed else None,
        "rows": rows,
    }
    return msgspec.json.encode(document)
