"""What a policy set allows that the one before it did not: rules that are gone, rights that are wider, softer verdicts.

A set that shrinks is more often an accident than a wish: a merge lost a file, a generator stopped halfway, somebody
tried `warn` in place of `enforce`. So whoever replaces one set by another asks here first. What cannot be compared is
not told: another expression, another order of the same parts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from webhook.policy.evaluation.managed_classes import shielded
from webhook.policy.model import Enforcement, Policies, PriorityRule
from webhook.policy.removals.preemption import given_up_by_preemption_policy
from webhook.policy.removals.priority import given_up_by_priority_policy, given_up_by_rule
from webhook.policy.removals.rights import is_within

__all__ = ["Removal", "removals"]


class Removal(msgspec.Struct, frozen=True):
    """One thing that the new set no longer refuses or holds back.

    `id` is `policy/rule`, or the policy's name if it is about the policy as a whole.
    """

    id: str
    what: str

    def __str__(self) -> str:
        """`policy/rule: what`."""
        return f"{self.id}: {self.what}"


def removals(old: Policies, new: Policies) -> list[Removal]:
    """What `new` gives up of `old`, in the order of `old`; empty if it is at least as strict."""
    priority = {policy.name: policy for policy in new.priority}
    preemption = {policy.name: policy for policy in new.preemption}
    removed: list[Removal] = []
    for policy in old.priority:
        now = priority.get(policy.name)
        removed += [Removal(policy.name, what) for what in given_up_by_priority_policy(policy, now)]
        rules = {rule.name: rule for rule in now.rules} if now else {}
        for rule in policy.rules if now else ():
            removed += [
                Removal(f"{policy.name}/{rule.name}", what) for what in given_up_by_rule(rule, rules.get(rule.name))
            ]
    removed += _grants(old, new)
    for other in old.preemption:
        given_up = given_up_by_preemption_policy(other, preemption.get(other.name))
        removed += [Removal(other.name, what) for what in given_up]
    return removed


def _grants(old: Policies, new: Policies) -> Iterator[Removal]:
    """Rules that let somebody change an annotation which was guarded without them: the rights of such rules add up.

    What stood in the same rule before is compared there; here it is what a rule newly speaks of, or speaks of in more
    places. Nothing is said of a key that everybody could change.
    """
    builtin = {(key, "UPDATE") for key in shielded(old.preemption)}
    before = {policy.name: policy for policy in old.priority}
    guarded = builtin.union(*(_decided(rule) for policy in old.priority for rule in policy.rules))
    for policy in new.priority:
        known = before.get(policy.name)
        rules = {rule.name: rule for rule in known.rules} if known else {}
        wider = known is not None and not (
            is_within(policy.match, known.match)
            and (known.exclude is None or (policy.exclude is not None and is_within(known.exclude, policy.exclude)))
            and {condition.expression for condition in known.conditions}
            <= {condition.expression for condition in policy.conditions}
        )
        for rule in policy.rules:
            if rule.declaration.rights is None and rule.name not in rules:
                what = "the rule is new, and nobody knows what rights rules of its kind give"
                yield Removal(f"{policy.name}/{rule.name}", what)
            then = _decided(rules[rule.name]) if rule.name in rules else frozenset()
            gives = bool(rule.protect_annotations and rule.protect_annotations.allow)
            granted = guarded & _decided(rule)
            keys = sorted({key for key, _ in (granted if wider else granted - then)})
            if gives and keys:
                yield Removal(f"{policy.name}/{rule.name}", f"more may change the annotations: {', '.join(keys)}")


def _decided(rule: PriorityRule) -> frozenset[tuple[str, str]]:
    """The annotations about which a rule decides, each with the operation; none under `warn` and `audit`."""
    body = rule.protect_annotations
    if body is None or rule.enforcement is not Enforcement.ENFORCE:
        return frozenset()
    return frozenset((key, operation) for key in body.keys for operation in body.operations)
