"""What of an object is written down: what decides, under its own names or under others.

Images, messages and most annotations are no part of that. Commands, arguments and the environment are not even decoded
(`webhook.kube.objects`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from typing import Any

import msgspec

from webhook.clusters.simulated.objects import Kind, SimulatedWorkload
from webhook.kube.objects import (
    Condition,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PriorityClass,
    Volume,
)
from webhook.policy.model import OWN_ANNOTATIONS, POD_CONDITIONS

__all__ = ["Anonymizer", "redact"]

_PARTS = re.compile(r"([-./_:]+)")
_ORDINAL = re.compile(r"\d{1,3}")
_NUMBER = re.compile(r"[+-]?\d+")
_LENGTH = 6
_NAMES = frozenset({
    "name", "namespace", "uid", "volumeHandle", "hostIP", "volumeID", "diskURI",
    "pool", "device", "counterSet", "request",
})  # fmt: skip
"""Fields whose text is a name, beside those that end in `Name`."""
_KEPT_NAMES = frozenset({"priorityClassName", "schedulerName"})
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields with label keys and values."""
_LISTS = frozenset({"namespaces", "finalizers"})
_AS_THEY_ARE = frozenset({
    "requests", "limits", "allocatable", "capacity", "drivers", "declaredFeatures", "counters", "consumedCapacity",
})  # fmt: skip
_KEPT_FINALIZERS = frozenset({"resource.kubernetes.io/delete-protection"})
"""Without it a claim on devices is never freed."""
_SELECTOR = frozenset({"matchLabels", "matchExpressions"})
_CONDITIONS = frozenset({"Ready", "PodScheduled", "DisruptionTarget", "PodResizePending", *POD_CONDITIONS})


def redact(item: Any, annotations: Collection[str]) -> Any:
    """The object without what does not decide; it is changed in place. Only these annotations stay."""
    meta: ObjectMeta = item.metadata
    meta.annotations = _kept(meta, annotations)
    match item:
        case Pod():
            _strip(item.spec)
            # Of a condition that decides all but its message, of any other no more than that there is one
            item.status.conditions = [
                msgspec.structs.replace(condition, message="")
                if condition.type in _CONDITIONS
                else Condition(type=condition.type, status=condition.status)
                for condition in item.status.conditions or ()
            ] or None
        case Node():
            item.status.conditions = item.status.capacity = None
        case PriorityClass():
            item.description = ""
        case PersistentVolume() | PersistentVolumeClaim():
            status = item.status or {}
            item.status = {key: status[key] for key in ("phase", "capacity") if key in status} or None
        case SimulatedWorkload(spec=spec, status=told) if spec.template is not None:
            told.conditions = [
                {key: condition.get(key) for key in ("type", "status")} for condition in told.conditions or ()
            ]
            spec.template.metadata.annotations = _kept(spec.template.metadata, annotations)
            _strip(spec.template.spec)
    return item


def _kept(meta: ObjectMeta, annotations: Collection[str]) -> dict[str, str] | None:
    return {key: text for key, text in (meta.annotations or {}).items() if key in annotations} or None


def _strip(spec: PodSpec) -> None:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        container.image = ""
        container.ports = [port for port in container.ports or () if port.host_port] or None
    volumes = [volume for volume in spec.volumes or () if volume != Volume(name=volume.name)]
    for volume in volumes:
        if volume.ephemeral is not None:
            volume.ephemeral = {}
    spec.volumes = volumes or None


class Anonymizer:
    """Other names for everything, the same one everywhere: selectors still match, and nobody learns who runs what.

    A name is replaced part by part, between its dashes, dots and slashes, by an HMAC under a key that is thrown away.
    So `web-5d4f-abc12` still begins as its ReplicaSet `web-5d4f` does. Numbers of up to three digits stay: they are
    ordinals. Kept are label keys, PriorityClasses, schedulers, resources and provisioners, and `words`, which policies
    name.
    """

    def __init__(self, words: Collection[str] = (), key: bytes | None = None) -> None:
        self._words = frozenset(words)
        self._key = key or secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def __call__(self, kind: Kind, item: Any) -> Any:
        """The object under other names."""
        body = msgspec.to_builtins(item)
        name = body["metadata"].get("name", "")
        changed = self._walk(body)
        if kind.name == "PriorityClass":
            changed["metadata"]["name"] = name
        return msgspec.convert(changed, kind.type)

    def text(self, text: str) -> str:
        """Another name, always the same one for the same text."""
        if not text or text in self._words:
            return text
        name = self._known.get(text)
        if name is None:
            name = ""
            for at, part in enumerate(_PARTS.split(text)):
                if at % 2 or not part or _ORDINAL.fullmatch(part) or part in self._words:
                    name += part
                else:
                    name += f"x{hmac.new(self._key, part.encode(), hashlib.sha256).hexdigest()[:_LENGTH]}"
            if len(self._known) < 1_000_000:
                self._known[text] = name
        return name

    def _value(self, text: str) -> str:
        """A label's value; numbers stay, since `Gt` and `Lt` compare them."""
        return text if _NUMBER.fullmatch(text) or text in {"true", "false"} else self.text(text)

    def _walk(self, node: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for field, value in node.items():
            if field == "annotations":
                changed[field] = {key: text for key, text in value.items() if key not in OWN_ANNOTATIONS}
            elif field in _AS_THEY_ARE and not (field == "requests" and isinstance(value, list)):
                changed[field] = value
            elif (field in _MAPS and "nodeSelectorTerms" not in value) or (
                field == "selector" and not value.keys() & _SELECTOR
            ):
                changed[field] = {key: self._value(text) for key, text in value.items()}
            elif field == "disruptedPods":
                changed[field] = {self.text(key): text for key, text in value.items()}
            elif field == "values" or (field == "value" and isinstance(value, str)):
                changed[field] = (
                    [self._value(item) for item in value] if isinstance(value, list) else self._value(value)
                )
            elif isinstance(value, dict):
                changed[field] = self._walk(value)
            elif isinstance(value, list) and (field in _LISTS or _are_names(field, value)):
                changed[field] = [item if item in _KEPT_FINALIZERS else self.text(item) for item in value]
            elif isinstance(value, list):
                changed[field] = [self._walk(item) if isinstance(item, dict) else item for item in value]
            elif isinstance(value, str) and (field in _NAMES or field.endswith("Name")) and field not in _KEPT_NAMES:
                changed[field] = self.text(value)
            else:
                changed[field] = value
        return changed


def _are_names(field: str, value: list[Any]) -> bool:
    """Whether the list names requests, as a constraint between devices does."""
    return field == "requests" and all(isinstance(item, str) for item in value)
