"""Who manages which field: `metadata.managedFields`, as writes and server-side apply keep it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property

import msgspec

from webhook.clusters.embedded.merging import fieldsets
from webhook.clusters.embedded.merging.fieldsets import Path, Paths
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


class ManagedFieldsEntry(msgspec.Struct, rename="camel", omit_defaults=True, dict=True):
    """One row of managedFields."""

    manager: str
    operation: str
    api_version: str
    time: str
    fields_type: str
    fields_v1: Object
    subresource: str = ""

    @cached_property
    def paths(self) -> Paths:
        """The fields as a set."""
        return fieldsets.decode(self.fields_v1)

    @property
    def key(self) -> Key:
        """What makes it another row."""
        return self.manager, self.operation, self.api_version, self.subresource


def entry_of(key: Key, paths: Iterable[Path], at: str = "") -> ManagedFieldsEntry:
    """A row for these fields, from now or since then."""
    manager, operation, version, subresource = key
    instant, fields = at or rfc3339(time.time()), fieldsets.encode(paths)
    return ManagedFieldsEntry(manager, operation, version, instant, "FieldsV1", fields, subresource)


def read(obj: Object) -> list[ManagedFieldsEntry]:
    """The rows of an object; rows that are malformed are left out."""
    entries = []
    for row in obj["metadata"].get("managedFields") or ():
        with suppress(msgspec.ValidationError):
            entries.append(msgspec.convert(row, ManagedFieldsEntry))
    return entries


def write(obj: Object, entries: list[ManagedFieldsEntry]) -> None:
    """Set the rows of an object: applied ones first, then by time, as Kubernetes sorts them."""
    ordered = sorted(entries, key=lambda entry: (entry.operation != "Apply", entry.time, *entry.key))
    obj["metadata"]["managedFields"] = [msgspec.to_builtins(entry) for entry in ordered if entry.fields_v1]
    if not obj["metadata"]["managedFields"]:
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
    entries = (read(new) or read(old)) if old is not None else []
    if old is not None and not entries:
        new["metadata"].pop("managedFields", None)
        return
    subresource = change.subresource
    before, after = strip(resource, subresource, old or blank(resource)), strip(resource, subresource, new)
    changed, removed = fieldsets.differences(schemas.of_resource(resource), before, after)
    key = (change.manager, "Update", resource.api_version, subresource if subresource in ("status", "scale") else "")
    mine = next((entry for entry in entries if entry.key == key), entry_of(key, ()))
    others = [_without(entry, changed, removed) for entry in entries if entry is not mine]
    paths = _without(mine, set(), removed).paths | changed
    if paths != mine.paths or changed:
        mine = entry_of(key, paths)
    write(new, [*others, mine])


def _without(entry: ManagedFieldsEntry, changed: set[Path], removed: set[Path]) -> ManagedFieldsEntry:
    left = {
        path
        for path in entry.paths - changed
        if not any(path[:length] in removed for length in range(1, len(path) + 1))
    }
    return entry if left == entry.paths else entry_of(entry.key, left, entry.time)


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
