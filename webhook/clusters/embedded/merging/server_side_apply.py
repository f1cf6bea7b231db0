"""Server-side apply: a configuration, its manager's fields, conflicts with those of others (structured-merge-diff)."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.clusters.embedded.merging import fieldsets, managed_fields
from webhook.clusters.embedded.merging.fieldsets import Path, Paths
from webhook.clusters.embedded.merging.managed_fields import ManagedFieldsEntry
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest


class Application:
    """One apply of a configuration by `change.manager`; `merge` and `track` are what `ObjectWriter` calls."""

    def __init__(self, change: WriteRequest, configuration: Object, *, force: bool) -> None:
        resource = change.resource
        if "managedFields" in configuration["metadata"]:
            raise statuses.bad_request("metadata.managedFields must be nil")
        self._change = change
        self._configuration = configuration
        self._force = force
        self._schema = schemas.of_resource(resource)
        self._paths = frozenset(
            fieldsets.applied(self._schema, managed_fields.strip(resource, change.subresource, configuration))
        ) - {("f:metadata",), ("f:spec",), ("f:status",)}

    def merge(self, current: Object) -> Object:
        """The current object with the configuration merged in and what it no longer names removed; 409 on conflict."""
        copy = msgspec.json.decode(msgspec.json.encode(current))
        merged: Object = _merge(self._schema, copy, self._configuration)
        named = self._configuration["metadata"].get("resourceVersion")
        merged["metadata"]["resourceVersion"] = named or current["metadata"]["resourceVersion"]
        merged["metadata"]["uid"] = self._configuration["metadata"].get("uid")
        entries = managed_fields.read(current)
        mine, changed = self._mine(entries), self._changed(current, merged)
        conflicts = [(entry, path) for entry in entries if entry is not mine for path in sorted(entry.paths & changed)]
        if conflicts and not self._force:
            self._refuse(conflicts)
        if mine is not None:
            others: Paths = frozenset().union(*(entry.paths for entry in entries if entry is not mine), self._paths)
            for path in sorted(mine.paths - self._paths, key=len):
                if any(kept[: len(path)] == path for kept in others):
                    continue
                schema: Schema | None = self._schema
                parent: Any = merged
                for element in path[:-1]:
                    schema, parent = (fieldsets.items_of(schema, parent) or {}).get(element, (None, None))
                items = fieldsets.items_of(schema, parent) or {}
                if path[-1] not in items:
                    continue
                if isinstance(parent, dict):
                    del parent[path[-1].removeprefix("f:")]
                else:
                    parent.remove(items[path[-1]][1])
        return merged

    def track(self, resource: ApiResource, old: Object | None, new: Object, change: WriteRequest) -> None:
        """Enter the manager's fields; with force they are no longer anybody else's."""
        del change
        entries = [] if old is None else managed_fields.read(old)
        mine = self._mine(entries)
        if mine is None or mine.paths != self._paths:
            mine = managed_fields.entry_of(self._key(resource), self._paths)
        others = [entry for entry in entries if entry.key != mine.key]
        if old is not None:
            taken = self._changed(old, new) & self._paths
            others = [managed_fields.entry_of(entry.key, entry.paths - taken, entry.time) for entry in others]
        managed_fields.write(new, [*others, mine])

    def _key(self, resource: ApiResource) -> managed_fields.Key:
        subresource = self._change.subresource if self._change.subresource == "status" else ""
        return self._change.manager, "Apply", resource.api_version, subresource

    def _mine(self, entries: list[ManagedFieldsEntry]) -> ManagedFieldsEntry | None:
        key = self._key(self._change.resource)
        return next((entry for entry in entries if entry.key == key), None)

    def _changed(self, old: Object, new: Object) -> set[Path]:
        resource, subresource = self._change.resource, self._change.subresource
        return fieldsets.differences(
            self._schema,
            managed_fields.strip(resource, subresource, old),
            managed_fields.strip(resource, subresource, new),
        )[0]

    def _refuse(self, conflicts: list[tuple[ManagedFieldsEntry, Path]]) -> None:
        """Raise StatusError (409) with each field and its manager."""
        causes = []
        for entry, path in conflicts:
            subresource = f' with subresource "{entry.subresource}"' if entry.subresource else ""
            text = f'conflict with "{entry.manager}"{subresource} using {entry.api_version}'
            causes.append({"reason": "FieldManagerConflict", "message": text, "field": fieldsets.shown(path)})
        count = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
        told = "\n".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        message = f"Apply failed with {count}: {told}"
        raise statuses.failure(409, "Conflict", message, {"causes": causes})


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
