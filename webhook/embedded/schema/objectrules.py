"""What Kubernetes asks of every object's labels, and of workloads, budgets, role bindings and containers' resources."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.embedded.protocol.statuses import Cause
from webhook.kube.objects import LabelSelector
from webhook.kube.quantity import millis
from webhook.kube.selectors import SelectorError, label_matcher

__all__ = ["changed_class", "changed_object", "new_class", "new_object", "resource_causes"]

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("Never", "PreemptLowerPriority")


def new_class(obj: Object) -> list[Cause]:
    """What is wrong with a new class."""
    name, value = obj["metadata"]["name"], obj.get("value", 0)
    causes = []
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value:
            why = f"{name} is not a known system priority class"
            if name in _SYSTEM:
                why = f"value of {name} must be {_SYSTEM[name]}, not {value}"
            text = (
                f"Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: {why}"
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


def changed_class(old: Object, new: Object) -> list[Cause]:
    """What an update of a class may not do."""
    causes = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(Cause("value", "FieldValueForbidden", "Forbidden: may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        text = f'Invalid value: "{new.get("preemptionPolicy")}": field is immutable'
        causes.append(Cause("preemptionPolicy", "FieldValueInvalid", text))
    return causes


_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LONGEST = 63
_WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_NO_MATCH = "`selector` does not match template `labels`"


def new_object(resource: ApiResource, obj: Object) -> list[Cause]:
    """What is wrong with an object of any kind."""
    causes = _labels("metadata.labels", obj["metadata"].get("labels") or {})
    spec = obj.get("spec") or {}
    if resource.kind in _WORKLOADS and spec.get("selector"):
        causes += _template(spec)
    if resource.kind == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= set(spec):
        text = "minAvailable and maxUnavailable cannot be both set"
        causes.append(Cause("spec", "FieldValueInvalid", f"Invalid value: {_shown(spec)}: {text}"))
    return causes


def changed_object(resource: ApiResource, old: Object, new: Object) -> list[Cause]:
    """What an update of an object of any kind may not do."""
    causes = new_object(resource, new)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if resource.kind in _WORKLOADS and before.get("selector") != after.get("selector"):
        text = f"Invalid value: {_shown(after.get('selector'))}: field is immutable"
        causes.append(Cause("spec.selector", "FieldValueInvalid", text))
    if resource.kind in ("RoleBinding", "ClusterRoleBinding") and old.get("roleRef") != new.get("roleRef"):
        text = f"Invalid value: {_shown(new.get('roleRef'))}: cannot change roleRef"
        causes.append(Cause("roleRef", "FieldValueInvalid", text))
    if resource.kind in ("ConfigMap", "Secret") and old.get("immutable"):
        causes += [
            Cause(name, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")
            for name in ("immutable", "data", "binaryData")
            if old.get(name) != new.get(name)
        ]
    return causes


def resource_causes(container: Object, path: str) -> list[Cause]:
    """Requests that are negative, or above their limit."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    causes = []
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if millis(amount) < 0:
                text = f'Invalid value: "{amount}": must be greater than or equal to 0'
                causes.append(Cause(f"{path}.resources.{field}[{name}]", "FieldValueInvalid", text))
    for name, amount in requests.items():
        if name in limits and millis(amount) > millis(limits[name]):
            text = f'Invalid value: "{amount}": must be less than or equal to {name} limit of {limits[name]}'
            causes.append(Cause(f"{path}.resources.requests", "FieldValueInvalid", text))
    return causes


def _template(spec: Object) -> list[Cause]:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    try:
        matches = label_matcher(msgspec.convert(spec["selector"], LabelSelector))
    except SelectorError as error:
        text = f"Invalid value: {_shown(spec['selector'])}: {error}"
        return [Cause("spec.selector", "FieldValueInvalid", text)]
    if matches(labels):
        return []
    text = f"Invalid value: {_shown(labels)}: {_NO_MATCH}"
    return [Cause("spec.template.metadata.labels", "FieldValueInvalid", text)]


def _labels(path: str, labels: Object) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        name = key.rpartition("/")[2]
        if not re.fullmatch(_NAME, name) or len(name) > _LONGEST:
            causes.append(Cause(path, "FieldValueInvalid", f'Invalid value: "{key}": {_NAME_RULE}'))
        if len(value) > _LONGEST:
            text = f'Invalid value: "{value}": must be no more than {_LONGEST} bytes'
            causes.append(Cause(path, "FieldValueInvalid", text))
        elif value and not re.fullmatch(_NAME, value):
            causes.append(Cause(path, "FieldValueInvalid", f'Invalid value: "{value}": {_VALUE_RULE}'))
    return causes


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
