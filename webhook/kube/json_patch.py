"""JSON Patch (RFC 6902) on plain data."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

_MISSING = object()


class JsonPatchError(ValueError):
    """A patch that is malformed or does not fit the document; the text says why."""


def escape(key: str) -> str:
    """A key as one part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def apply_json_patch(document: Any, operations: Any) -> Any:
    """A patched copy of a JSON document; the document itself stays as it is. Raises JsonPatchError."""
    if not isinstance(operations, list):
        raise JsonPatchError("a JSON patch is a list of operations")
    document = msgspec.json.decode(msgspec.json.encode(document))
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise JsonPatchError(f"an operation needs op and path: {operation!r}")
        path = _pointer(operation["path"])
        match operation.get("op"):
            case "add":
                document = _add(document, path, copy.deepcopy(_value(operation)))
            case "remove":
                document = _remove(document, path)[0]
            case "replace":
                document = _add(_remove(document, path)[0], path, copy.deepcopy(_value(operation)))
            case "move":
                document, value = _remove(document, _source(operation))
                document = _add(document, path, value)
            case "copy":
                document = _add(document, path, copy.deepcopy(_get(document, _source(operation))))
            case "test":
                if not _equal(_get(document, path, default=None), _value(operation)):
                    raise JsonPatchError(f"testing value {operation['path']} failed")
            case other:
                raise JsonPatchError(f"unexpected op {other!r}")
    return document


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise JsonPatchError(f"{operation['op']} {operation['path']!r} needs a value")
    return operation["value"]


def _source(operation: dict[str, Any]) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise JsonPatchError(f"{operation['op']} {operation['path']!r} needs from")
    return _pointer(operation["from"])


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise JsonPatchError(f"{text!r} is no JSON pointer: it must begin with '/'")
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
        raise JsonPatchError(f"{part!r} is no index of a list")
    if int(part) >= size:
        raise JsonPatchError(f"index {part} is out of bounds: the list has {len(items)} items")
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
            raise JsonPatchError(f"{'/'.join(['', *path])} is missing")
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
        raise JsonPatchError(f"{'/'.join(['', *path])} is missing")
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        return document, parent.pop(_index(parent, last, size=len(parent)))
    if not isinstance(parent, dict) or last not in parent:
        raise JsonPatchError(f"{'/'.join(['', *path])} is missing")
    return document, parent.pop(last)
