"""Who may set, change or remove protected annotations on a pod.

Rules that enforce give rights, and rights add up: a change is allowed when any of them that speaks of the key
and the operation allows it. If none speaks of a preemptibility key, the built-in rule `builtin/shield` holds:
everyone may at CREATE, nobody at UPDATE. Rules under `warn` and `audit` are on trial: they report, and give nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from webhook.policy.evaluation.attributes import RequestAttributes
from webhook.policy.evaluation.describing import quoted, rights_text
from webhook.policy.evaluation.matching import anyone_of, matcher
from webhook.policy.evaluation.verdict import Verdict
from webhook.policy.model import Enforcement, PriorityPolicy, PriorityRule, ProtectAnnotations

__all__ = ["BUILTIN", "SHIELD", "AnnotationChange", "Shield", "changes", "compile_shield", "shield_verdicts"]

BUILTIN, SHIELD = "builtin", "shield"
"""Policy and rule name of what holds if no policy speaks."""

AnnotationChange = tuple[str | None, str | None]
"""An annotation before and after; None is absent."""


@dataclass(frozen=True, slots=True)
class Shield:
    """A compiled `protectAnnotations` rule."""

    policy: str
    rule: str
    enforcement: Enforcement
    keys: frozenset[str]
    operations: tuple[str, ...]
    may: Callable[[RequestAttributes], bool]
    who: str

    def speaks_of(self, key: str, operation: str) -> bool:
        """Whether the rule decides about this key in this operation."""
        return key in self.keys and operation in self.operations


def compile_shield(policy: PriorityPolicy, rule: PriorityRule, body: ProtectAnnotations) -> Shield:
    """Compile a `protectAnnotations` body; the policy's own `match` is part of the right, and holds as what gives."""
    within, allowed = matcher(policy.match, gives=True), anyone_of(body.allow)
    return Shield(
        policy.name,
        rule.name,
        rule.enforcement,
        frozenset(body.keys),
        body.operations,
        lambda attributes: within(attributes) is None and allowed(attributes),
        rights_text(body.allow),
    )


def changes(attributes: RequestAttributes, keys: Iterable[str]) -> dict[str, AnnotationChange]:
    """Which of these annotations the request sets, changes or removes.

    At CREATE an annotation that says what the PriorityClass says counts as copied from it, not as set.
    """
    new, old = attributes.annotations, attributes.old_annotations
    if attributes.operation == "CREATE":
        given = attributes.request.priority_class
        copied: Mapping[str, str] = (given.metadata.annotations if given else None) or {}
        return {key: (None, new[key]) for key in keys if key in new and copied.get(key) != new[key]}
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def shield_verdicts(
    attributes: RequestAttributes,
    changed: Mapping[str, AnnotationChange],
    shields: list[Shield],
    builtin: frozenset[str],
) -> list[Verdict]:
    """What the rules that apply, or else the built-in one, say of these changes."""
    verdicts: list[Verdict] = []
    for key, change in sorted(changed.items()):
        speaking = [shield for shield in shields if shield.speaks_of(key, attributes.operation)]
        binding = [shield for shield in speaking if shield.enforcement is Enforcement.ENFORCE]
        verdicts += _bound(attributes, key, change, binding)
        verdicts += [_one(attributes, key, change, shield) for shield in speaking if shield not in binding]
        if not binding and key in builtin and attributes.operation == "UPDATE":
            verdicts.append(Verdict(BUILTIN, SHIELD, Enforcement.ENFORCE, "deny", _text(attributes, key, change, None)))
    return verdicts


def _bound(attributes: RequestAttributes, key: str, change: AnnotationChange, binding: list[Shield]) -> list[Verdict]:
    granting = next((shield for shield in binding if shield.may(attributes)), None)
    if granting is not None:
        return [Verdict(granting.policy, granting.rule, granting.enforcement, "allow")]
    return [_one(attributes, key, change, shield) for shield in binding]


def _one(attributes: RequestAttributes, key: str, change: AnnotationChange, shield: Shield) -> Verdict:
    if shield.may(attributes):
        return Verdict(shield.policy, shield.rule, shield.enforcement, "allow")
    return Verdict(shield.policy, shield.rule, shield.enforcement, "deny", _text(attributes, key, change, shield))


def _text(attributes: RequestAttributes, key: str, change: AnnotationChange, shield: Shield | None) -> str:
    rule = f"{shield.policy}/{shield.rule}" if shield else f"{BUILTIN}/{SHIELD}"
    who = shield.who if shield else "nobody once the pod exists"
    text = f"annotation {key} may not be {_did(change)}: rule {rule} leaves that to {who}"
    if attributes.operation == "UPDATE":
        text += "; set it in the pod template or on the PriorityClass, where it holds for new pods"
    return text


def _did(change: AnnotationChange) -> str:
    before, after = change
    if before is None:
        return f"set to {quoted(after or '')}"
    if after is None:
        return f"removed (it is {quoted(before)})"
    return f"changed from {quoted(before)} to {quoted(after)}"
