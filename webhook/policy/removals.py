"""What a policy set allows that the one before it did not: rules that are gone, rights that are wider, softer verdicts.

A set that shrinks is more often an accident than a wish: a file that a merge lost, a generator that stopped halfway, an
`enforce` that somebody turned to `warn` to try something. So whoever replaces one set by another asks here first.
What cannot be compared is not told: another expression, another order of the same parts. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.managed_classes import shielded
from webhook.policy.model import (
    BudgetMode,
    Definers,
    Enforcement,
    EvictionMode,
    ExtenderConfig,
    Limits,
    Policies,
    PolicyException,
    PreemptionPolicy,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
    Rate,
    RequestMatch,
    Reserve,
    VictimMode,
)
from webhook.policy.shapes.object_shape import shape_of, yaml_name

__all__ = ["Removal", "removals"]

_STRICTNESS = {Enforcement.AUDIT: 0, Enforcement.WARN: 1, Enforcement.ENFORCE: 2}


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
    found: list[Removal] = []
    for policy in old.priority:
        found += _priority_policy(policy, priority.get(policy.name))
    found += _grants(old, new)
    for other in old.preemption:
        found += _preemption_policy(other, preemption.get(other.name))
    return found


def _priority_policy(old: PriorityPolicy, new: PriorityPolicy | None) -> Iterator[Removal]:
    if new is None:
        yield Removal(old.name, f"the PriorityPolicy with its {len(old.rules)} rules is gone")
        return
    for what in _scope(old, new):
        yield Removal(old.name, what)
    for what in _excepted(old, new):
        yield Removal(old.name, what)
    rules = {rule.name: rule for rule in new.rules}
    for rule in old.rules:
        now = rules.get(rule.name)
        gone = ["the rule is gone"] if now is None else _rule(rule, now)
        yield from (Removal(f"{old.name}/{rule.name}", each) for each in gone)


def _scope(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    """How the policy applies to less than before."""
    for field in RequestMatch.__struct_fields__:
        before, now = getattr(old.match, field), getattr(new.match, field)
        if now is not None and now != before and not _covers(now, before):
            yield f"match.{yaml_name(field)} takes in less, or something else"
    if new.exclude is not None and not _narrower(new.exclude, old.exclude):
        yield "exclude leaves out more" if old.exclude else "exclude is new"
    added = {one.name for one in new.conditions} - {one.name for one in old.conditions}
    if added:
        yield f"the conditions {', '.join(sorted(added))} are new: it applies only if they hold"


def _excepted(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    """Exceptions that let in somebody who was refused, or for longer. An exception from a new rule gives nothing up."""
    known = {rule.name for rule in old.rules}
    for one in new.exceptions:
        rules = [name for name in one.rules if name in known and not _was_excepted(one, name, old.exceptions)]
        if rules:
            until = rfc3339(one.until)
            yield f"an exception from {', '.join(rules)} is new, wider or longer: until {until} ({one.owner})"


def _was_excepted(one: PolicyException, rule: str, before: Iterable[PolicyException]) -> bool:
    """Whether whoever is let in was let in before, at least as long."""
    return any(rule in was.rules and one.until <= was.until and _is_within(one.match, was.match) for was in before)


def _covers(now: Any, before: Any) -> bool:
    """Whether a list of alternatives takes in all that another one did; a selector only if it is the same."""
    return isinstance(now, tuple) and isinstance(before, tuple) and set(before) <= set(now)


def _narrower(new: RequestMatch, old: RequestMatch | None) -> bool:
    """Whether an exclusion takes in no more than before."""
    return old is not None and _is_within(new, old)


def _rule(old: PriorityRule, new: PriorityRule) -> Iterator[str]:
    """How a rule got weaker: its enforcement, its kind, or what its body says."""
    if _STRICTNESS[new.enforcement] < _STRICTNESS[old.enforcement]:
        yield f"enforcement {old.enforcement.value} becomes {new.enforcement.value}"
    for body in shape_of(PriorityRule).fields:
        before, now = getattr(old, body.attribute), getattr(new, body.attribute)
        if not body.alternative or before is None:
            continue
        if now is None:
            yield "it is a rule of another kind now"
        elif body.attribute in _COMPARED:
            yield from _COMPARED[body.attribute](before, now)
        elif now != before:
            yield f"{body.name} says something else"


def _classes(old: Any, new: Any) -> Iterator[str]:
    yield from _lost("classes are no longer denied", old.deny, new.deny)
    if old.allow is not None and new.allow is None:
        yield "every class is allowed now"
    elif old.allow is not None:
        yield from _lost("more classes are allowed", new.allow, old.allow)


def _reserve(old: Reserve, new: Reserve) -> Iterator[str]:
    if new.from_ > old.from_ or new.to < old.to:
        yield f"the range {old.from_} to {old.to} becomes {new.from_} to {new.to}"
    if not _rights(old.use, new.use):
        yield "more may use the range"
    if not _rights(old.define, new.define):
        yield "more may define classes in the range"


def _shield(old: ProtectAnnotations, new: ProtectAnnotations) -> Iterator[str]:
    yield from _lost("annotations are no longer protected", old.keys, new.keys)
    yield from _lost("operations are no longer looked at", old.operations, new.operations)
    if not _rights(old.allow, new.allow):
        yield "more may change the annotations"


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
        wider = known is not None and _reaches_further(known, policy)
        for rule in policy.rules:
            then = _decided(rules[rule.name]) if rule.name in rules else frozenset()
            gives = bool(rule.protect_annotations and rule.protect_annotations.allow)
            granted = guarded & _decided(rule)
            keys = sorted({key for key, _ in (granted if wider else granted - then)})
            if gives and keys:
                yield Removal(f"{policy.name}/{rule.name}", f"more may change the annotations: {', '.join(keys)}")


def _reaches_further(old: PriorityPolicy, new: PriorityPolicy) -> bool:
    """Whether the policy applies to more than before, so that what its rules give is given to more."""
    excluded = old.exclude is None or _narrower(old.exclude, new.exclude)
    dropped = {one.expression for one in old.conditions} - {one.expression for one in new.conditions}
    return not _narrower(new.match, old.match) or not excluded or bool(dropped)


def _decided(rule: PriorityRule) -> frozenset[tuple[str, str]]:
    """The annotations about which a rule decides, each with the operation; none under `warn` and `audit`."""
    body = rule.protect_annotations
    if body is None or rule.enforcement is not Enforcement.ENFORCE:
        return frozenset()
    return frozenset((key, operation) for key in body.keys for operation in body.operations)


_COMPARED: dict[str, Callable[[Any, Any], Iterable[str]]] = {
    "default_priority_class": lambda _before, _now: (),
    "priority_classes": _classes,
    "reserve": _reserve,
    "copy_annotations": lambda before, now: _lost("annotations are no longer copied", before, now),
    "protect_annotations": _shield,
    "validate": lambda before, now: _lost("resources are no longer looked at", before.resources, now.resources),
}
"""What a body gives up of the one before, by the field of the rule. Of any other body, every change is told."""


def _rights(old: Sequence[RequestMatch | Definers], new: Sequence[RequestMatch | Definers]) -> bool:
    """Whether every alternative of a right stood there before, or is a narrower form of one that did."""
    return all(any(_is_within(right, one) for one in old) for right in new)


def _is_within(new: RequestMatch | Definers, old: RequestMatch | Definers) -> bool:
    """Whether what gives or excludes takes in no more than before: every part as it was, stricter, or added."""
    if isinstance(new, RequestMatch) and isinstance(old, RequestMatch) and _gains_controllers(new, old):
        return False
    for field in old.__struct_fields__:
        before, now = getattr(old, field), getattr(new, field)
        if before is not None and now != before and (now is None or not _covers(before, now)):
            return False
    return True


def _gains_controllers(new: RequestMatch, old: RequestMatch) -> bool:
    """Whether namespaces were added to subjects alone: that takes in all that service accounts make there."""
    return old.subjects is not None and new.by_namespace and not old.by_namespace


def _lost(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Elements of the first that the second lacks."""
    gone = [one for one in old if one not in set(new)]
    if gone:
        yield f"{what}: {', '.join(gone)}"


def _preemption_policy(old: PreemptionPolicy, new: PreemptionPolicy | None) -> Iterator[Removal]:
    """What a PreemptionPolicy no longer protects, and whom it no longer serves."""
    if new is None:
        yield Removal(old.name, "the PreemptionPolicy is gone: nothing preempts for pods of its classes")
        return
    for what in (*_served(old, new), *_protected(old, new), *_limited(old.limits, new.limits)):
        yield Removal(old.name, what)


def _served(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    before, now = old.preemptors, new.preemptors
    yield from _lost("classes are no longer managed", before.priority_classes, now.priority_classes)
    yield from _lost("classes have no twin any more", tuple(before.twins), tuple(now.twins))
    yield from _lost("schedulers are no longer served", before.scheduler_names, now.scheduler_names)


def _protected(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    """How a PreemptionPolicy protects less than before: who is a victim, budgets, time to end, windows."""
    if old.victims.mode is VictimMode.OPT_IN and new.victims.mode is VictimMode.OPT_OUT:
        yield "pods need no longer opt in to be evicted"
    yield from _lost(
        "more annotations make a pod preemptible",
        new.victims.annotations.preemptible,
        old.victims.annotations.preemptible,
    )
    yield from _lost(
        "annotations no longer protect", old.victims.annotations.protection, new.victims.annotations.protection
    )
    yield from _lost("pods of more schedulers may be evicted", new.victims.scheduler_names, old.victims.scheduler_names)
    pairs = old.victims.pairs
    if pairs is not None and not (new.victims.pairs is not None and all(one in pairs for one in new.victims.pairs)):
        yield "more pairs of preemptors and victims are allowed"
    if old.budgets is BudgetMode.STRICT and new.budgets is BudgetMode.BEST_EFFORT:
        yield "budgets may be broken"
    if old.eviction is EvictionMode.EVICT and new.eviction is EvictionMode.DELETE:
        yield "victims are deleted instead of evicted"
    if new.grace_period is not None and (old.grace_period is None or new.grace_period < old.grace_period):
        yield f"victims have only {new.grace_period} s to end"
    yield from _extenders(old.extenders, new.extenders)
    if new.protection.default < old.protection.default:
        yield f"pods are protected for {new.protection.default:g} s instead of {old.protection.default:g} s"
    if new.protection.maximum is not None and new.protection.maximum < (old.protection.maximum or float("inf")):
        yield f"pods may ask for at most {new.protection.maximum:g} s of protection"


def _extenders(old: Sequence[ExtenderConfig], new: Sequence[ExtenderConfig]) -> Iterator[str]:
    """Who could keep a victim or a node out, and cannot any more."""
    now = {(one.url_prefix, one.preempt_verb): one for one in new}
    for one in old:
        found = now.get((one.url_prefix, one.preempt_verb))
        address = f"{one.url_prefix}/{one.preempt_verb}"
        if found is None:
            yield f"the extender {address} is no longer asked"
        elif found.ignorable and not one.ignorable:
            yield f"the extender {address} is passed over if it fails"
        elif found.managed_resources and not set(one.managed_resources or ("",)) <= set(found.managed_resources):
            yield f"the extender {address} is asked about fewer pods"


def _limited(old: Limits, new: Limits) -> Iterator[str]:
    for field, name in (("per_owner", "perOwner"), ("per_node", "perNode"), ("per_cluster", "perCluster")):
        before: Rate | None = getattr(old, field)
        now: Rate | None = getattr(new, field)
        if before is not None and now is None:
            yield f"the limit {name} is gone"
        elif (
            before is not None and now is not None and (now.evictions > before.evictions or now.window < before.window)
        ):
            yield f"the limit {name} allows more evictions"
    if new.attempts_per_preemptor > old.attempts_per_preemptor:
        yield f"attemptsPerPreemptor rises from {old.attempts_per_preemptor} to {new.attempts_per_preemptor}"
