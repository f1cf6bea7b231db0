"""Who manages which field: `metadata.managedFields`, as writes and server-side apply keep it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from webhook.clusters.embedded.merging import fieldsets
from webhook.clusters.embedded.merging.fieldsets import Paths
from webhook.clusters.embedded.object_types import defaulting, schemas
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.kube.instants import rfc3339

Track = Callable[[ApiResource, Object | None, Object, WriteRequest], None]
"""Enter into the new object (third) who changed what since the old one (None at CREATE)."""

_SYSTEM = {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"} | {
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
}
_VALUES = ("template", "strategy", "updateStrategy", "jobTemplate", "metadata", "spec", "status")
"""Fields that are never absent in Kubernetes' own types, and so are not what a manager adds."""


Key = tuple[str, str, str, str]
"""Manager, operation, version and sub-resource: what makes it another row."""


class ManagedFields(NamedTuple):
    """The fields of one row, and since when they are its."""

    paths: Paths
    since: str


Rows = dict[Key, ManagedFields]


def read(obj: Object) -> Rows:
    """The rows of an object."""
    rows = {}
    for row in obj["metadata"].get("managedFields") or ():
        manager, operation, version = (row.get(name, "") for name in ("manager", "operation", "apiVersion"))
        paths = fieldsets.decode(row.get("fieldsV1") or {})
        rows[manager, operation, version, row.get("subresource", "")] = ManagedFields(paths, row.get("time", ""))
    return rows


def write(obj: Object, rows: Rows) -> None:
    """Set the rows of an object: applied ones first, then by time, as Kubernetes sorts them."""
    told = []
    for key, row in sorted(rows.items(), key=lambda item: (item[0][1] != "Apply", item[1].since, *item[0])):
        manager, operation, version, subresource = key
        entry = {"manager": manager, "operation": operation, "apiVersion": version, "time": row.since}
        fields = {"fieldsType": "FieldsV1", "fieldsV1": fieldsets.encode(row.paths)}
        if row.paths:
            told.append({**entry, **fields, **({"subresource": subresource} if subresource else {})})
    obj["metadata"]["managedFields"] = told
    if not told:
        del obj["metadata"]["managedFields"]


def strip(resource: ApiResource, subresource: str, obj: Object) -> Object:
    """The part of an object that a write to a sub-resource can manage."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SYSTEM}
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion", "metadata")}
    if subresource == "status":
        rest = {"status": rest.get("status") or {}}
    elif "status" in resource.sub and resource.kind != "Node":
        rest.pop("status", None)
    return {"metadata": metadata, **rest}


def updated(resource: ApiResource, old: Object | None, new: Object, change: WriteRequest) -> None:
    """Enter an update or create: what it changed is now its manager's and nobody else's, what is gone nobody's."""
    rows = (read(new) or read(old)) if old is not None else {}
    if old is not None and not rows:
        new["metadata"].pop("managedFields", None)
        return
    subresource = change.subresource
    before, after = strip(resource, subresource, old or blank(resource)), strip(resource, subresource, new)
    changed, removed = fieldsets.differences(schemas.of_resource(resource), before, after)
    key = (change.manager, "Update", resource.api_version, subresource if subresource in ("status", "scale") else "")
    for owner, row in rows.items():
        paths = row.paths if owner == key else row.paths - changed
        gone = {path for path in paths for length in range(1, len(path) + 1) if path[:length] in removed}
        rows[owner] = ManagedFields(paths - gone, row.since)
    if changed:
        mine = rows[key].paths if key in rows else frozenset()
        rows[key] = ManagedFields(mine | changed, rfc3339(time.time()))
    write(new, rows)


def blank(resource: ApiResource) -> Object:
    """An object of a resource before anyone wrote to it."""
    obj = _BLANKS.get(resource.qualified)
    if obj is None:
        obj = _blank_struct(schemas.of_resource(resource))
        obj["metadata"] = {}
        if resource.kind == "Node":
            defaulting.complete(resource, obj)
        _BLANKS[resource.qualified] = obj
    return obj


_BLANKS: dict[str, Object] = {}


def _blank_struct(schema: schemas.Schema) -> Object:
    blank: Object = {}
    for name, field in schema.fields.items():
        if field.kind == "struct" and name in _VALUES:
            blank[name] = _blank_struct(field)
        elif field.kind == "list" and name in schema.required:
            blank[name] = None
    return blank
