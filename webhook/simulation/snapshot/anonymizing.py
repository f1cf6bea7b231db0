"""Other names for everything, the same one everywhere: selectors still match, and nobody learns who runs what.

A name is replaced part by part, between its dashes, dots and slashes, by an HMAC under a key that is thrown away. So
`web-5d4f-abc12` still begins as its ReplicaSet `web-5d4f` does. Numbers of up to three digits stay: they are ordinals.
Kept are label keys, PriorityClasses, schedulers, resources and provisioners, and the words that a policy names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from typing import Any

import msgspec

from webhook.policy.model import OWN_ANNOTATIONS
from webhook.simulation.snapshot.objects import Kind

__all__ = ["Anonymizer"]

_PARTS = re.compile(r"([-./_:]+)")
_ORDINAL = re.compile(r"\d{1,3}")
_NUMBER = re.compile(r"[+-]?\d+")
_LENGTH = 6
_NAMES = frozenset(
    {"name", "namespace", "generateName", "uid", "nodeName", "nominatedNodeName", "claimName", "volumeName",
     "storageClassName", "volumeHandle", "hostIP", "volumeID", "pdName", "diskName", "diskURI"}
)  # fmt: skip
"""Fields whose text is a name."""
_MAPS = frozenset({"labels", "matchLabels", "nodeSelector"})
"""Fields with label keys and values."""
_LISTS = frozenset({"namespaces", "finalizers"})
_AS_THEY_ARE = frozenset({"requests", "limits", "allocatable", "capacity", "drivers", "declaredFeatures"})
_SELECTOR = frozenset({"matchLabels", "matchExpressions"})


class Anonymizer:
    """Replaces names; `words` stay as they are, because policies name them."""

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
        found = self._known.get(text)
        if found is None:
            found = ""
            for at, part in enumerate(_PARTS.split(text)):
                if at % 2 or not part or _ORDINAL.fullmatch(part) or part in self._words:
                    found += part
                else:
                    found += f"x{hmac.new(self._key, part.encode(), hashlib.sha256).hexdigest()[:_LENGTH]}"
            if len(self._known) < 1_000_000:
                self._known[text] = found
        return found

    def _value(self, text: str) -> str:
        """A label's value; numbers stay, since `Gt` and `Lt` compare them."""
        return text if _NUMBER.fullmatch(text) or text in {"true", "false"} else self.text(text)

    def _walk(self, node: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for field, value in node.items():
            if field == "annotations":
                changed[field] = {key: text for key, text in value.items() if key not in OWN_ANNOTATIONS}
            elif field in _AS_THEY_ARE:
                changed[field] = value
            elif field in _MAPS or (field == "selector" and not value.keys() & _SELECTOR):
                changed[field] = {key: self._value(text) for key, text in value.items()}
            elif field == "disruptedPods":
                changed[field] = {self.text(key): text for key, text in value.items()}
            elif field == "values" or (field == "value" and isinstance(value, str)):
                changed[field] = [self._value(one) for one in value] if isinstance(value, list) else self._value(value)
            elif isinstance(value, dict):
                changed[field] = self._walk(value)
            elif isinstance(value, list) and field in _LISTS:
                changed[field] = [self.text(one) for one in value]
            elif isinstance(value, list):
                changed[field] = [self._walk(one) if isinstance(one, dict) else one for one in value]
            else:
                changed[field] = self.text(value) if field in _NAMES and isinstance(value, str) else value
        return changed
