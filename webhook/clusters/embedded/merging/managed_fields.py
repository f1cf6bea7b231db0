"""Who manages which field: `metadata.managedFields`, as writes keep it, and server-side apply (structured-merge-diff).

Of apply: a configuration, its manager's fields, conflicts with those of others.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from webhook.clusters.embedded.merging import fieldsets
from webhook.clusters.embedded.merging.fieldsets import Path, Paths
from webhook.clusters.embedded.object_types import defaulting, schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.kube.instants import rfc3339

Track = Callable[[Object | None, Object, WriteRequest], None]
"""Enter into the new object (second) who changed what since the old one (None at CREATE)."""

_SYSTEM = {
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
    *("name", "namespace", "resourceVersion", "selfLink", "uid"),
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
        paths = frozenset(fieldsets.decode(row.get("fieldsV1")))
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


def updated(old: Object | None, new: Object, change: WriteRequest) -> None:
    """Enter an update or create: what it changed is now its manager's and nobody else's, what is gone nobody's."""
    resource, subresource = change.resource, change.subresource
    rows = (read(new) or read(old)) if old is not None else {}
    if old is not None and not rows:
        new["metadata"].pop("managedFields", None)
        return
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


@cache
def blank(resource: ApiResource) -> Object:
    """An object of a resource before anyone wrote to it, which is not to be changed."""
    obj = {**_blank_struct(schemas.of_resource(resource)), "metadata": {}}
    if resource.kind == "Node":
        defaulting.complete(resource, obj)
    return obj


def _blank_struct(schema: schemas.Schema) -> Object:
    blank: Object = {}
    for name, field in schema.fields.items():
        if field.kind == "struct" and name in _VALUES:
            blank[name] = _blank_struct(field)
        elif field.kind == "list" and name in schema.required:
            blank[name] = None
    return blank


class Application:
    """One apply of a configuration by `change.manager`; `merge` and `track` are what `ObjectWriter` calls."""

    def __init__(self, change: WriteRequest, configuration: Object, *, force: bool) -> None:
        resource, subresource = change.resource, change.subresource if change.subresource == "status" else ""
        self._change = change
        self._configuration = configuration
        self._force = force
        self._schema = schemas.of_resource(resource)
        self._key = (change.manager, "Apply", resource.api_version, subresource)
        self._paths = frozenset(fieldsets.applied(self._schema, strip(resource, change.subresource, configuration))) - {
            ("f:metadata",),
            ("f:spec",),
            ("f:status",),
        }

    def merge(self, current: Object) -> Object:
        """The current object with the configuration merged in and what it no longer names removed; 409 on conflict."""
        merged: Object = _merge(self._schema, copy.deepcopy(current), self._configuration)
        named = self._configuration["metadata"].get("resourceVersion")
        merged["metadata"]["resourceVersion"] = named or current["metadata"]["resourceVersion"]
        merged["metadata"]["uid"] = self._configuration["metadata"].get("uid")
        others = read(current)
        mine, changed = others.pop(self._key, None), self._changed(current, merged)
        conflicts = [(key, path) for key, row in others.items() for path in sorted(row.paths & changed)]
        if conflicts and not self._force:
            raise _conflict(conflicts)
        if mine is not None:
            kept = self._paths.union(*(row.paths for row in others.values()))
            for path in sorted(mine.paths - self._paths, key=len):
                if not any(other[: len(path)] == path for other in kept):
                    _remove(self._schema, merged, path)
        return merged

    def track(self, old: Object | None, new: Object, change: WriteRequest) -> None:
        """Enter the manager's fields; with force they are no longer anybody else's."""
        del change
        rows = {} if old is None else read(old)
        mine = rows.pop(self._key, None)
        if old is not None:
            taken = self._changed(old, new) & self._paths
            rows = {key: ManagedFields(row.paths - taken, row.since) for key, row in rows.items()}
        if mine is None or mine.paths != self._paths:
            mine = ManagedFields(self._paths, rfc3339(time.time()))
        write(new, {**rows, self._key: mine})

    def _changed(self, old: Object, new: Object) -> set[Path]:
        before, after = (strip(self._change.resource, self._change.subresource, obj) for obj in (old, new))
        return fieldsets.differences(self._schema, before, after)[0]


def _conflict(conflicts: list[tuple[Key, Path]]) -> statuses.StatusError:
    """409 with each field and its manager."""
    causes: list[Object] = []
    told: dict[str, list[str]] = {}
    for (manager, operation, version, subresource), path in conflicts:
        who, field = f'"{manager}"', fieldsets.shown(path)
        if subresource:
            who += f' with subresource "{subresource}"'
        if operation == "Update":
            who += f" using {version}"
        causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field})
        told.setdefault(who, []).append(field)
    texts = [
        f"conflict with {who}: {fields[0]}" if len(fields) == 1 else "\n- ".join([f"conflicts with {who}:", *fields])
        for who, fields in told.items()
    ]
    count = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    text = f"Apply failed with {count}: " + "\n".join(texts)
    return statuses.failure(409, "Conflict", text, {"causes": causes})


def _remove(schema: Schema | None, value: Any, path: Path) -> None:
    """Take the value at a path out of an object, where it is."""
    items = fieldsets.items_of(schema, value) or {}
    if path[0] not in items:
        return
    below, part = items[path[0]]
    if len(path) > 1:
        _remove(below, part, path[1:])
    elif isinstance(value, dict):
        del value[path[0].removeprefix("f:")]
    else:
        value.remove(part)


def _merge(schema: Schema | None, current: Any, wanted: Any) -> Any:
    if fieldsets.items_of(schema, wanted) is None:
        return wanted
    if isinstance(wanted, dict):
        merged = current if isinstance(current, dict) else {}
        for key, value in wanted.items():
            merged[key] = _merge(fieldsets.child(schema, key), merged.get(key), value)
        return merged
    rows = dict(fieldsets.items_of(schema, current or []) or {})
    merged_rows = {element: value for element, (_below, value) in rows.items()}
    for element, (below, value) in (fieldsets.items_of(schema, wanted) or {}).items():
        merged_rows[element] = _merge(below, merged_rows.get(element), value)
    return list(merged_rows.values())
