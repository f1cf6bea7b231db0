"""The kinds of patches on plain data: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.

In a strategic merge patch (`apimachinery/pkg/util/strategicpatch`) lists merge by key, and directives start with `$`.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from webhook.embedded.merging.fieldsets import child
from webhook.embedded.protocol.api_resources import Object
from webhook.embedded.protocol.statuses import StatusError, bad_request, failure
from webhook.embedded.schema.schemas import Schema

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge"]

_REFUSAL = "the server rejected our request due to an error in our request"

_MISSING = object()


class PatchError(StatusError):
    """A patch that is malformed or does not fit the document: the Status is the API server's, the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(failure(422, "Invalid", _REFUSAL, {}).status)
        self.why = why

    def __str__(self) -> str:
        return self.why


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
                    raise PatchError(f"testing value {operation['path']} failed")
            case other:
                raise PatchError(f"unexpected op {other!r}")
    return document


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


_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_merge(schema: Schema | None, target: Object, patch: Object) -> Object:
    """Merge a patch into an object in place. Raises StatusError (400) for a directive that is not understood."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type: {directive!r} found in {_DIRECTIVE}")
    if _RETAIN in patch:
        for key in [key for key in target if key not in patch[_RETAIN]]:
            del target[key]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        field, current = child(schema, key), target.get(key)
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = strategic_merge(field, current if isinstance(current, dict) else {}, value)
        elif isinstance(value, list) and field is not None and field.kind == "list":
            target[key] = _merge_list(field, current or [], value, patch.get(_ORDER + key))
        else:
            target[key] = value
    _apply_list_directives(schema, target, patch)
    return target


def _apply_list_directives(schema: Schema | None, target: Object, patch: Object) -> None:
    for directive, values in patch.items():
        if directive.startswith(_DELETE):
            key = directive.removeprefix(_DELETE)
            if key in target:
                target[key] = [value for value in target[key] if value not in values]
        elif directive.startswith(_ORDER):
            key = directive.removeprefix(_ORDER)
            field = child(schema, key)
            if key not in patch and key in target and field is not None and field.lists.merge_key:
                target[key] = _ordered(field.lists.merge_key, target[key], target[key], values)


def _merge_list(field: Schema, current: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    """Merge two lists by the keys of their elements."""
    key = field.lists.merge_key
    if field.lists.is_set:
        return [*current, *(value for value in patch if value not in current)]
    if not key or not all(isinstance(item, dict) for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged = list(current)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        found = next((index for index, mine in enumerate(merged) if mine.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            merged = [mine for mine in merged if mine.get(key) != item[key]]
        elif found is None:
            merged.append(strategic_merge(field.item, {}, item))
        else:
            merged[found] = strategic_merge(field.item, merged[found], item)
    return _ordered(key, current, merged, order if order is not None else patch)


def _ordered(key: str, before: list[Any], merged: list[Any], order: list[Any]) -> list[Any]:
    """Items of the patch in its order, the server's own in theirs; where both were known before, as it was."""
    wanted = [item[key] for item in order if isinstance(item, dict) and key in item]
    was = {item[key]: index for index, item in enumerate(before) if key in item}
    by_key = {item[key]: item for item in merged}
    patched = [by_key[value] for value in wanted if value in by_key]
    own = [item for item in merged if item[key] not in wanted]
    result: list[Any] = []
    while patched and own:
        left, right = was.get(own[0][key]), was.get(patched[0][key])
        first = own if left is not None and right is not None and left < right else patched
        result.append(first.pop(0))
    return [*result, *patched, *own]
