"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396) on plain data."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from webhook.embedded.protocol.statuses import StatusError, failure

__all__ = ["PatchError", "json_patch", "merge_patch"]

_MISSING = object()


class PatchError(StatusError):
    """A patch that is malformed or does not fit the document: the Status is the API server's, the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(failure(422, "Invalid", _REFUSAL, {}).status)
        self.why = why

    def __str__(self) -> str:
        return self.why


_REFUSAL = "the server rejected our request due to an error in our request"


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge: objects field by field, null removes, anything else replaces. The target is changed in place."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def json_patch(document: Any, operations: Any) -> Any:
    """A patched copy of a document; raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    document = msgspec.json.decode(msgspec.json.encode(document))
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError(f"an operation needs op and path: {operation!r}")
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    """One operation of a JSON patch (RFC 6902); the document afterwards."""
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(document, path, copy.deepcopy(_value(operation)))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            return _add(_remove(document, path)[0], path, copy.deepcopy(_value(operation)))
        case "move":
            document, value = _remove(document, _source(operation))
            return _add(document, path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _source(operation))))
        case "test":
            if not _equal(_get(document, path, default=None), _value(operation)):
                raise PatchError(f"testing value {operation['path']} failed")
            return document
    raise PatchError(f"unexpected op {operation.get('op')!r}")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"{operation['op']} {operation['path']!r} needs a value")
    return operation["value"]


def _source(operation: dict[str, Any]) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise PatchError(f"{operation['op']} {operation['path']!r} needs from")
    return _pointer(operation["from"])


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise PatchError(f"{text!r} is no JSON pointer: it must begin with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _equal(left: Any, right: Any) -> bool:
    """JSON equality, in which `true` is not 1."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _index(items: list[Any], part: str, *, size: int) -> int:
    if not part.isdecimal() or (part.startswith("0") and part != "0"):
        raise PatchError(f"{part!r} is no index of a list")
    if int(part) >= size:
        raise PatchError(f"index {part} is out of bounds: the list has {len(items)} items")
    return int(part)


def _get(document: Any, path: list[str], default: Any = _MISSING) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part, size=len(document))]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif default is not _MISSING:
            return default
        else:
            raise PatchError(f"{'/'.join(['', *path])} is missing")
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, size=len(parent) + 1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError(f"{'/'.join(['', *path])} is missing")
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        return document, parent.pop(_index(parent, last, size=len(parent)))
    if not isinstance(parent, dict) or last not in parent:
        raise PatchError(f"{'/'.join(['', *path])} is missing")
    return document, parent.pop(last)
