"""The `Status` bodies an API server refuses with, and the exception that carries one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object


class StatusError(Exception):
    """A refusal: `status` is the whole Status object, `retry_after` seconds for the header of that name."""

    def __init__(self, status: Object, retry_after: int | None = None) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.retry_after = retry_after

    @property
    def code(self) -> int:
        """The HTTP status."""
        return int(self.status["code"])


class Cause(NamedTuple):
    """One reason why an object is invalid: the field's path, `FieldValue…` and the text after the path."""

    field: str
    reason: str
    message: str


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


def _named(resource: ApiResource, name: str, subresource: str = "") -> Object:
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return details


def bad_request(message: str) -> StatusError:
    """400."""
    return failure(400, "BadRequest", message)


def forbidden(resource: ApiResource, name: str, why: str) -> StatusError:
    """403 by admission or authorization."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", _named(resource, name))


def not_found(resource: ApiResource, name: str) -> StatusError:
    """404 for an object."""
    return failure(404, "NotFound", f'{resource.qualified} "{name}" not found', _named(resource, name))


def path_not_found() -> StatusError:
    """404 for a path that leads nowhere."""
    return failure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    """405."""
    return failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(types: str) -> StatusError:
    """415."""
    return failure(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {types}",
    )


def already_exists(resource: ApiResource, name: str) -> StatusError:
    """409 at create."""
    return failure(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _named(resource, name))


def conflict(resource: ApiResource, name: str, why: str, subresource: str = "") -> StatusError:
    """409: the operation does not fit the object's state."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    qualified = f"{plural}.{resource.group}" if resource.group else plural
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return failure(409, "Conflict", message, _named(resource, name, subresource))


def modified(resource: ApiResource, name: str) -> StatusError:
    """409: somebody else was faster."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: ApiResource, name: str, causes: Iterable[Cause], kind: str = "") -> StatusError:
    """422 with every cause."""
    rows = list(causes)
    texts = [f"{row.field}: {row.message}" for row in rows]
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = kind or resource.kind
    qualified = f"{kind}.{resource.group}" if resource.group else kind
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind
    details["causes"] = [{"reason": row.reason, "message": row.message, "field": row.field} for row in rows]
    return failure(422, "Invalid", f'{qualified} "{name}" is invalid: {summary}', details)


def too_many_requests(message: str, causes: Iterable[Object] = (), retry_after: int | None = None) -> StatusError:
    """429; `retry_after` in seconds."""
    details: Object = {}
    rows = list(causes)
    if rows:
        details["causes"] = rows
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    error = failure(429, "TooManyRequests", message, details)
    error.retry_after = retry_after
    return error


def internal_error(message: str) -> StatusError:
    """500."""
    text = f"Internal error occurred: {message}"
    return failure(500, "InternalError", text, {"causes": [{"message": message}]})
