"""What a PriorityPolicy gives up: requests that it is no longer about, softer verdicts, wider rights."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.kube.instants import rfc3339
from webhook.policy.model import (
    Enforcement,
    PolicyException,
    PriorityClasses,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
    RequestMatch,
    Reserve,
    Validate,
)
from webhook.policy.removals.fields import any_change, compares, gives_nothing_up, weaker
from webhook.policy.removals.rights import covers, is_within, lost, no_wider
from webhook.policy.shapes.object_shape import shape_of, yaml_name

__all__ = ["given_up_by_priority_policy", "given_up_by_rule"]

_STRICTNESS = {Enforcement.AUDIT: 0, Enforcement.WARN: 1, Enforcement.ENFORCE: 2}
_BODIES = tuple(field.attribute for field in shape_of(PriorityRule).fields if field.alternative)

gives_nothing_up(PriorityPolicy, "enforcement", "rules")  # each rule has its own, and rules are compared by name
gives_nothing_up(PriorityRule, "name")
gives_nothing_up(PolicyException, "reason", "owner")
gives_nothing_up(PolicyException, "match", "rules", "until")  # `_exceptions` compares them
gives_nothing_up(Validate, "expression", "message", "message_expression")  # another expression cannot be compared


def given_up_by_priority_policy(old: PriorityPolicy, new: PriorityPolicy | None) -> Iterator[str]:
    """How the policy applies to less than before, or lets in somebody who was refused, or for longer."""
    if new is None:
        yield f"the PriorityPolicy with its {len(old.rules)} rules is gone"
    else:
        yield from weaker(old, new)


def given_up_by_rule(old: PriorityRule, new: PriorityRule | None) -> Iterator[str]:
    """How a rule got weaker: its enforcement, its kind, or what its body says."""
    if new is None:
        yield "the rule is gone"
    else:
        yield from weaker(old, new)


@compares(PriorityPolicy, "match")
def _match(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    for field in RequestMatch.__struct_fields__:
        before, now = getattr(old.match, field), getattr(new.match, field)
        if now is not None and now != before and not covers(now, before):
            yield f"match.{yaml_name(field)} takes in less, or something else"


@compares(PriorityPolicy, "exclude")
def _exclude(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    if new.exclude is not None and (old.exclude is None or not is_within(new.exclude, old.exclude)):
        yield "exclude leaves out more" if old.exclude else "exclude is new"


@compares(PriorityPolicy, "conditions")
def _conditions(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    added = {condition.name for condition in new.conditions} - {condition.name for condition in old.conditions}
    if added:
        yield f"the conditions {', '.join(sorted(added))} are new: it applies only if they hold"


@compares(PriorityPolicy, "exceptions")
def _exceptions(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    # An exception from a rule that is new, or that refused nothing so far, gives nothing up.
    known = {rule.name for rule in old.rules if rule.enforcement is Enforcement.ENFORCE}
    for exception in new.exceptions:
        wider = [
            was
            for was in old.exceptions
            if exception.until <= was.until
            and is_within(exception.match, was.match)
            and not any(weaker(was, exception))
        ]
        excepted = {rule for was in wider for rule in was.rules}
        rules = [name for name in exception.rules if name in known and name not in excepted]
        if rules:
            until = f"{rfc3339(exception.until)} ({exception.owner})"
            yield f"an exception from {', '.join(rules)} is new, wider or longer: until {until}"


@compares(PriorityRule, "enforcement")
def _enforcement(old: PriorityRule, new: PriorityRule) -> Iterator[str]:
    if _STRICTNESS[new.enforcement] < _STRICTNESS[old.enforcement]:
        yield f"enforcement {old.enforcement.value} becomes {new.enforcement.value}"


@compares(PriorityRule, *_BODIES)
def _bodies(old: PriorityRule, new: PriorityRule) -> Iterator[str]:
    """Told by the body that the rule had, if it is still a rule of that kind."""
    attribute = next(name for name in _BODIES if getattr(old, name) is not None)
    before, now = getattr(old, attribute), getattr(new, attribute)
    if now is None:
        yield "it is a rule of another kind now"
    elif attribute == "copy_annotations":
        yield from lost("annotations are no longer copied", before, now)
    elif attribute != "default_priority_class":  # another default class refuses no less
        yield from any_change(before, now, yaml_name(attribute))


@compares(PriorityClasses, "allow", "deny")
def _classes(old: PriorityClasses, new: PriorityClasses) -> Iterator[str]:
    yield from lost("classes are no longer denied", old.deny, new.deny)
    if old.allow is not None and new.allow is None:
        yield "every class is allowed now"
    elif old.allow is not None and new.allow is not None:
        yield from lost("more classes are allowed", new.allow, old.allow)


@compares(Reserve, "from_", "to")
def _range(old: Reserve, new: Reserve) -> Iterator[str]:
    if new.from_ > old.from_ or new.to < old.to:
        yield f"the range {old.from_} to {old.to} becomes {new.from_} to {new.to}"


@compares(Reserve, "use")
def _use(old: Reserve, new: Reserve) -> Iterator[str]:
    if not no_wider(old.use, new.use):
        yield "more may use the range"


@compares(Reserve, "define")
def _define(old: Reserve, new: Reserve) -> Iterator[str]:
    if not no_wider(old.define, new.define):
        yield "more may define classes in the range"


@compares(ProtectAnnotations, "keys", "operations", "allow")
def _protected(old: ProtectAnnotations, new: ProtectAnnotations) -> Iterator[str]:
    yield from lost("annotations are no longer protected", old.keys, new.keys)
    yield from lost("operations are no longer looked at", old.operations, new.operations)
    if not no_wider(old.allow, new.allow):
        yield "more may change the annotations"


@compares(Validate, "resources")
def _resources(old: Validate, new: Validate) -> Iterator[str]:
    yield from lost("resources are no longer looked at", old.resources, new.resources)
