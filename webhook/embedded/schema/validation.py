"""Judging objects: names, required fields and what may not change, in Kubernetes' words."""

from __future__ import annotations

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import BY_STORAGE, ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.embedded.protocol.statuses import Cause
from webhook.embedded.schema import fields, podrules, schemas
from webhook.embedded.schema.names import generate_name_cause, name_cause
from webhook.embedded.schema.objectrules import changed_class, changed_object, new_class, new_object

__all__ = ["check_changed", "check_new"]


def check_new(resource: ApiResource, obj: Object) -> None:
    """Raise StatusError (422) with everything that is wrong with a new object."""
    causes = [*_name(resource, obj), *fields.missing(schemas.of_resource(resource), obj)]
    causes += new_object(resource, obj)
    match resource.kind:
        case "Pod":
            causes += podrules.new_pod(obj)
        case "PriorityClass":
            causes += new_class(obj)
    _refuse(resource, obj, causes)


def check_changed(resource: ApiResource, subresource: str, old: Object, new: Object) -> None:
    """Raise StatusError (422) with everything an update may not do."""
    causes = _finalizers(old, new)
    if subresource != "status":  # it leaves alone everything that can be required
        causes += fields.missing(schemas.of_resource(resource), new)
    causes += changed_object(resource, old, new)
    match resource.kind, subresource:
        case "Pod", "":
            causes += podrules.changed_pod(old, new)
        case "PriorityClass", _:
            causes += changed_class(old, new)
    _refuse(resource, new, causes)


def _refuse(resource: ApiResource, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise statuses.invalid(BY_STORAGE[resource.key], obj["metadata"].get("name", ""), causes)


def _name(resource: ApiResource, obj: Object) -> list[Cause]:
    metadata = obj["metadata"]
    causes = [cause for cause in [generate_name_cause(resource, metadata.get("generateName"))] if cause]
    if not metadata.get("name"):
        text = "Required value: name or generateName is required"
        return [Cause("metadata.name", "FieldValueRequired", text)]
    cause = name_cause(resource, metadata["name"])
    return [*causes, cause] if cause else causes


def _finalizers(old: Object, new: Object) -> list[Cause]:
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = set(old["metadata"].get("finalizers") or ())
    added = [name for name in new["metadata"].get("finalizers") or () if name not in before]
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    text = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        f"found new finalizers []string{{{shown}}}"
    )
    return [Cause("metadata.finalizers", "FieldValueForbidden", text)]
