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
from webhook.clusters.embedded.storage.object_store import StoredObject

_META = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


class Column(NamedTuple):
    """One column: `cell` gets the object and the time in seconds since the epoch; `wide` is for `-o wide`."""

    name: str
    cell: Callable[[Object, float], Any]
    wide: bool = False
    type: str = "string"


_NAME = Column("Name", cells.at("metadata.name"))
_AGE = Column("Age", lambda obj, now: cells.age(obj["metadata"].get("creationTimestamp"), now))


def _number(name: str, path: str) -> Column:
    return Column(name, cells.at(path, 0), type="integer")


_COLUMNS: dict[str, list[Column]] = {
    "Deployment": [
        _NAME,
        Column("Ready", cells.ready_of_wanted),
        _number("Up-to-date", "status.updatedReplicas"),
        _number("Available", "status.availableReplicas"),
        _AGE,
    ],
    "Event": [
        Column("Last Seen", cells.last_seen),
        Column("Type", cells.at("type")),
        Column("Reason", cells.at("reason")),
        Column("Object", cells.involved),
        Column("Message", cells.message),
    ],
    "Namespace": [_NAME, Column("Status", cells.at("status.phase")), _AGE],
    "Node": [
        _NAME,
        Column("Status", cells.node_status),
        Column("Roles", lambda _obj, _now: cells.NONE),
        _AGE,
        Column("Version", cells.at("status.nodeInfo.kubeletVersion")),
    ],
    "Pod": [
        _NAME,
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        _AGE,
        Column("IP", cells.text("status.podIP"), wide=True),
        Column("Node", cells.text("spec.nodeName"), wide=True),
        Column("Nominated Node", cells.text("status.nominatedNodeName"), wide=True),
        Column("Readiness Gates", lambda _obj, _now: cells.NONE, wide=True),
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
}


def table(
    resource: ApiResource,
    records: Sequence[StoredObject],
    metadata: Object,
    include: str = "Metadata",
) -> bytes:
    """Records as a Table; `include` is None, Metadata or Object. Of other kinds than these, name and age are shown."""
    now = time.time()
    shown = _COLUMNS.get(resource.kind, [_NAME, _AGE])
    stored = BY_STORAGE[resource.key]
    rows = []
    for record in records:
        obj = record.object(stored)
        row: Object = {"cells": [column.cell(obj, now) for column in shown]}
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
        "columnDefinitions": definitions,
        "rows": rows,
    }
    return msgspec.json.encode(document)
