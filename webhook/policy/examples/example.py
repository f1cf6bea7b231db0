"""An example request: what sets it apart from a plain one, the request itself, and one sentence about it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from webhook.kube.objects import Namespace, ObjectMeta, PriorityClass
from webhook.policy.cel.fields import ELEMENT, Path
from webhook.policy.evaluation.request import PODS, PolicyRequest, UserInfo

__all__ = ["ANYBODY", "CHANGE", "NAME", "NAMESPACE", "OPERATION", "USER", "VALUE", "Example", "Settings"]

Settings = tuple[tuple[Path, Any], ...]
"""Fields of a request with their values; a path begins with the name of a variable of expressions."""
NAME, VALUE = ("priorityClass", "metadata", "name"), ("priorityClass", "value")
NAMESPACE, OPERATION, USER = ("request", "namespace"), ("request", "operation"), ("request", "userInfo")
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
_WRITTEN = {"object": ("object", "oldObject"), "change": ("object",)}
"""Where a setting is written: an object has its settings before an UPDATE, too."""


class Example(NamedTuple):
    """A request about a pod or a PriorityClass (`resource`): a plain CREATE by anybody, but for its settings."""

    resource: str
    settings: Settings

    def get(self, path: Path, otherwise: Any = None) -> Any:
        """What the request has at a path by its settings."""
        return next((value for field, value in self.settings if field == path), otherwise)

    def request(self, now: float) -> PolicyRequest:
        """The request as admission hands it to the engine, made at `now` (seconds since the epoch)."""
        is_pod = self.resource == PODS
        name, value, namespace = self.get(NAME, ""), self.get(VALUE, 0), self.get(NAMESPACE, "")
        plain: dict[str, Any] = {"metadata": {"name": name}, "value": value}
        if is_pod:
            spec = {**_SPEC, "priority": value} | ({"priorityClassName": name} if name else {})
            plain = {"metadata": {"name": "a", "namespace": namespace}, "spec": spec}
        world = {variable: _copy(plain) for variable in ("object", "oldObject")}
        world |= {variable: {"metadata": {}} for variable in ("namespaceObject", "priorityClass", "request")}
        for path, setting in self.settings:
            for variable in _WRITTEN.get(path[0], path[:1]):
                _put(world[variable], path[1:], setting)
        labels = world["namespaceObject"]["metadata"].get("labels")
        annotations = world["priorityClass"]["metadata"].get("annotations")
        class_ = PriorityClass(metadata=ObjectMeta(name=name, annotations=annotations), value=value)
        return PolicyRequest(
            operation=self.get(OPERATION, "CREATE"),
            resource=self.resource,
            object=world["object"],
            old_object=world["oldObject"] if self.get(OPERATION) else None,
            namespace=namespace,
            user=self.get(USER, ANYBODY),
            namespace_object=Namespace(metadata=ObjectMeta(name=namespace, labels=labels)) if is_pod else None,
            priority_class=class_ if name and is_pod else None,
            priority=value if is_pod else None,
            now=now,
        )

    def __str__(self) -> str:
        """`a pod with the label canary=true in team-a, made by anybody`."""
        thing, where, done = "a pod", f" in {self.get(NAMESPACE)}", "made"
        if self.resource != PODS:
            thing, where, done = f"PriorityClass {self.get(NAME)} of value {self.get(VALUE)}", "", "defined"
        words = [_words(path, value) for path, value in self.settings if path[0] != "request" and path[1:] != VALUE[1:]]
        having = " and ".join(filter(None, words))
        done = "changed" if self.get(OPERATION) else done
        return f"{thing}{having and f' with {having}'}{where}, {done} by {self.get(USER, ANYBODY).username}"


def _words(path: Path, value: Any) -> str:
    match path:
        case (variable, "metadata", ("labels" | "annotations") as kind, key):
            whose = {"namespaceObject": "namespace ", "priorityClass": "class ", "oldObject": "former "}.get(
                variable, ""
            )
            return f"the {whose}{kind[:-1]} {key}={value}"
        case ("object" | "oldObject", *steps):
            field = ".".join(steps).replace(f".{ELEMENT}", ELEMENT)
            return f"{len(value)} {field}" if isinstance(value, list) and value[1:] else f"{field} {json.dumps(value)}"
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
