"""The `Status` bodies an API server refuses with, and the exception that carries one."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object


class StatusError(Exception):
    """A refusal: `status` is the whole Status object."""

    def __init__(self, status: Object) -> None:
        super().__init__(status.get("message", ""))
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP status."""
        return int(self.status["code"])


class Cause(NamedTuple):
    """One reason why an object is invalid: the field's path, `FieldValue…` and the text after the path."""

    field: str
    reason: str
    message: str

    @classmethod
    def invalid(cls, field: str, value: Any, why: str) -> Cause:
        """A value that is no good."""
        shown = json.dumps(value, separators=(",", ":"))
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")

    @classmethod
    def forbidden(cls, field: str, why: str) -> Cause:
        """A value that may not be there."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")

    @classmethod
    def required(cls, field: str, why: str = "") -> Cause:
        """A value that is missing."""
        return cls(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def failure(code: int, reason: str, message: str, details: Object | None = None, **metadata: Any) -> StatusError:
    """Any refusal."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure"}
    status["message"] = message
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = details
    status["code"] = code
    return StatusError(status)


def success(code: int = 200, **details: Any) -> Object:
    """The Status of something that worked and has no object to show."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code == 201:
        status["code"] = code
    return status


def _about(name: str, group: str, kind: str, **more: Any) -> Object:
    """The details of a refusal, without what is empty."""
    return {key: value for key, value in {"name": name, "group": group, "kind": kind, **more}.items() if value}


def bad_request(message: str) -> StatusError:
    """400."""
    return failure(400, "BadRequest", message)


def another_name(given: str, name: str) -> StatusError:
    """400 for an object that is not called as its URL."""
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403 by admission or authorization."""
    subject = f"{plural}.{group}" if group else plural
    if name:
        subject += f' "{name}"'
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", _about(name, group, plural))


def not_found(resource: ApiResource, name: str) -> StatusError:
    """404 for an object."""
    details = _about(name, resource.group, resource.plural)
    return failure(404, "NotFound", f'{resource.qualified} "{name}" not found', details)


def path_not_found() -> StatusError:
    """404 for a path that leads nowhere."""
    return failure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    """405."""
    return failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(types: str) -> StatusError:
    """415."""
    text = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return failure(415, "UnsupportedMediaType", text)


def already_exists(resource: ApiResource, name: str) -> StatusError:
    """409 at create."""
    details = _about(name, resource.group, resource.plural)
    return failure(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details)


def conflict(resource: ApiResource, name: str, why: str, subresource: str = "") -> StatusError:
    """409: the operation does not fit the object's state."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    qualified = f"{plural}.{resource.group}" if resource.group else plural
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return failure(409, "Conflict", message, _about(name, resource.group, plural))


def another_uid(resource: ApiResource, metadata: Object, wanted: str) -> StatusError:
    """409: the object is not the one that the caller knows."""
    key = "/".join(("/registry", resource.plural, metadata.get("namespace", ""), metadata["name"]))
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
    text = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    return conflict(resource, metadata["name"], text)


def modified(resource: ApiResource, name: str) -> StatusError:
    """409: somebody else was faster."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(group: str, kind: str, name: str, *causes: Cause) -> StatusError:
    """422 for an object, with every cause."""
    texts = [f"{row.field}: {row.message}" for row in causes]
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    told = [row._asdict() for row in causes]
    subject = f"{kind}.{group}" if group else kind
    message = f'{subject} "{name}" is invalid: {summary}'
    return failure(422, "Invalid", message, _about(name, group, kind, causes=told))


def internal_error(message: str) -> StatusError:
    """500."""
    text = f"Internal error occurred: {message}"
    return failure(500, "InternalError", text, {"causes": [{"message": message}]})
