"""Lists as tables, the way `kubectl get` asks for them (`meta.k8s.io/v1` Table)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from webhook.embedded.protocol.api_resources import BY_STORAGE, ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.embedded.rendering import columns
from webhook.embedded.storage import views
from webhook.embedded.storage.store import StoredObject

__all__ = ["table"]

_META = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


def table(
    resource: ApiResource,
    records: Sequence[StoredObject],
    metadata: Object,
    include: str = "Metadata",
    *,
    headed: bool = True,
) -> bytes:
    """Records as a Table; `include` is None, Metadata or Object; the columns are left out unless `headed`."""
    now = time.time()
    shown = columns.of(resource)
    stored = BY_STORAGE[resource.key]
    rows = []
    for record in records:
        obj = record.object(stored)
        row: Object = {"cells": [column.cell(obj, now) for column in shown]}
        conditions = columns.row_conditions(obj)
        if conditions:
            row["conditions"] = conditions
        if include == "Metadata":
            row["object"] = {**_META, "metadata": obj["metadata"]}
        elif include == "Object":
            row["object"] = views.from_stored(resource, obj)
        rows.append(row)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": "",
            "priority": 1 if column.wide else 0,
        }
        for column in shown
    ]
    document = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if headed else None,
        "rows": rows,
    }
    return msgspec.json.encode(document)
