"""What of an object is written down: what decides, under its own names or under others.

Images, messages and most annotations are no part of that. Commands, arguments and the environment are not even decoded
(`webhook.kube.objects`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import msgspec

from webhook.clusters.simulated.objects import Kind, SimulatedWorkload
from webhook.kube.objects.cluster_scoped import Node, PriorityClass
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodSpec, Volume
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.kube.pods import RESIZE_PENDING, sync_failure
from webhook.policy.model.creation import GROUP_ANNOTATIONS, renamed
from webhook.policy.model.values import ANSWERS, CREATION, OWN_ANNOTATIONS, POD_CONDITIONS, RECONCILER_ANNOTATIONS

_PARTS = re.compile(r"([-./_:]+)")
_ORDINAL = re.compile(r"\d{1,3}")
_NUMBER = re.compile(r"[+-]?\d+")
_AMOUNT = re.compile(r"[+-]?(\d+(\.\d+)?[a-zA-Z]{0,2})+|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", re.ASCII)
"""A number, a quantity, a duration or an instant."""
_LENGTH = 6
ALWAYS_KEPT = frozenset((*RECONCILER_ANNOTATIONS, CREATION, *ANSWERS, *GROUP_ANNOTATIONS))
"""Annotations that decide whatever the policies read."""
_CONDITIONS = frozenset(
    {"Ready", "PodScheduled", "DisruptionAllowed", "DisruptionTarget", RESIZE_PENDING, *POD_CONDITIONS}
)
_NAMES = tomllib.loads(files("webhook.simulation.cluster_file").joinpath("names.toml").read_text())
_VOCABULARY = _CONDITIONS.union(_NAMES["vocabulary"])
_KEPT, _AMOUNTS = frozenset(_NAMES["kept"]), frozenset(_NAMES["amounts"])
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields with label keys and values."""
_SELECTOR = frozenset({"matchLabels", "matchExpressions"})


def redact(item: Any, annotations: Collection[str]) -> Any:
    """The object without what does not decide; it is changed in place. Only these annotations stay."""
    meta: ObjectMeta = item.metadata
    meta.annotations = _kept(meta, annotations)
    match item:
        case Pod():
            _strip(item.spec)
            # Of a condition that decides all but its message, of any other no more than that there is one
            item.status.conditions = [
                msgspec.structs.replace(condition, message="") if condition.type in _CONDITIONS else _bare(condition)
                for condition in item.status.conditions or ()
            ] or None
        case Node():
            item.status.conditions = None
        case PodDisruptionBudget():
            failure = sync_failure(item.status)
            item.status.conditions = [Condition(type=failure.type, reason=failure.reason)] if failure else None
        case PriorityClass():
            item.description = ""
        case ResourceClaim():
            for device in item.status.devices or ():
                device.conditions = [_bare(condition) for condition in device.conditions or ()] or None
        case PersistentVolume() | PersistentVolumeClaim():
            status = item.status or {}
            item.status = {key: status[key] for key in ("phase", "capacity") if key in status} or None
        case SimulatedWorkload(spec=spec, status=told) if spec.template is not None:
            told.conditions = [
                {key: condition.get(key) for key in ("type", "status")} for condition in told.conditions or ()
            ]
            spec.template.metadata.annotations = _kept(spec.template.metadata, annotations)
            _strip(spec.template.spec)
            for claim in spec.volume_claim_templates or ():
                claim.metadata = ObjectMeta(name=claim.metadata.name)
    return item


def _kept(meta: ObjectMeta, annotations: Collection[str]) -> dict[str, str] | None:
    return {key: text for key, text in (meta.annotations or {}).items() if key in annotations} or None


def _bare(condition: Condition) -> Condition:
    return Condition(type=condition.type, status=condition.status)


def _strip(spec: PodSpec) -> None:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        container.image = ""
        container.ports = [port for port in container.ports or () if port.host_port or spec.host_network] or None
    volumes = [volume for volume in spec.volumes or () if volume != Volume(name=volume.name)]
    for volume in volumes:
        if volume.ephemeral is not None:
            volume.ephemeral = {}
    spec.volumes = volumes or None


class Anonymizer:
    """Other names for everything, the same one everywhere: selectors still match, and nobody learns who runs what.

    A name is replaced part by part, between its dashes, dots and slashes, by an HMAC under a key that is thrown away.
    So `web-5d4f-abc12` still begins as its ReplicaSet `web-5d4f` does. Numbers of up to three digits stay: they are
    ordinals. Every text counts as a name but that of the fields in `_KEPT`, amounts, and `words`, which policies name.
    """

    def __init__(self, words: Collection[str] = (), key: bytes | None = None) -> None:
        self._words = _VOCABULARY.union(words)
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

    def _said(self, text: str) -> str:
        """An annotation's text; numbers, durations and instants stay, since policies compare them."""
        return text if _AMOUNT.fullmatch(text) else self._value(text)

    def _walk(self, node: dict[str, Any]) -> dict[str, Any]:
        return {field: self._part(field, value) for field, value in node.items()}

    def _part(self, field: str, value: Any) -> Any:
        """What stands in a field, under other names."""
        if isinstance(value, str):
            if field in _KEPT:
                return value
            return self._value(value) if field in {"value", "values"} else self.text(value)
        if isinstance(value, list):
            if field == "drivers":
                return value
            return [self._walk(item) if isinstance(item, dict) else self._part(field, item) for item in value]
        if not isinstance(value, dict) or field in _AMOUNTS:
            return value
        if field == "annotations":
            said = {key: self._said(text) for key, text in value.items() if key not in OWN_ANNOTATIONS}
            record = renamed(value.get(CREATION, ""), self._value, self._said)
            return {**said, CREATION: record} if record else said
        if field == "disruptedPods":
            return {self.text(key): at for key, at in value.items()}
        if (field in _MAPS and "nodeSelectorTerms" not in value) or (
            field == "selector" and not value.keys() & _SELECTOR
        ):
            return {key: self._value(text) for key, text in value.items()}
        return self._walk(value)
