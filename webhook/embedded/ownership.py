"""Who manages which field: `metadata.managedFields`."""

from __future__ import annotations

from collections.abc import Callable

from webhook.embedded.calls import Change, Object
from webhook.embedded.resources import Resource

__all__ = ["Track", "updated"]

Track = Callable[[Resource, Object | None, Object, Change], None]
"""Enter into the new object (third) who changed what since the old one (None at CREATE)."""


def updated(resource: Resource, old: Object | None, new: Object, change: Change) -> None:
    """Keep the managed fields as they are."""
    del resource, change
    if old is not None and "managedFields" in old["metadata"]:
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
