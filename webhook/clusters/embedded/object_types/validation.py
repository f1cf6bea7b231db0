"""Judging objects: names, required fields, labels, what a kind asks for and what may not change.

In the words of `apimachinery/pkg/util/validation` and of each group's `validation` package.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import msgspec

from webhook.clusters.embedded.object_types import fields, schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_STORAGE, ApiResource, Object
from webhook.clusters.embedded.protocol.statuses import Cause
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.quantity import millis
from webhook.kube.selectors import SelectorError, label_matcher

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = f"a lowercase RFC 1123 label must match '{_LABEL}'"
_LABEL_KEY_RULE = f"the name part of a label's key must match '{_LABEL_KEY}'"
_LABEL_VALUE_RULE = f"a valid label must be an empty string or match '{_LABEL_KEY}'"
_NAMES = {
    "Namespace": (_LABEL, _LABEL_RULE, 63),
    **dict.fromkeys(
        ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), ("[^/%]*", "may not contain '/' or '%'", 253)
    ),
}
"""By kind: what names match, what is said of others, and how long they may be."""
_LONGEST_LABEL = 63
_HIGHEST = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("Never", "PreemptLowerPriority")
_MAY_CHANGE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_IMMUTABLE = {
    **dict.fromkeys(_WORKLOADS, ("spec.selector",)),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), ("roleRef",)),
    "PriorityClass": ("value", "preemptionPolicy"),
}
"""Fields that stay as they were made."""


def check_new(resource: ApiResource, obj: Object) -> None:
    """Raise StatusError (422) with everything that is wrong with a new object."""
    metadata = obj["metadata"]
    causes: list[Cause] = []
    if not metadata.get("name"):
        text = "Required value: name or generateName is required"
        causes.append(Cause("metadata.name", "FieldValueRequired", text))
    else:
        if prefix := metadata.get("generateName"):
            # A dash at its end is no fault, for a suffix follows
            causes += _name_causes(resource, "metadata.generateName", prefix, re.sub("-$", "a", prefix))
        causes += _name_causes(resource, "metadata.name", metadata["name"], metadata["name"])
    causes += fields.missing(schemas.of_resource(resource), obj)
    causes += _object_causes(resource, obj)
    match resource.kind:
        case "Pod":
            causes += _pod_causes(obj)
        case "PriorityClass":
            causes += _class_causes(obj)
    if causes:
        raise statuses.invalid(BY_STORAGE[resource.key], metadata.get("name", ""), causes)


def check_changed(resource: ApiResource, subresource: str, old: Object, new: Object) -> None:
    """Raise StatusError (422) with everything an update may not do."""
    causes: list[Cause] = []
    before = old["metadata"].get("finalizers") or ()
    added = [name for name in new["metadata"].get("finalizers") or () if name not in before]
    if added and old["metadata"].get("deletionTimestamp"):
        shown = ", ".join(f'"{name}"' for name in added)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{shown}}}"
        )
        causes.append(Cause("metadata.finalizers", "FieldValueForbidden", text))
    if subresource != "status":  # it leaves alone everything that can be required
        causes += fields.missing(schemas.of_resource(resource), new)
    causes += _object_causes(resource, new)
    causes += _immutable_causes(resource, old, new)
    if resource.kind == "Pod" and not subresource:
        causes += _pod_change_causes(old.get("spec") or {}, new.get("spec") or {})
    if causes:
        raise statuses.invalid(BY_STORAGE[resource.key], new["metadata"].get("name", ""), causes)


def _name_causes(resource: ApiResource, field: str, shown: str, judged: str) -> list[Cause]:
    """What is wrong with a name, which is shown in full."""
    pattern, rule, longest = _NAMES.get(resource.kind, (_SUBDOMAIN, _SUBDOMAIN_RULE, 253))
    if len(judged) > longest:
        rule = f"must be no more than {longest} bytes"
    elif re.fullmatch(pattern, judged):
        return []
    return [Cause(field, "FieldValueInvalid", f'Invalid value: "{shown}": {rule}')]


def _object_causes(resource: ApiResource, obj: Object) -> list[Cause]:
    """What is wrong with an object's labels and, in a workload or a budget, with its selector and its bounds."""
    causes = []
    for key, value in (obj["metadata"].get("labels") or {}).items():
        name = key.rpartition("/")[2]
        if not re.fullmatch(_LABEL_KEY, name) or len(name) > _LONGEST_LABEL:
            causes.append(Cause("metadata.labels", "FieldValueInvalid", f'Invalid value: "{key}": {_LABEL_KEY_RULE}'))
        rule = ""
        if len(value) > _LONGEST_LABEL:
            rule = f"must be no more than {_LONGEST_LABEL} bytes"
        elif value and not re.fullmatch(_LABEL_KEY, value):
            rule = _LABEL_VALUE_RULE
        if rule:
            causes.append(Cause("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {rule}'))
    spec = obj.get("spec") or {}
    if resource.kind in _WORKLOADS and spec.get("selector"):
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        try:
            if not label_matcher(msgspec.convert(spec["selector"], LabelSelector))(labels):
                text = f"Invalid value: {_shown(labels)}: `selector` does not match template `labels`"
                causes.append(Cause("spec.template.metadata.labels", "FieldValueInvalid", text))
        except SelectorError as error:
            text = f"Invalid value: {_shown(spec['selector'])}: {error}"
            causes.append(Cause("spec.selector", "FieldValueInvalid", text))
    if resource.kind == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= set(spec):
        text = "minAvailable and maxUnavailable cannot be both set"
        causes.append(Cause("spec", "FieldValueInvalid", f"Invalid value: {_shown(spec)}: {text}"))
    return causes


def _immutable_causes(resource: ApiResource, old: Object, new: Object) -> list[Cause]:
    """What an update changes although the kind of the object does not let it."""
    causes = []
    for path in _IMMUTABLE.get(resource.kind, ()):
        before, after = (
            functools.reduce(lambda part, name: part.get(name) or {}, path.split("."), obj) for obj in (old, new)
        )
        if before != after and path == "value":
            causes.append(Cause(path, "FieldValueForbidden", "Forbidden: may not be changed in an update."))
        elif before != after:
            causes.append(Cause(path, "FieldValueInvalid", f"Invalid value: {_shown(after)}: field is immutable"))
    return causes


def _class_causes(obj: Object) -> list[Cause]:
    """What is wrong with a new PriorityClass."""
    name, value = obj["metadata"]["name"], obj.get("value", 0)
    causes = []
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != value:
            why = f"{name} is not a known system priority class"
            if name in SYSTEM_CLASSES:
                why = f"value of {name} must be {SYSTEM_CLASSES[name]}, not {value}"
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


def _pod_causes(obj: Object) -> list[Cause]:
    """What is wrong with a new pod's containers: their names, images, requests and limits."""
    causes = []
    seen: set[str] = set()
    for index, container in enumerate((obj.get("spec") or {}).get("containers") or ()):
        path, name = f"spec.containers[{index}]", container.get("name") or ""
        if name in seen:
            causes.append(Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        seen.add(name)
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for field, amounts in (("limits", limits), ("requests", requests)):
            for key, amount in amounts.items():
                if millis(amount) < 0:
                    text = f'Invalid value: "{amount}": must be greater than or equal to 0'
                    causes.append(Cause(f"{path}.resources.{field}[{key}]", "FieldValueInvalid", text))
        for key, amount in requests.items():
            if key in limits and millis(amount) > millis(limits[key]):
                text = f'Invalid value: "{amount}": must be less than or equal to {key} limit of {limits[key]}'
                causes.append(Cause(f"{path}.resources.requests", "FieldValueInvalid", text))
        if not container.get("image"):
            causes.append(Cause(f"{path}.image", "FieldValueRequired", "Required value"))
    return causes


def _pod_change_causes(before: Object, after: Object) -> list[Cause]:
    """What an update may not change in a pod's spec."""
    if before == after:
        return []
    tolerations = after.get("tolerations") or []
    if any(row not in tolerations for row in before.get("tolerations") or ()):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        return [Cause("spec.tolerations", "FieldValueForbidden", text)]
    # The old spec with those changes of the new one that are allowed; all that still differs is not.
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
    changed = sorted(key for key in {*allowed, *after} if allowed.get(key) != after.get(key))
    if not changed:
        return []
    return [Cause("spec", "FieldValueForbidden", f"{_MAY_CHANGE}\n{', '.join(changed)}")]


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
