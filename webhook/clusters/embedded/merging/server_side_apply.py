"""Server-side apply: a configuration, its manager's fields, conflicts with those of others (structured-merge-diff)."""

from __future__ import annotations

import copy
import time
from typing import Any

from webhook.clusters.embedded.merging import fieldsets, managed_fields
from webhook.clusters.embedded.merging.fieldsets import Path
from webhook.clusters.embedded.merging.managed_fields import Key, ManagedFields
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.kube.instants import rfc3339


class Application:
    """One apply of a configuration by `change.manager`; `merge` and `track` are what `ObjectWriter` calls."""

    def __init__(self, change: WriteRequest, configuration: Object, *, force: bool) -> None:
        resource, subresource = change.resource, change.subresource if change.subresource == "status" else ""
        self._change = change
        self._configuration = configuration
        self._force = force
        self._schema = schemas.of_resource(resource)
        self._key = (change.manager, "Apply", resource.api_version, subresource)
        self._paths = frozenset(
            fieldsets.applied(self._schema, managed_fields.strip(resource, change.subresource, configuration))
        ) - {("f:metadata",), ("f:spec",), ("f:status",)}

    def merge(self, current: Object) -> Object:
        """The current object with the configuration merged in and what it no longer names removed; 409 on conflict."""
        merged: Object = _merge(self._schema, copy.deepcopy(current), self._configuration)
        named = self._configuration["metadata"].get("resourceVersion")
        merged["metadata"]["resourceVersion"] = named or current["metadata"]["resourceVersion"]
        merged["metadata"]["uid"] = self._configuration["metadata"].get("uid")
        others = managed_fields.read(current)
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

    def track(self, resource: ApiResource, old: Object | None, new: Object, change: WriteRequest) -> None:
        """Enter the manager's fields; with force they are no longer anybody else's."""
        del resource, change
        rows = {} if old is None else managed_fields.read(old)
        mine = rows.pop(self._key, None)
        if old is not None:
            taken = self._changed(old, new) & self._paths
            rows = {key: ManagedFields(row.paths - taken, row.since) for key, row in rows.items()}
        if mine is None or mine.paths != self._paths:
            mine = ManagedFields(self._paths, rfc3339(time.time()))
        managed_fields.write(new, {**rows, self._key: mine})

    def _changed(self, old: Object, new: Object) -> set[Path]:
        before, after = (
            managed_fields.strip(self._change.resource, self._change.subresource, obj) for obj in (old, new)
        )
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
