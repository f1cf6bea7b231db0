"""A pod's quality-of-service class (`component-helpers/.../qos`)."""

from __future__ import annotations

from webhook.embedded.protocol.calls import Object

__all__ = ["qos_class"]

_COUNTED = ("cpu", "memory")


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    guaranteed, any_given = True, False
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = (
            {key: value for key, value in (resources.get(part) or {}).items() if key in _COUNTED and str(value) != "0"}
            for part in ("requests", "limits")
        )
        any_given = any_given or bool(requests or limits)
        guaranteed = guaranteed and len(limits) == len(_COUNTED) and {**limits, **requests} == limits
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
