"""JSON Patch (RFC 6902) on plain data."""

from typing import Any

import jsonpatch
import msgspec

_REFUSED = (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, AttributeError)


class JsonPatchError(ValueError):
    """A patch that is malformed or does not fit the document; the text says why."""


def escape(key: str) -> str:
    """A key as one part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def apply_json_patch(document: Any, operations: Any) -> Any:
    """A patched copy of a JSON document; the document itself stays as it is. Raises JsonPatchError."""
    if not isinstance(operations, list):
        raise JsonPatchError("a JSON patch is a list of operations")
    document, operations = msgspec.json.decode(msgspec.json.encode([document, operations]))
    try:
        return jsonpatch.apply_patch(document, operations, in_place=True)
    except _REFUSED as error:
        raise JsonPatchError(str(error)) from error
