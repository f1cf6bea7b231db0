"""Judging objects: names, required fields, labels, what a kind asks for and what may not change.

In the words of `apimachinery/pkg/util/validation` and of each group's `validation` package.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, ApiResource, Object, value_at
from webhook.clusters.embedded.protocol.statuses import Cause
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.pods import template_of
from webhook.kube.quantity import nanos
from webhook.kube.selectors import SelectorError, label_matcher


class _Format(NamedTuple):
    """What a text looks like: a pattern, at most so many characters, and what is said of others."""

    pattern: str
    longest: int
    rule: str

    def fault(self, text: str) -> str:
        """What is wrong with a text; empty if nothing is."""
        if len(text) > self.longest:
            return f"must be no more than {self.longest} bytes"
        return "" if re.fullmatch(self.pattern, text) else self.rule.format(self.pattern)


_ENDS = "and must start and end with an alphanumeric character (e.g. {}, regex used for validation is '{{}}')"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN = _Format(
    rf"{_DNS_LABEL}(\.{_DNS_LABEL})*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    + _ENDS.format("'example.com'"),
)
_LABEL_KEY = _Format(
    _NAME_PART,
    63,
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    + _ENDS.format("'MyName',  or 'my.name',  or '123-abc'"),
)
_LABEL_VALUE = _Format(
    f"({_NAME_PART})?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    + _ENDS.format("'MyValue',  or 'my_value',  or '12345'"),
)
_NAMES = {
    "Namespace": _Format(
        _DNS_LABEL,
        63,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        + _ENDS.format("'my-name',  or '123-abc'"),
    ),
    **dict.fromkeys(
        ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
        _Format("[^/%]*", 253, "may not contain '/' or '%'"),
    ),
}
"""What names look like, by kind; of other kinds, like subdomains."""
_HIGHEST = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("PreemptLowerPriority", "Never")
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SPECS = {"Pod": "spec", "CronJob": "spec.jobTemplate.spec.template.spec"}
"""Where the spec of a pod or a template is; of other kinds, in `spec.template`."""
_WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_IMMUTABLE = {
    **{kind: {"spec.selector": "field is immutable"} for kind in _WORKLOADS},
    **{kind: {"roleRef": "cannot change roleRef"} for kind in ("RoleBinding", "ClusterRoleBinding")},
    "PriorityClass": {"value": "may not be changed in an update.", "preemptionPolicy": "field is immutable"},
}
"""Fields that stay as they were made, and what is said of a change."""


def check_new(resource: ApiResource, obj: Object) -> None:
    """Raise StatusError (422) with everything that is wrong with a new object."""
    causes = [*_name_causes(resource, obj["metadata"]), *_causes(resource, obj)]
    if resource.kind == "PriorityClass":
        causes += _class_causes(obj)
    _refuse(resource, obj, causes)


def check_changed(resource: ApiResource, subresource: str, old: Object, new: Object) -> None:
    """Raise StatusError (422) with everything an update may not do."""
    causes = [*_finalizer_causes(old["metadata"], new["metadata"])]
    if subresource != "status":  # it leaves alone everything that can be required
        causes += _causes(resource, new)
    causes += _immutable_causes(resource, old, new)
    if resource.kind == "Pod" and not subresource:
        causes += _pod_change_causes(old.get("spec") or {}, new.get("spec") or {})
    _refuse(resource, new, causes)


def _refuse(resource: ApiResource, obj: Object, causes: list[Cause]) -> None:
    if causes:
        group = BY_PLURAL[resource.plural].group
        raise statuses.invalid(group, resource.kind, obj["metadata"].get("name", ""), *causes)


def _causes(resource: ApiResource, obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with an object as it is, new or changed."""
    yield from schemas.missing(schemas.of_resource(resource), obj)
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if fault := _LABEL_KEY.fault(key.rpartition("/")[2]):
            yield Cause.invalid("metadata.labels", key, fault)
        if fault := _LABEL_VALUE.fault(value):
            yield Cause.invalid("metadata.labels", value, fault)
    spec = obj.get("spec") or {}
    if resource.kind in _WORKLOADS:
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        try:
            if not label_matcher(msgspec.convert(spec.get("selector"), LabelSelector | None))(labels):
                why = "`selector` does not match template `labels`"
                yield Cause.invalid("spec.template.metadata.labels", labels, why)
        except SelectorError as error:
            yield Cause.invalid("spec.selector", spec["selector"], str(error))
    if resource.kind == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= set(spec):
        yield Cause.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    template = obj if resource.kind == "Pod" else template_of(obj, resource.plural)
    if template is not None:
        yield from _container_causes(template.get("spec") or {}, _SPECS.get(resource.kind, "spec.template.spec"))


def _name_causes(resource: ApiResource, metadata: Object) -> Iterator[Cause]:
    """Yield what is wrong with the name of a new object."""
    form = _NAMES.get(resource.kind, _SUBDOMAIN)
    if not metadata.get("name"):
        yield Cause.required("metadata.name", "name or generateName is required")
        return
    prefix = metadata.get("generateName") or ""
    # A dash at the prefix's end is no fault, for a suffix follows
    if prefix and (fault := form.fault(re.sub("-$", "a", prefix))):
        yield Cause.invalid("metadata.generateName", prefix, fault)
    if fault := form.fault(metadata["name"]):
        yield Cause.invalid("metadata.name", metadata["name"], fault)


def _finalizer_causes(before: Object, after: Object) -> Iterator[Cause]:
    """Yield what an update adds to the finalizers of an object that is being deleted."""
    added = [name for name in after.get("finalizers") or () if name not in (before.get("finalizers") or ())]
    if added and before.get("deletionTimestamp"):
        shown = ", ".join(f'"{name}"' for name in added)
        why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
        yield Cause.forbidden("metadata.finalizers", f"{why}{{{shown}}}")


def _immutable_causes(resource: ApiResource, old: Object, new: Object) -> Iterator[Cause]:
    """Yield what an update changes although the kind of the object does not let it."""
    for path, why in _IMMUTABLE.get(resource.kind, {}).items():
        before, after = value_at(old, path), value_at(new, path)
        if before != after:
            yield Cause.forbidden(path, why) if path == "value" else Cause.invalid(path, after, why)


def _class_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with a new PriorityClass."""
    name, value, policy = obj["metadata"].get("name", ""), obj.get("value", 0), obj.get("preemptionPolicy")
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != value:
            why = f"{name} is not a known system priority class"
            if name in SYSTEM_CLASSES:
                why = f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
            text = f"priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            yield Cause.forbidden("metadata.name", text)
    elif value > _HIGHEST:
        yield Cause.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}")
    if policy not in _POLICIES:
        supported = ", ".join(f'"{name}"' for name in _POLICIES)
        text = f'Unsupported value: "{policy}": supported values: {supported}'
        yield Cause("preemptionPolicy", "FieldValueNotSupported", text)


def _container_causes(spec: Object, of: str) -> Iterator[Cause]:
    """Yield what is wrong with the containers of a pod or a template: their images, names, requests and limits."""
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            path, name = f"{of}.{field}[{index}]", container.get("name") or ""
            if not container.get("image"):
                yield Cause.required(f"{path}.image")
            if name in seen:
                yield Cause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            seen.add(name)
            yield from _amount_causes(container.get("resources") or {}, f"{path}.resources")


def _amount_causes(resources: Object, path: str) -> Iterator[Cause]:
    """Yield the limits and requests below 0, and the requests beyond their limits."""
    limits = resources.get("limits") or {}
    for field, amounts in (("limits", limits), ("requests", resources.get("requests") or {})):
        for key, amount in amounts.items():
            if nanos(amount) < 0:
                yield Cause.invalid(f"{path}.{field}[{key}]", amount, "must be greater than or equal to 0")
            if field == "requests" and key in limits and nanos(amount) > nanos(limits[key]):
                why = f"must be less than or equal to {key} limit of {limits[key]}"
                yield Cause.invalid(f"{path}.requests", amount, why)


def _pod_change_causes(before: Object, after: Object) -> Iterator[Cause]:
    """Yield what an update may not change in a pod's spec."""
    tolerations = after.get("tolerations") or []
    if any(row not in tolerations for row in before.get("tolerations") or ()):
        yield Cause.forbidden(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
        return
    gates = [row["name"] for row in before.get("schedulingGates") or ()]
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate["name"] not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield Cause.forbidden(f"spec.schedulingGates[{index}].name", why)
    # The old spec with those changes of the new one that are allowed; all that still differs is not.
    allowed = copy.deepcopy(before)
    allowed |= {key: after[key] for key in ("activeDeadlineSeconds", "tolerations") if key in after}
    allowed["schedulingGates"] = after.get("schedulingGates")
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        allowed["terminationGracePeriodSeconds"] = 1
    for key in ("containers", "initContainers"):
        for mine, theirs in zip(allowed.get(key) or (), after.get(key) or (), strict=False):
            if theirs.get("image") and mine.get("name") == theirs.get("name"):
                mine["image"] = theirs["image"]
    changed = sorted(key for key in {*allowed, *after} if allowed.get(key) != after.get(key))
    if changed:
        yield Cause.forbidden("spec", f"{_MAY_CHANGE}\n{', '.join(changed)}")
