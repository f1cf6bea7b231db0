"""Objects in the form that the `Accept` header says: whole, or as tables, the way `kubectl get` asks for them.

The columns of a table (`meta.k8s.io/v1` Table) have Kubernetes' names and ways of putting things
(`printers/internalversion`). A cell gets the object and the time in seconds since the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, ApiResource, Object, value_at
from webhook.clusters.embedded.storage.object_store import StoredObject
from webhook.kube.instants import InstantError, epoch

_SENDABLE = "application/json"
_WANTED = (_SENDABLE, "application/*", "*/*")
_META = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_TABLES = """
Deployment Name Ready Up-to-date Available Age
Event Last_Seen Type=type Reason=reason Object Message=message
Namespace Name Status=status.phase Age
Node Name Status Roles=:<none> Age Version=status.nodeInfo.kubeletVersion
Pod Name Ready Status Restarts Age IP=status.podIP:<none>* Node=spec.nodeName:<none>*
  Nominated_Node=status.nominatedNodeName:<none>* Readiness_Gates=:<none>*
PodDisruptionBudget Name Min_Available=spec.minAvailable:N/A Max_Unavailable=spec.maxUnavailable:N/A
  Allowed_Disruptions=status.disruptionsAllowed:0 Age
PriorityClass Name Value=value:0 Global-Default=globalDefault:false Age PreemptionPolicy=preemptionPolicy
"""
"""A kind and its columns: a path with what stands for an absent value, else one of the cells below; `*` is for wide."""
_TYPES = {"0": "integer", "false": "boolean"}


def human(seconds: float) -> str:
    """A duration in its largest unit of which there are two."""
    whole = max(int(seconds), 0)
    return next((f"{whole // size}{letter}" for size, letter in _UNITS if whole >= 2 * size), f"{whole}s")


def _age(instant: str | None, now: float) -> str:
    """The time since an RFC 3339 instant."""
    try:
        return human(now - epoch(instant or ""))
    except InstantError:
        return "<unknown>"


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _condition(obj: Object, kind: str) -> Object:
    return next((row for row in _status(obj).get("conditions") or () if row["type"] == kind), {})


def _node_status(obj: Object, _now: float) -> str:
    """Whether a node is ready and may be scheduled on."""
    status = {"True": "Ready", None: "Unknown"}.get(_condition(obj, "Ready").get("status"), "NotReady")
    return f"{status},SchedulingDisabled" if obj["spec"].get("unschedulable") else status


def pod_ready(obj: Object, _now: float) -> str:
    """Containers that run and are ready, of all."""
    rows = _status(obj).get("containerStatuses") or ()
    ready = [row for row in rows if row.get("ready") and (row.get("state") or {}).get("running") is not None]
    return f"{len(ready)}/{len(obj['spec'].get('containers') or ())}"


def pod_restarts(obj: Object, _now: float) -> str:
    """How often containers were restarted."""
    return str(sum(row.get("restartCount", 0) for row in _status(obj).get("containerStatuses") or ()))


def pod_status(obj: Object, _now: float) -> str:
    """That a pod leaves, else why its containers have ended, else the pod's own reason, else its phase."""
    status = _status(obj)
    phase = str(status.get("phase") or "")
    if obj["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    if _condition(obj, "PodScheduled").get("reason") == "SchedulingGated":
        return "SchedulingGated"
    ended = [(row.get("state") or {}).get("terminated") or {} for row in status.get("containerStatuses") or ()]
    reasons = [row["reason"] for row in ended if row.get("reason")]
    return str(next(iter(reasons), status.get("reason") or phase))


def _last_seen(obj: Object, now: float) -> str:
    """When an event happened last."""
    last = (obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp")
    first = obj.get("firstTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    return _age(last or first, now)


def _involved(obj: Object, _now: float) -> str:
    """What an event is about."""
    target = obj.get("involvedObject") or {}
    return f"{target.get('kind', '').lower()}/{target.get('name', '')}"


Cell = Callable[[Object, float], Any]
_CELLS: dict[str, Cell] = {
    "Name": lambda obj, _: obj["metadata"]["name"],
    "Age": lambda obj, now: _age(obj["metadata"].get("creationTimestamp"), now),
    "Deployment Available": lambda obj, _: _status(obj).get("availableReplicas", 0),
    "Deployment Ready": lambda obj, _: f"{_status(obj).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}",
    "Deployment Up-to-date": lambda obj, _: _status(obj).get("updatedReplicas", 0),
    "Event Last_Seen": _last_seen,
    "Event Object": _involved,
    "Node Status": _node_status,
    "Pod Ready": pod_ready,
    "Pod Restarts": pod_restarts,
    "Pod Status": pod_status,
}


def _at(path: str, default: str) -> Cell:
    """The value at a path, or a default if it is absent."""
    absent: Any = msgspec.json.decode(default) if default in _TYPES else default

    def cell(obj: Object, _now: float) -> Any:
        value = value_at(obj, path)
        return absent if value in (None, "") else str(value).strip() if default not in _TYPES else value

    return cell


def _columns(kind: str, words: Sequence[str]) -> list[tuple[Cell, Object]]:
    """The cells of a kind's columns, each with the column's definition."""
    columns = []
    for word in words:
        head, _, told = word.rstrip("*").partition("=")
        path, _, default = told.partition(":")
        cell = _at(path, default) if told else _CELLS.get(head) or _CELLS[f"{kind} {head}"]
        definition = {
            "name": head.replace("_", " "),
            "type": _TYPES.get(default, "string"),
            "format": "name" if head == "Name" else "",
            "description": "",
            "priority": int(word.endswith("*")),
        }
        columns.append((cell, definition))
    return columns


_ROWS = (line.split() for line in _TABLES.strip().replace("\n  ", " ").splitlines())
_COLUMNS = {kind: _columns(kind, words) for kind, *words in _ROWS}
_OTHERS = _columns("", ["Name", "Age"])


def is_table(header: str) -> bool:
    """Whether the first media range of an Accept header that can be served is a table. Raises StatusError (406)."""
    for media_range in (header or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media_range.split(";"))
        if kind in _WANTED:
            return "as=Table" in parameters
    raise statuses.failure(406, "NotAcceptable", f"only the following media types are accepted: {_SENDABLE}")


def one(resource: ApiResource, as_table: bool, record: StoredObject) -> bytes:
    """One object."""
    if as_table:
        return table(resource, [record], {"resourceVersion": str(record.revision)})
    return record.json(resource)


def many(resource: ApiResource, as_table: bool, records: Sequence[StoredObject], metadata: Object) -> bytes:
    """A page of a list, with its ListMeta."""
    if as_table:
        return table(resource, records, metadata)
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    items = b",".join(record.item(resource) for record in records)
    return b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], items)


def table(resource: ApiResource, records: Sequence[StoredObject], metadata: Object) -> bytes:
    """Records as a Table, each with its metadata. Of other kinds than these, name and age are shown."""
    now, stored = time.time(), BY_PLURAL[resource.plural]
    shown = _COLUMNS.get(resource.kind, _OTHERS)
    rows = []
    for record in records:
        obj = record.object(stored)
        cells = [cell(obj, now) for cell, _ in shown]
        rows.append({"cells": cells, "object": {**_META, "metadata": obj["metadata"]}})
    document = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [definition for _, definition in shown],
        "rows": rows,
    }
    return msgspec.json.encode(document)
