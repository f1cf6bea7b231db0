"""Who set what of a new object, by its `metadata.managedFields`.

The API server computes them from what the client sent, before admission plugins and webhooks run, and does not
attribute to anybody what those add to a new object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["owned"]


def owned(obj: dict[str, Any], *path: str) -> Iterator[dict[str, Any]]:
    """What each field manager owns below a path, as `FieldsV1`; managers that own nothing there are left out."""
    metadata = obj.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        part: Any = entry.get("fieldsV1") if isinstance(entry, dict) else None
        for field in path:
            part = part.get(f"f:{field}") if isinstance(part, dict) else None
        if isinstance(part, dict):
            yield part
