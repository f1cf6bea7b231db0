"""What a policy set allows that the one before it did not: rules that are gone, rights that are wider, softer verdicts.

A set that shrinks is more often an accident than a wish: a file that a merge lost, a generator that stopped halfway, an
`enforce` that somebody turned to `warn` to try something. So whoever replaces one set by another asks here first.
What cannot be compared is not told: another expression, another order of the same parts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.managed_classes import shielded
from webhook.policy.model import (
    BudgetMode,
    Definers,
    Enforcement,
    EvictionMode,
    Policies,
    PreemptionPolicy,
    PriorityClasses,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
    RequestMatch,
    Reserve,
    Validate,
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
        if policy.name not in priority:
            what = f"the PriorityPolicy with its {len(policy.rules)} rules is gone"
            found.append(Removal(policy.name, what))
            continue
        found += [Removal(policy.name, what) for what in _scope(policy, priority[policy.name])]
        rules = {rule.name: rule for rule in priority[policy.name].rules}
        for rule in policy.rules:
            weaker = _rule(rule, rules[rule.name]) if rule.name in rules else ["the rule is gone"]
            found += [Removal(f"{policy.name}/{rule.name}", what) for what in weaker]
    found += _grants(old, new)
    for other in old.preemption:
        gone = ["the PreemptionPolicy is gone: nothing preempts for pods of its classes"]
        lost = _preemption_policy(other, preemption[other.name]) if other.name in preemption else gone
        found += [Removal(other.name, what) for what in lost]
    return found


def _scope(old: PriorityPolicy, new: PriorityPolicy) -> Iterator[str]:
    """How the policy applies to less than before, or lets in somebody who was refused, or for longer."""
    for field in RequestMatch.__struct_fields__:
        before, now = getattr(old.match, field), getattr(new.match, field)
        if now is not None and now != before and not _covers(now, before):
            yield f"match.{yaml_name(field)} takes in less, or something else"
    if new.exclude is not None and not _narrower(new.exclude, old.exclude):
        yield "exclude leaves out more" if old.exclude else "exclude is new"
    added = {one.name for one in new.conditions} - {one.name for one in old.conditions}
    if added:
        yield f"the conditions {', '.join(sorted(added))} are new: it applies only if they hold"
    known = {rule.name for rule in old.rules}  # an exception from a new rule gives nothing up
    for one in new.exceptions:
        wider = [was for was in old.exceptions if one.until <= was.until and _is_within(one.match, was.match)]
        excepted = {rule for was in wider for rule in was.rules}
        rules = [name for name in one.rules if name in known and name not in excepted]
        if rules:
            until = rfc3339(one.until)
            yield f"an exception from {', '.join(rules)} is new, wider or longer: until {until} ({one.owner})"


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
        else:
            yield from _body(body.name, before, now)


def _body(name: str, old: Any, new: Any) -> Iterator[str]:
    """What a body gives up of the one before. Of one that nobody taught to compare, every change is told."""
    match old:
        case PriorityClasses():
            yield from _lost("classes are no longer denied", old.deny, new.deny)
            if old.allow is not None and new.allow is None:
                yield "every class is allowed now"
            elif old.allow is not None:
                yield from _lost("more classes are allowed", new.allow, old.allow)
        case Reserve():
            if new.from_ > old.from_ or new.to < old.to:
                yield f"the range {old.from_} to {old.to} becomes {new.from_} to {new.to}"
            if not _rights(old.use, new.use):
                yield "more may use the range"
            if not _rights(old.define, new.define):
                yield "more may define classes in the range"
        case ProtectAnnotations():
            yield from _lost("annotations are no longer protected", old.keys, new.keys)
            yield from _lost("operations are no longer looked at", old.operations, new.operations)
            if not _rights(old.allow, new.allow):
                yield "more may change the annotations"
        case Validate():
            yield from _lost("resources are no longer looked at", old.resources, new.resources)
        case tuple():
            yield from _lost("annotations are no longer copied", old, new)
        case str():
            return  # another default class refuses no less
        case _ if new != old:
            yield f"{name} says something else"


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
            _narrower(policy.match, known.match)
            and (known.exclude is None or _narrower(known.exclude, policy.exclude))
            and {one.expression for one in known.conditions} <= {one.expression for one in policy.conditions}
        )
        for rule in policy.rules:
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


def _rights(old: Sequence[RequestMatch | Definers], new: Sequence[RequestMatch | Definers]) -> bool:
    """Whether every alternative of a right stood there before, or is a narrower form of one that did."""
    return all(any(_is_within(right, one) for one in old) for right in new)


def _is_within(new: RequestMatch | Definers, old: RequestMatch | Definers) -> bool:
    """Whether what gives or excludes takes in no more than before: every part as it was, stricter, or added.

    Namespaces that are added to subjects alone take in more: all that service accounts make there.
    """
    if isinstance(new, RequestMatch) and isinstance(old, RequestMatch):
        controllers = old.subjects is not None and new.by_namespace and not old.by_namespace
        if controllers:
            return False
    for field in old.__struct_fields__:
        before, now = getattr(old, field), getattr(new, field)
        if before is not None and now != before and (now is None or not _covers(before, now)):
            return False
    return True


def _lost(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Elements of the first that the second lacks."""
    gone = [one for one in old if one not in set(new)]
    if gone:
        yield f"{what}: {', '.join(gone)}"


def _preemption_policy(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    """Whom a PreemptionPolicy no longer serves, what it no longer protects, and how much more it may evict."""
    before, now = old.preemptors, new.preemptors
    yield from _lost("classes are no longer managed", before.priority_classes, now.priority_classes)
    yield from _lost("classes have no twin any more", tuple(before.twins), tuple(now.twins))
    yield from _lost("schedulers are no longer served", before.scheduler_names, now.scheduler_names)
    yield from _protected(old, new)
    for field in ("per_owner", "per_node", "per_cluster"):
        limit, then = getattr(new.limits, field), getattr(old.limits, field)
        if then is not None and limit is None:
            yield f"the limit {yaml_name(field)} is gone"
        elif then is not None and (limit.evictions > then.evictions or limit.window < then.window):
            yield f"the limit {yaml_name(field)} allows more evictions"
    attempts, were = new.limits.attempts_per_preemptor, old.limits.attempts_per_preemptor
    if attempts > were:
        yield f"attemptsPerPreemptor rises from {were} to {attempts}"


def _protected(old: PreemptionPolicy, new: PreemptionPolicy) -> Iterator[str]:
    """How a PreemptionPolicy protects less than before: who is a victim, budgets, time to end, extenders, windows."""
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
    asked = {(one.url_prefix, one.preempt_verb): one for one in new.extenders}
    for one in old.extenders:
        now = asked.get((one.url_prefix, one.preempt_verb))
        address = f"{one.url_prefix}/{one.preempt_verb}"
        if now is None:
            yield f"the extender {address} is no longer asked"
        elif now.ignorable and not one.ignorable:
            yield f"the extender {address} is passed over if it fails"
        elif now.managed_resources and not set(one.managed_resources or ("",)) <= set(now.managed_resources):
            yield f"the extender {address} is asked about fewer pods"
    if new.protection.default < old.protection.default:
        yield f"pods are protected for {new.protection.default:g} s instead of {old.protection.default:g} s"
    if new.protection.maximum is not None and new.protection.maximum < (old.protection.maximum or float("inf")):
        yield f"pods may ask for at most {new.protection.maximum:g} s of protection"
