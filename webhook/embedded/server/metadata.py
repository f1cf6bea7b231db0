"""What happens to `metadata` on the way into the store (`registry/rest/create.go`, `update.go`)."""

from __future__ import annotations

import random
import time
import uuid

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.kube.instants import rfc3339

__all__ = ["begin", "check_update", "clean_new", "keep", "place"]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_BASE = 58
_SET_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_STATUS_MAY_LABEL = ("Pod", "Node", "Namespace", "PersistentVolumeClaim")
"""Kinds whose status sub-resource also writes labels and annotations."""


def place(resource: ApiResource, obj: Object, namespace: str) -> None:
    """Make the object's namespace that of the request. Raises StatusError (400) where they disagree."""
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise statuses.bad_request("metadata must be an object")
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif metadata.get("namespace", namespace) not in (namespace, "", None):
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        metadata["namespace"] = namespace


def clean_new(obj: Object) -> None:
    """Drop from a new object what only the server sets. Raises StatusError (400) for a resourceVersion."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise statuses.bad_request("resourceVersion should not be set on objects to be created")
    for key in ("resourceVersion", "selfLink", "generation", *_SET_BY_SERVER):
        metadata.pop(key, None)


def begin(resource: ApiResource, obj: Object) -> None:
    """Name a new object and set what it is born with."""
    metadata = obj["metadata"]
    if metadata.get("generateName") and not metadata.get("name"):
        letters = random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH)  # noqa: S311 - a name, not a secret
        metadata["name"] = metadata["generateName"][:_LONGEST_BASE] + "".join(letters)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = rfc3339(time.time())
    if resource.generation:
        metadata["generation"] = 1


def check_update(resource: ApiResource, old: Object, new: Object) -> None:
    """Refuse an update of another object, of another version or without the version it needs."""
    metadata, current = new.setdefault("metadata", {}), old["metadata"]
    name = current["name"]
    if metadata.setdefault("name", name) != name:
        raise statuses.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    place(resource, new, current.get("namespace", ""))
    if metadata.get("uid") and metadata["uid"] != current["uid"]:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {current['uid']}"
        raise statuses.conflict(resource, name, why)
    version = metadata.get("resourceVersion")
    if not version and not resource.unconditional:
        text = "Invalid value: 0: must be specified for an update"
        raise statuses.invalid(resource, name, [statuses.Cause("metadata.resourceVersion", "FieldValueInvalid", text)])
    if version and version != current["resourceVersion"]:
        raise statuses.modified(resource, name)


def keep(resource: ApiResource, subresource: str, old: Object, new: Object) -> None:
    """Carry over what this update may not change, and count the generation."""
    metadata, current = new["metadata"], old["metadata"]
    for key in ("name", "namespace", "resourceVersion", "generation", *_SET_BY_SERVER):
        _carry(metadata, current, key)
    metadata.pop("selfLink", None)
    for key in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    if subresource == "status":
        _keep_all_but_status(resource, old, new)
    elif "status" in resource.sub and not subresource:
        _carry(new, old, "status")
    if resource.kind == "Namespace" and subresource != "finalize":
        _carry(new.setdefault("spec", {}), old.get("spec") or {}, "finalizers")
    if resource.generation and subresource not in ("status", "binding") and _content(old) != _content(new):
        metadata["generation"] = current.get("generation", 0) + 1


def _keep_all_but_status(resource: ApiResource, old: Object, new: Object) -> None:
    for key in [key for key in new if key not in ("metadata", "status")]:
        if key not in old:
            del new[key]
    for key, value in old.items():
        if key not in ("metadata", "status"):
            new[key] = value
    _carry(new["metadata"], old["metadata"], "ownerReferences")
    if resource.kind not in _STATUS_MAY_LABEL:
        _carry(new["metadata"], old["metadata"], "labels")


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status", "kind", "apiVersion")}


def _carry(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)
