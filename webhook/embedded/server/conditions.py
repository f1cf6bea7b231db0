"""Conditions in a status."""

from __future__ import annotations

import time
from typing import Any

from webhook.embedded.protocol.calls import Object
from webhook.kube.instants import rfc3339

__all__ = ["set_condition"]


def set_condition(obj: Object, kind: str, status: str, **more: Any) -> None:
    """Set a pod's condition; its transition time changes with its status only."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    found = next((row for row in conditions if row.get("type") == kind), None)
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, **more}
    if found is not None and found.get("status") == status:
        condition["lastTransitionTime"] = found.get("lastTransitionTime")
    else:
        condition["lastTransitionTime"] = rfc3339(time.time())
    if found is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(found)] = condition
