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
    """How what is applied differs from what policies say, in their order; left-overs come last."""
    there, wanted = _by_name(applied), _by_name(compiled)
    drifts = []
    for key, obj in wanted.items():
        if key not in there:
            drifts.append(Drift(*key, "missing"))
        elif not same(there[key], obj):
            drifts.append(Drift(*key, "different"))
    others = sorted(there.keys() - wanted.keys())
    return drifts + [Drift(*key, "left-over") for key in others if is_ours(there[key])]


def _by_name(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def mode(applied: Iterable[Object], webhooks: Iterable[Object]) -> Mode:
    """Who enforces: by the bindings that are there, and by the entries of giveway's webhook configurations.

    Entries that only probe enforce nothing. Native policies are a
    backstop if pods pass while no webhook answers.
    """
    bindings = [obj for obj in applied if obj["kind"] == f"{VALIDATING}Binding"]
    bound, judges, passing = any(map(is_ours, bindings)), False, True
    for webhook in webhooks:
        for entry in webhook.get("webhooks") or ():
            name = entry.get("name", "")
            judges |= name.endswith(".validate.giveway.dev") and name not in PROBES
            if name.startswith("pods."):
                passing &= entry.get("failurePolicy") == "Ignore"
    if not judges:
        return Mode.NATIVE if bound else Mode.NONE
    if not bound:
        return Mode.WEBHOOK
    return Mode.BACKSTOP if passing else Mode.BOTH


def same(stored: Object, wanted: Object) -> bool:
    """Whether two forms of an object enforce the same."""
    return bool(filled(stored.get("spec")) == filled(wanted.get("spec")))


def is_ours(obj: Object) -> bool:
    """Whether an object was compiled by giveway."""
    labels = obj.get("metadata", {}).get("labels") or {}
    if not COMPONENT.items() <= labels.items():
        return False
    return str(obj.get("kind", "")).startswith((VALIDATING, MUTATING))
