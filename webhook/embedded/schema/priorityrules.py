"""What Kubernetes itself asks of a PriorityClass (docs/kubernetes-behaviour.md K4; `apis/scheduling/validation`)."""

from __future__ import annotations

from webhook.embedded.protocol.calls import Object
from webhook.embedded.protocol.statuses import Cause

__all__ = ["changed_class", "new_class"]

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("Never", "PreemptLowerPriority")


def new_class(obj: Object) -> list[Cause]:
    """What is wrong with a new class."""
    name, value = obj["metadata"]["name"], obj.get("value", 0)
    causes = []
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value:
            text = (
                "Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {_why_not_system(name, value)}"
            )
            causes.append(Cause("metadata.name", "FieldValueForbidden", text))
    elif value > _HIGHEST:
        text = f"Forbidden: maximum allowed value of a user defined priority is {_HIGHEST}"
        causes.append(Cause("value", "FieldValueForbidden", text))
    policy = obj.get("preemptionPolicy")
    if policy not in _POLICIES:
        supported = ", ".join(f'"{name}"' for name in _POLICIES)
        text = f'Unsupported value: "{policy}": supported values: {supported}'
        causes.append(Cause("preemptionPolicy", "FieldValueNotSupported", text))
    return causes


def _why_not_system(name: str, value: int) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    return f"value of {name} must be {_SYSTEM[name]}, not {value}"


def changed_class(old: Object, new: Object) -> list[Cause]:
    """What an update of a class may not do."""
    causes = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(Cause("value", "FieldValueForbidden", "Forbidden: may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        text = f'Invalid value: "{new.get("preemptionPolicy")}": field is immutable'
        causes.append(Cause("preemptionPolicy", "FieldValueInvalid", text))
    return causes
