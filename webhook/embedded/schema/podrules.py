"""What Kubernetes asks of a pod and what an update of one may change (`core/validation`)."""

from __future__ import annotations

import copy

from webhook.embedded.protocol.calls import Object
from webhook.embedded.protocol.statuses import Cause
from webhook.embedded.schema.objectrules import resource_causes

__all__ = ["changed_pod", "new_pod"]

_MAY_CHANGE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def new_pod(obj: Object) -> list[Cause]:
    """What is wrong with a new pod."""
    causes = []
    seen: set[str] = set()
    for index, container in enumerate((obj.get("spec") or {}).get("containers") or ()):
        at = f"spec.containers[{index}]"
        name = container.get("name") or ""
        if name in seen:
            causes.append(Cause(f"{at}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        seen.add(name)
        causes += resource_causes(container, at)
        if not container.get("image"):
            causes.append(Cause(f"{at}.image", "FieldValueRequired", "Required value"))
    return causes


def changed_pod(old: Object, new: Object) -> list[Cause]:
    """What an update may not change."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before == after:
        return []
    tolerations = after.get("tolerations") or []
    lost = [row for row in before.get("tolerations") or [] if row not in tolerations]
    if lost:
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        return [Cause("spec.tolerations", "FieldValueForbidden", text)]
    allowed = _with_allowed_changes(before, after)
    if allowed == after:
        return []
    return [Cause("spec", "FieldValueForbidden", f"{_MAY_CHANGE}\n{_difference(allowed, after)}")]


def _with_allowed_changes(before: Object, after: Object) -> Object:
    """The old spec with those changes of the new one that are allowed."""
    allowed = copy.deepcopy(before)
    for key in ("activeDeadlineSeconds", "tolerations"):
        if key in after:
            allowed[key] = after[key]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        allowed["terminationGracePeriodSeconds"] = 1
    for key in ("containers", "initContainers"):
        for mine, theirs in zip(allowed.get(key) or (), after.get(key) or (), strict=False):
            if theirs.get("image") and mine.get("name") == theirs.get("name"):
                mine["image"] = theirs["image"]
    if len(after.get("schedulingGates") or ()) < len(before.get("schedulingGates") or ()):
        allowed.pop("schedulingGates", None)
        if "schedulingGates" in after:
            allowed["schedulingGates"] = after["schedulingGates"]
    return allowed


def _difference(before: Object, after: Object) -> str:
    """The fields that differ, a line for each side."""
    lines = []
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            name = key[0].upper() + key[1:]
            lines += [f'- "{name}": {_shown(before.get(key))},', f'+ "{name}": {_shown(after.get(key))},']
    return "".join(f"{line}\n" for line in lines)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "null" if value is None else str(value)
