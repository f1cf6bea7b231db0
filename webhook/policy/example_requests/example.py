"""An example request: what sets it apart from a plain one, the request itself, and one sentence about it."""

import json
from typing import Any, NamedTuple

import msgspec

from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.policy.cel.fields import ELEMENT, Path
from webhook.policy.evaluation.request import CLASSES, PODS, PolicyRequest, UserInfo

Settings = tuple[tuple[Path, Any], ...]
"""Fields of a request with their values; a path begins with the name of a variable of expressions."""
NAME, VALUE = ("priorityClass", "metadata", "name"), ("priorityClass", "value")
NAMESPACE, OPERATION, USER = ("namespaceObject", "metadata", "name"), ("request", "operation"), ("request", "userInfo")
CHANGE = ("change", "metadata", "annotations")
"""Above an annotation that the object did not have before."""
ANYBODY = UserInfo("anybody", ("system:authenticated",))
"""Somebody without any right of their own."""
_SPEC = {
    "containers": [{"name": "c", "image": "x", "resources": {}}],
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_PLAIN = {
    PODS: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": _SPEC},
    CLASSES: {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {}},
}
_WRITTEN = {"object": ("object", "oldObject"), "change": ("object",)}
"""Where a setting is written: an object has its settings before an UPDATE, too."""


class Example(NamedTuple):
    """A request about a pod or a PriorityClass (`resource`): a plain CREATE by anybody, but for its settings."""

    resource: str
    settings: Settings

    def get(self, path: Path, otherwise: Any = None) -> Any:
        """What the request has at a path by its settings."""
        return dict(self.settings).get(path, otherwise)

    def request(self, now: float) -> PolicyRequest:
        """The request that admission would hand the engine at `now` (seconds since the epoch)."""
        plain = _PLAIN[self.resource]
        world = _copy({"object": plain, "oldObject": plain, "namespaceObject": {}, "priorityClass": {"metadata": {}}})
        world["request"] = {"kind": {"kind": plain["kind"]}, "resource": {"resource": self.resource}, "subResource": ""}
        for path, value in self.settings:
            for variable in _WRITTEN.get(path[0], path[:1]):
                _put(world, (variable, *path[1:]), value)
        class_ = msgspec.convert(world["priorityClass"], PriorityClass)
        named = {"priorityClassName": class_.metadata.name} if class_.metadata.name else {}
        for made in (world["object"], world["oldObject"]):
            if self.resource == PODS:
                made["spec"] |= {"priority": class_.value, **named}
                made["metadata"]["namespace"] = self.get(NAMESPACE)
            else:
                made["value"] = class_.value
                made["metadata"]["name"] = class_.metadata.name
        request = PolicyRequest(
            operation=self.get(OPERATION, "CREATE"),
            resource=self.resource,
            object=world["object"],
            old_object=world["oldObject"] if self.get(OPERATION) else None,
            name=world["object"]["metadata"]["name"],
            user=self.get(USER, ANYBODY),
            raw=world["request"],
            now=now,
        )
        if self.resource == PODS:
            request.namespace, request.priority = self.get(NAMESPACE), class_.value
            request.namespace_object = msgspec.convert(world["namespaceObject"], Namespace)
            request.priority_class = class_ if named else None
        return request

    def __str__(self) -> str:
        """`a pod with the label canary=true in team-a, made by anybody`."""
        having = " and ".join(filter(None, (_words(path, value) for path, value in self.settings)))
        thing, done = f"PriorityClass {self.get(NAME)} of value {self.get(VALUE)}", "defined"
        if self.resource == PODS:
            thing, done = "a pod", "made"
        thing += f" with {having}" if having else ""
        thing += f" in {self.get(NAMESPACE)}" if self.resource == PODS else ""
        done = "changed" if self.get(OPERATION) else done
        return f"{thing}, {done} by {self.get(USER, ANYBODY).username}"


def _words(path: Path, value: Any) -> str:
    match path:
        case (variable, "metadata", ("labels" | "annotations") as kind, key):
            whose = {"namespaceObject": "namespace ", "priorityClass": "class "}.get(variable, "")
            return f"the {whose}{kind[:-1]} {key}={value}"
        case ("object" | "oldObject" | "request", *_) if path not in (OPERATION, USER):
            field = ".".join(path).removeprefix("object.").replace(f".{ELEMENT}", ELEMENT)
            if isinstance(value, list) and value[1:]:
                return f"{len(value)} {field}"
            return f"{field} {json.dumps(value)}"
    return ""


def _put(part: Any, path: Path, value: Any) -> None:
    """Set a field below a part of an object; what is missing on the way to it is made."""
    step: Any = path[0]
    if step == ELEMENT:
        part[:], step = part or [{}], 0
    if len(path) == 1:
        part[step] = _copy(value)
        return
    kind: type = list if path[1] == ELEMENT else dict
    if not isinstance(part[step] if step == 0 else part.get(step), kind):
        part[step] = kind()
    _put(part[step], path[1:], value)


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
