"""JSON Patch (RFC 6902): minimal operations, missing parents, escaped keys; and their application to an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

__all__ = ["Operation", "apply", "escape", "fields", "members"]

Operation = dict[str, Any]
"""One operation: `op` (add, replace or remove), `path`, and `value` unless it removes."""


@lru_cache(1024)
def escape(key: str) -> str:
    """A key as one token of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def fields(parent: str, wanted: Iterable[tuple[str, Any, Any]]) -> list[Operation]:
    """Set fields of the object at `parent`, each given as (field, value now or None, value wanted)."""
    return [
        {"op": "add" if now is None else "replace", "path": f"{parent}/{field}", "value": value}
        for field, now, value in wanted
        if now != value
    ]


def members(parent: str, present: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> list[Operation]:
    """Set members of the map at `parent`, which is made if it is absent or null; None takes a member away.

    What is as wanted needs no operation.
    """
    now = present or {}
    changed = {key: value for key, value in wanted.items() if now.get(key) != value}
    if not changed:
        return []
    if present is None:
        return [{"op": "add", "path": parent, "value": changed}]
    return [_member(f"{parent}/{escape(key)}", value, there=key in now) for key, value in changed.items()]


def _member(path: str, value: str | None, *, there: bool) -> Operation:
    if value is None:
        return {"op": "remove", "path": path}
    return {"op": "replace" if there else "add", "path": path, "value": value}


def apply(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """A copy of the document with this module's own operations carried out."""
    result = deepcopy(document)
    for operation in operations:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]]
        target = result
        for token in tokens[:-1]:
            target = target[token]
        if operation["op"] == "remove":
            del target[tokens[-1]]
        else:
            target[tokens[-1]] = operation["value"]
    return result
