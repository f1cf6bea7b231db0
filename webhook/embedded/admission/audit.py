"""What admission webhooks leave in the audit log: their audit annotations, with the request they are about."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from webhook.embedded.admission.naming import shown_name
from webhook.embedded.protocol.calls import Attributes, Object

__all__ = ["AuditLog"]

MOST_ENTRIES = 10_000


class AuditLog:
    """The latest entries in memory, and with `path` every one as a line of JSON in a file.

    An entry has `operation`, `resource`, `namespace`, `name`, `user`, `allowed` and `annotations`, whose keys are
    `WEBHOOK/KEY` as in a real audit log.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.entries: deque[Object] = deque(maxlen=MOST_ENTRIES)
        self._path = path

    def record(self, attributes: Attributes, webhook: str, annotations: Mapping[str, str], *, allowed: bool) -> None:
        """Note what a webhook annotated; nothing if it annotated nothing."""
        if not annotations:
            return
        entry: Object = {
            "operation": attributes.operation,
            "resource": attributes.resource.qualified,
            "namespace": attributes.namespace,
            "name": shown_name(attributes),
            "user": attributes.user.username,
            "allowed": allowed,
            "annotations": {f"{webhook}/{key}": value for key, value in annotations.items()},
        }
        self.entries.append(entry)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
