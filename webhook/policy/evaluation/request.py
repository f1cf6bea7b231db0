"""What a policy judges: one admission request, resolved as far as admission can, and what the rules look at in it."""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.pods import WORKLOADS, template_of
from webhook.policy.cel.program import VARIABLES, Inputs
from webhook.policy.model.match import CONTROLLER_GROUPS, CONTROLLER_MANAGER, KUBE_SYSTEM_ACCOUNT, SERVICE_ACCOUNT

Json = dict[str, Any]
PODS, CLASSES, GROUPS = "pods", "priorityclasses", "podgroups"
_WORKLOADS = frozenset(resource for _, resource in WORKLOADS)
_BOOKKEEPING = frozenset({"managedFields", "resourceVersion", "generation", "finalizers", "ownerReferences"})


class UserInfo(msgspec.Struct, frozen=True):
    """Who asks, as the API server authenticated them."""

    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


CONTROLLER = UserInfo(username=f"{KUBE_SYSTEM_ACCOUNT}replicaset-controller", groups=CONTROLLER_GROUPS)
"""Who makes the pods of a workload; for policies one controller is as good as another."""


class PolicyRequest(msgspec.Struct, kw_only=True):
    """One CREATE or UPDATE of a pod, a workload with a pod template, a PodGroup or its template, or a PriorityClass.

    `object` and `old_object` are the JSON data as sent (`old_object` on UPDATE only). `priority_class` is the
    class that the pod or template names or is given, `priority` the value it has in effect, however it got there
    (docs/semantics.md B). `raw` is the AdmissionRequest, which CEL reads as `request`. `allowance` is how many
    nanoseconds the expressions may take by their estimates before the engine gives up with AllowanceError; None for
    any number. `now` is the time of the request in seconds since the epoch, by which exceptions end; without one they
    have all ended.
    """

    operation: str
    resource: str
    object: Json
    old_object: Json | None = None
    namespace: str = ""
    name: str = ""
    user: UserInfo = UserInfo()
    namespace_object: Namespace | None = None
    priority_class: PriorityClass | None = None
    priority: int | None = None
    raw: Json = {}
    dry_run: bool = False
    labels_known: bool = True
    """Whether the object's labels are there: a Binding changes a pod without carrying it."""
    allowance: float | None = None
    now: float = math.inf


OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
"""What of an ownerReference says which object the owner is; the garbage collector looks it up by all of them."""
_TEXT = frozenset((str,))

AnnotationChange = tuple[str | None, str | None]
"""An annotation before and after; None is absent."""


def observe(request: PolicyRequest) -> "RequestAttributes | str":
    """What the rules look at, or why none does."""
    if request.operation not in ("CREATE", "UPDATE"):
        return f"operation {request.operation} is not judged"
    if request.operation == "UPDATE" and part(request.object, "metadata").get("deletionTimestamp"):
        return "the object is being deleted; nothing holds that up"
    if request.resource in (PODS, CLASSES):
        return RequestAttributes(request, request.resource, request.object, request.old_object)
    if request.resource == GROUPS:
        return RequestAttributes(request, PODS, request.object, None)
    if request.resource not in _WORKLOADS:
        return f"resource {request.resource} is not judged"
    new = template_of(request.object, request.resource) or {}
    old = (template_of(request.old_object, request.resource) or {}) if request.old_object else None
    if new == old:
        return "the pod template did not change"
    return RequestAttributes(request, PODS, new, old)


class RequestAttributes:
    """One request as the rules see it.

    `kind` is `pods` or `priorityclasses`. `new` and `old` are the object as it would be stored and as it is; there is
    no old one at CREATE. A workload is seen as the CREATE of the pod its template describes, asked for by whoever
    applies the workload: `template` is true then. A PodGroup is seen in the same way, as a pod of which nothing but its
    priority is known: `question` is `podgroups` then.
    """

    def __init__(self, request: PolicyRequest, kind: str, new: Json, old: Json | None) -> None:
        self.request, self.kind, self.new, self.old = request, kind, new, old
        self.template = kind == PODS and request.resource != PODS
        self.question = GROUPS if request.resource == GROUPS else kind
        """Which rules are asked: about pods, about PriorityClasses, or about a group's priority."""
        self.namespace = request.namespace if kind == PODS else None
        """Where the object lies; None for a PriorityClass."""
        # For `match`, a class that is deleted is one that is changed
        self.operation = "CREATE" if self.template else request.operation.replace("DELETE", "UPDATE")
        user = request.user.username
        by_account = user.startswith(SERVICE_ACCOUNT) or user == CONTROLLER_MANAGER
        self.by_service_account = kind == PODS and by_account
        """Whether a service account makes or changes a pod, maybe for someone else."""
        spec, class_ = part(new, "spec"), request.priority_class
        named = spec.get("priorityClassName")
        self.names_class = bool(named)
        """Whether the pod itself says which PriorityClass it has."""
        self.class_name = class_.metadata.name if class_ else ""
        """The PriorityClass of the pod: the one it names, or the one it is given by default."""
        if isinstance(named, str) and named:
            self.class_name = named
        value = new.get("value", 0) if kind == CLASSES else request.priority
        if value is None and kind != CLASSES:
            value = spec.get("priority")
        self.value: int | None = value if type(value) is int else None
        """The priority in effect; for a PriorityClass its value; None if nobody resolved it."""
        before = part(old, "spec")
        self.priority_changed = (
            self.operation == "CREATE"
            or old is None
            or spec.get("priority") != before.get("priority")
            or named != before.get("priorityClassName")
        )
        """Whether the request sets class or value; another UPDATE is not about priority."""

    @cached_property
    def inputs(self) -> Inputs:
        """What expressions read; made when the first one asks."""
        return Inputs(self._variables, self.request.allowance)

    @property
    def by_controller(self) -> bool:
        """Whether a service account surely makes the pod or workload for someone else.

        Service accounts of kube-system always do, and so does whoever
        makes an object with a controller. Whoever makes the object
        writes its ownerReferences, so they may only take rights away.
        """
        user = self.request.user.username
        by_system = user.startswith(KUBE_SYSTEM_ACCOUNT) or user == CONTROLLER_MANAGER
        return self.by_service_account and (by_system or self.has_controller)

    @property
    def has_controller(self) -> bool:
        """Whether the object has a controller, as its ownerReferences say."""
        return any(owner.get("controller") is True for owner in _owners(self.request.object))

    @property
    def namespace_labels(self) -> Mapping[str, str]:
        """The namespace's labels; its name's own label is always among them."""
        labels, known = {"kubernetes.io/metadata.name": self.request.namespace}, self.request.namespace_object
        return labels | (known.metadata.labels or {}) if known else labels

    @property
    def name(self) -> str:
        """The object's own name, which `generateName` may leave empty."""
        named = self.request.name or part(self.new, "metadata").get("name")
        return named if isinstance(named, str) else ""

    def annotation_changes(self, keys: Iterable[str]) -> dict[str, AnnotationChange]:
        """Which of these annotations the request changes; a new pod's copies from its class are no change."""
        new = strings(self.new, "annotations")
        if self.operation == "CREATE":
            copied, given = dict[str, str](), self.request.priority_class
            if self.kind == PODS and given is not None:
                copied = given.metadata.annotations or {}
            return {key: (None, new[key]) for key in keys if key in new and copied.get(key) != new[key]}
        old = strings(self.old, "annotations")
        return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}

    @property
    def gains_owner(self) -> bool:
        """Whether a class gets an owner, without whom the garbage collector deletes it."""
        if self.kind != CLASSES or self.old is None:
            return False
        old = [_named(owner) for owner in _owners(self.old)]
        return any(_named(owner) not in old for owner in _owners(self.new))

    @property
    def definition_changed(self) -> bool:
        """Whether the request changes what a PriorityClass says, bookkeeping aside."""
        if self.old is None or self.gains_owner:
            return True
        said = []
        for data in (self.new, self.old):
            metadata = part(data, "metadata").items()
            said.append({**data, "metadata": {key: value for key, value in metadata if key not in _BOOKKEEPING}})
        return said[0] != said[1]

    def _variables(self) -> Json:
        """The VARIABLES of expressions."""
        request, class_, namespace = self.request, self.request.priority_class, self.request.namespace_object
        new = _for_cel(self.new)
        if self.template:
            spec: Json = {} if request.priority is None else {"priority": request.priority}
            if class_ is not None:
                spec["priorityClassName"] = class_.metadata.name
                spec["preemptionPolicy"] = class_.preemption_policy or "PreemptLowerPriority"
            new["metadata"].setdefault("namespace", request.namespace)
            new = {"apiVersion": "v1", "kind": "Pod", **new, "spec": {**spec, **part(self.new, "spec")}}
        variables: Json = dict.fromkeys(VARIABLES)
        variables["object"] = new
        if self.old is not None and not self.template:
            variables["oldObject"] = _for_cel(self.old)
        variables["request"] = {
            "operation": request.operation,
            "namespace": request.namespace,
            "name": request.name,
            "dryRun": request.dry_run,
            "subResource": "",
            **request.raw,
            "userInfo": {
                "username": request.user.username,
                "groups": list(request.user.groups),
                "uid": request.user.uid,
                **part(request.raw, "userInfo"),
            },
        }
        for objects in ("object", "oldObject"):
            variables["request"].pop(objects, None)
        if namespace is not None:
            metadata = _metadata_for_cel(namespace.metadata)
            variables["namespaceObject"] = {"metadata": metadata | {"labels": self.namespace_labels}}
        if class_ is not None:
            variables["priorityClass"] = {
                "metadata": _metadata_for_cel(class_.metadata),
                "value": class_.value,
                "globalDefault": class_.global_default,
                "preemptionPolicy": class_.preemption_policy or "PreemptLowerPriority",
                "description": class_.description,
            }
        return variables


def part(of: Mapping[str, Any] | None, key: str) -> Json:
    """A mapping in JSON data; empty if it is absent or something else."""
    value = of.get(key) if of else None
    return value if isinstance(value, dict) else {}


def _owners(of: Json) -> list[Json]:
    """The ownerReferences; what is none is left for the API server to refuse."""
    owners = part(of, "metadata").get("ownerReferences")
    if not isinstance(owners, list):
        return []
    return [owner for owner in owners if owner and isinstance(owner, dict)]


def _named(owner: Json) -> list[str]:
    """What an ownerReference names."""
    return [str(owner.get(field)) for field in OWNER_FIELDS]


def strings(of: Mapping[str, Any] | None, key: str) -> Mapping[str, str]:
    """Labels or annotations; what is no string is left for the API server to refuse."""
    texts = part(part(of, "metadata"), key)
    if _TEXT.issuperset(map(type, texts.values())):
        return texts
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def _for_cel(of: Json) -> Json:
    """The object with labels and annotations, so that `'a' in object.metadata.labels` works.

    `managedFields` are left out: they are often most of an object, and nobody's policy.
    """
    known = {key: value for key, value in part(of, "metadata").items() if value is not None}
    metadata = {"labels": {}, "annotations": {}, **known}
    metadata.pop("managedFields", None)
    return {**of, "metadata": metadata}


def _metadata_for_cel(metadata: ObjectMeta) -> Json:
    return {
        "name": metadata.name,
        "labels": metadata.labels or {},
        "annotations": metadata.annotations or {},
    }
