"""What mutation gave a new pod, written on the pod, so that a second call takes back what does not hold any more.

Another webhook may change the class after giveway, and the API server then calls giveway again with the same pod
(`reinvocationPolicy: IfNeeded`). A value that was copied and one that the user set look the same by then. So the
annotation `giveway.dev/given` says which class the pod had after the first call and what was copied to it.

A user who sends the annotation achieves nothing: `metadata.managedFields` show that a client set it, and then it
counts for nothing and is taken off. Without any managedFields (`giveway review`, tests) it is believed; all it can do
then is to have a value that policies copy treated as if the pod had been sent without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from webhook.admission.decode import PodSpecView
from webhook.admission.lookup import Lookup
from webhook.admission.resolving import owned, policy_of
from webhook.policy.model import GIVEN

__all__ = ["Given", "encode", "given_earlier"]

_LONGEST = 64 * 1024
_LONGEST_VALUE = 64


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """`name` is the PriorityClass the pod had after the call; `copied` are annotations with their values.

    Of a value longer than 64 characters the digest is kept instead.
    """

    name: str = msgspec.field(default="", name="class")
    copied: dict[str, str] = {}

    def still_there(self, annotations: Mapping[str, str], copyable: Collection[str]) -> set[str]:
        """The keys that were copied and have not been changed since."""
        return {
            key
            for key, value in self.copied.items()
            if key in copyable and key in annotations and _brief(annotations[key]) == value
        }

    def as_sent(self, spec: PodSpecView, lookup: Lookup) -> PodSpecView:
        """The spec without the numbers of the class it had, if another class was named since."""
        before = lookup.priority_class(self.name)
        if (spec.priority_class_name or "") == self.name or before is None:
            return spec
        if (spec.priority, spec.preemption_policy) != (before.value, policy_of(before)):
            return spec
        return PodSpecView(priority_class_name=spec.priority_class_name)


_decoder = msgspec.json.Decoder(Given)


def encode(name: str, copied: Mapping[str, str]) -> str:
    """The annotation's text, compact JSON: the class that the pod has now, and what was copied to it."""
    return _encoded(name, tuple(copied.items()))


@lru_cache(1024)
def _encoded(name: str, copied: tuple[tuple[str, str], ...]) -> str:
    """The text; the pods of one class mostly get the same."""
    return msgspec.json.encode(Given(name, {key: _brief(value) for key, value in copied})).decode()


def given_earlier(annotations: Mapping[str, str], sent: Callable[[], dict[str, Any]]) -> Given | None:
    """What an earlier call gave this pod; None in the first call, whatever a client wrote. `sent` is the whole pod."""
    text = annotations.get(GIVEN)
    if text is None or len(text) > _LONGEST:
        return None
    if any(f"f:{GIVEN}" in keys for keys in owned(sent(), "metadata", "annotations")):
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _brief(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    return "sha256:" + hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()
