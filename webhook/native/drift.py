"""What is applied beside what the policies say, and which of the three ways of running is in force. Pure."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from webhook.native.objects import COMPONENT, MUTATING, VALIDATING, Object, filled
from webhook.registration.entries import PROBES


class Drift(msgspec.Struct, frozen=True):
    """One object that is not as it should be: `missing`, `different`, or `left-over` from other policies."""

    kind: str
    name: str
    how: str

    def __str__(self) -> str:
        """`ValidatingAdmissionPolicy NAME is missing`."""
        return f"{self.kind} {self.name} is {self.how.replace('-', ' ')}"


class Mode(StrEnum):
    """Who enforces the policies (docs/native-policies.md)."""

    NONE = "nobody"
    WEBHOOK = "webhook only"
    BACKSTOP = "webhook with native policies as a backstop"
    BOTH = "webhook and native policies; pods wait for the webhook all the same"
    NATIVE = "native policies only"


def drift(applied: Iterable[Object], compiled: Iterable[Object]) -> list[Drift]:
    """How what is applied differs from what the policies say, in the order of what they say; left-overs come last.

    Only objects with giveway's labels count as left over. What the
    API server adds makes no difference.
    """
    there, wanted = _by_name(applied), _by_name(compiled)
    equal = {key for key in there if key in wanted and same(there[key], wanted[key])}
    different = [key for key in wanted if key not in equal]
    left_over = sorted(key for key, obj in there.items() if key not in wanted and is_ours(obj))
    drifts = [Drift(*key, "different" if key in there else "missing") for key in different]
    return drifts + [Drift(*key, "left-over") for key in left_over]


def _by_name(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def mode(applied: Iterable[Object], webhooks: Iterable[Object]) -> Mode:
    """Who enforces: by the bindings that are there, and by the entries of giveway's webhook configurations.

    Entries that only probe enforce nothing. Native policies are a
    backstop if pods pass while no webhook answers.
    """
    bound = any(is_ours(obj) and obj["kind"] == f"{VALIDATING}Binding" for obj in applied)
    entries: dict[str, Object] = {}
    for webhook in webhooks:
        entries.update({entry.get("name", ""): entry for entry in webhook.get("webhooks") or ()})
    if not any(name.endswith(".validate.giveway.dev") for name in entries.keys() - PROBES):
        return Mode.NATIVE if bound else Mode.NONE
    passing = all(row.get("failurePolicy") == "Ignore" for name, row in entries.items() if name.startswith("pods."))
    return (Mode.BACKSTOP if passing else Mode.BOTH) if bound else Mode.WEBHOOK


def same(stored: Object, wanted: Object) -> bool:
    """Whether two forms of an object enforce the same."""
    return bool(filled(stored.get("spec")) == filled(wanted.get("spec")))


def is_ours(obj: Object) -> bool:
    """Whether an object was compiled by giveway."""
    labels = obj.get("metadata", {}).get("labels") or {}
    kind = str(obj.get("kind", ""))
    return COMPONENT.items() <= labels.items() and kind.startswith((VALIDATING, MUTATING))
