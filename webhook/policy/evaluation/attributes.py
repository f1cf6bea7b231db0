"""What the rules look at in one request: the pod (or the pod a template describes) or the PriorityClass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.kube.objects import Namespace, PriorityClass
from webhook.kube.workloads import WORKLOADS, template_of
from webhook.policy.cel.program import Inputs
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.requester import has_controller, is_controller, is_service_account

__all__ = ["CLASSES", "PODS", "RequestAttributes", "observe"]

PODS, CLASSES = "pods", "priorityclasses"
_WORKLOADS = frozenset(resource for _, resource in WORKLOADS)
_BOOKKEEPING = frozenset({"managedFields", "resourceVersion", "generation", "finalizers", "ownerReferences"})


class RequestAttributes:
    """One request as the rules see it.

    `kind` is `pods` or `priorityclasses`. A workload is seen as the CREATE of the pod its template describes,
    asked for by whoever applies the workload: `template` is true then.
    """

    __slots__ = ("_inputs", "kind", "new", "old", "operation", "request", "template")

    def __init__(self, request: PolicyRequest, kind: str, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        self.request, self.kind, self.new, self.old = request, kind, new, old
        self.template = kind == PODS and request.resource != PODS
        self.operation = "CREATE" if self.template else request.operation
        self._inputs: Inputs | None = None

    @property
    def inputs(self) -> Inputs:
        """What expressions read; made when the first one asks, so that most requests leave no reference cycle."""
        if self._inputs is None:
            self._inputs = Inputs(self._variables, self.request.allowance)
        return self._inputs

    @property
    def by_service_account(self) -> bool:
        """Whether a service account makes or changes a pod or a workload, perhaps for someone else."""
        return self.kind == PODS and is_service_account(self.request.user.username)

    @property
    def by_controller(self) -> bool:
        """Whether a service account surely makes the pod, or the workload, for someone else."""
        if not self.by_service_account:
            return False
        return is_controller(self.request.user.username) or has_controller(_part(self.request.object, "metadata"))

    @property
    def namespace_labels(self) -> Mapping[str, str]:
        """The namespace's labels; its name's own label is always among them."""
        known = self.request.namespace_object
        labels = (known.metadata.labels if known else None) or {}
        return {"kubernetes.io/metadata.name": self.request.namespace, **labels}

    @property
    def name(self) -> str:
        """The object's own name, which `generateName` may leave empty."""
        named = self.request.name or _part(self.new, "metadata").get("name")
        return named if isinstance(named, str) else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels as they would be stored."""
        return _strings(self.new, "labels")

    @property
    def old_labels(self) -> Mapping[str, str] | None:
        """The labels as they are; None at CREATE."""
        return None if self.old is None else _strings(self.old, "labels")

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations as they would be stored."""
        return _strings(self.new, "annotations")

    @property
    def old_annotations(self) -> Mapping[str, str]:
        """The annotations as they are; none at CREATE."""
        return _strings(self.old, "annotations") if self.old else {}

    @property
    def names_class(self) -> bool:
        """Whether the pod itself says which PriorityClass it has."""
        return bool(_part(self.new, "spec").get("priorityClassName"))

    @property
    def class_name(self) -> str:
        """The PriorityClass of the pod: the one it names, or the one it is given by default."""
        named = _part(self.new, "spec").get("priorityClassName")
        if isinstance(named, str) and named:
            return named
        given = self.request.priority_class
        return given.metadata.name if given else ""

    @property
    def value(self) -> int | None:
        """The priority in effect; for a PriorityClass its value; None if nobody resolved it."""
        if self.kind == CLASSES:
            value = self.new.get("value")
        else:
            value = self.request.priority
            if value is None:
                value = _part(self.new, "spec").get("priority")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def priority_changed(self) -> bool:
        """Whether the request sets class or value; an UPDATE of anything else is not about priority."""
        if self.operation == "CREATE" or self.old is None:
            return True
        new, old = _part(self.new, "spec"), _part(self.old, "spec")
        return any(new.get(key) != old.get(key) for key in ("priority", "priorityClassName"))

    @property
    def definition_changed(self) -> bool:
        """Whether the request changes what a PriorityClass says, beyond the API server's bookkeeping."""
        return self.old is None or _definition(self.new) != _definition(self.old)

    def _variables(self) -> dict[str, Any]:
        request = self.request
        return {
            "object": _for_cel(self.new, request if self.template else None),
            "oldObject": _for_cel(self.old, None) if self.old is not None and not self.template else None,
            "request": _request_for_cel(request),
            "namespaceObject": _namespace_for_cel(request.namespace_object),
            "priorityClass": _class_for_cel(request.priority_class),
        }


def observe(request: PolicyRequest) -> RequestAttributes | str:
    """What the rules look at, or the reason why no rule looks at this request."""
    if request.operation not in ("CREATE", "UPDATE"):
        return f"operation {request.operation} is not judged"
    if _part(request.object, "metadata").get("deletionTimestamp"):
        return "the object is being deleted; nothing holds that up"
    if request.resource in (PODS, CLASSES):
        return RequestAttributes(request, request.resource, request.object, request.old_object)
    if request.resource not in _WORKLOADS:
        return f"resource {request.resource} is not judged"
    new = template_of(request.object, request.resource) or {}
    old = (template_of(request.old_object, request.resource) or {}) if request.old_object else None
    if new == old:
        return "the pod template did not change"
    return RequestAttributes(request, PODS, new, old)


def _part(of: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    part = of.get(key) if of else None
    return part if isinstance(part, dict) else {}


def _strings(of: Mapping[str, Any] | None, key: str) -> dict[str, str]:
    """Labels or annotations; what is no string is left for the API server to refuse."""
    found = _part(_part(of, "metadata"), key)
    if all(isinstance(value, str) for value in found.values()):
        return found
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _definition(class_: dict[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in _part(class_, "metadata").items() if key not in _BOOKKEEPING}
    return {**class_, "metadata": meta}


def _for_cel(of: dict[str, Any], for_template: PolicyRequest | None) -> dict[str, Any]:
    """The object with labels and annotations never absent, so that `'a' in object.metadata.labels` always works.

    `managedFields` are left out: they are often most of an object, and nobody's policy.
    """
    meta = {"labels": {}, "annotations": {}, **dict(_present(_part(of, "metadata")))}
    if for_template is None:
        return {**of, "metadata": meta}
    meta.setdefault("namespace", for_template.namespace)
    spec = {**_resolved(for_template), **_part(of, "spec")}
    return {"apiVersion": "v1", "kind": "Pod", **of, "metadata": meta, "spec": spec}


def _present(meta: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in meta.items() if value is not None and key != "managedFields")


def _resolved(request: PolicyRequest) -> dict[str, Any]:
    resolved: dict[str, Any] = {} if request.priority is None else {"priority": request.priority}
    if request.priority_class:
        resolved["priorityClassName"] = request.priority_class.metadata.name
        resolved["preemptionPolicy"] = request.priority_class.preemption_policy or "PreemptLowerPriority"
    return resolved


def _request_for_cel(request: PolicyRequest) -> dict[str, Any]:
    known = {
        "operation": request.operation,
        "namespace": request.namespace,
        "name": request.name,
        "dryRun": request.dry_run,
    }
    sent = {key: value for key, value in request.raw.items() if key not in ("object", "oldObject", "userInfo")}
    user = {"username": request.user.username, "groups": list(request.user.groups), "uid": request.user.uid}
    return {**known, **sent, "userInfo": {**user, **_part(request.raw, "userInfo")}}


def _namespace_for_cel(namespace: Namespace | None) -> dict[str, Any] | None:
    if namespace is None:
        return None
    meta = namespace.metadata
    return {"metadata": {"name": meta.name, "labels": meta.labels or {}, "annotations": meta.annotations or {}}}


def _class_for_cel(class_: PriorityClass | None) -> dict[str, Any] | None:
    if class_ is None:
        return None
    meta = class_.metadata
    return {
        "metadata": {"name": meta.name, "labels": meta.labels or {}, "annotations": meta.annotations or {}},
        "value": class_.value,
        "globalDefault": class_.global_default,
        "preemptionPolicy": class_.preemption_policy or "PreemptLowerPriority",
        "description": class_.description,
    }
