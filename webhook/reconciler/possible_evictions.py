"""Who could evict a pod: for which PriorityClasses, by which rule, and from when. Acts on nothing.

Each PreemptionPolicy is asked with the rules that the decision asks (docs/semantics.md D4). kube-scheduler comes last:
it preempts by priority alone for every class that is not `Never`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.victims import PodsMatch
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import PodSummary
from webhook.preemption.victims.eligible import Exclusion, potential_victims, protection_ends
from webhook.preemption.victims.rules import Rules, compile_rules
from webhook.reconciler.evaluate.victim_exclusions import immovable, last_resort
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

_NEVER = "Never"
_STEPS = 10
"""Ends of protection and beginnings of schedules that are followed, one after the other."""


@dataclass(frozen=True, slots=True)
class PossibleEviction:
    """What one policy, or kube-scheduler (an empty `policy`), may do to the pod for preemptors of some classes.

    `classes` are names and values, the lowest first. `since` is from when it may, in seconds since the epoch: the past
    for now, None if it may not for as long as nothing changes. `rule` is `policy/rule`, `text` the sentence for
    people, and `conditions` is what else has to hold.
    """

    policy: str
    classes: tuple[tuple[str, int], ...]
    since: float | None
    rule: str
    text: str
    conditions: tuple[str, ...] = ()


def possible_evictions(state: State, policy_set: PolicySet, key: str, now: float) -> list[PossibleEviction]:
    """All there is to say of the pod `namespace/name`; empty for one that is on no node. `now` is as `since`."""
    view = state.snapshot.pod(key)
    if view is None or not view.node:
        return []
    higher = [class_ for class_ in state.snapshot.classes.values() if class_.value > view.priority]
    higher.sort(key=lambda class_: (class_.value, class_.metadata.name))
    managed = {class_.metadata.name: policy_set.managed(class_.metadata.name) for class_ in higher}
    # 1. What each policy may do, for the classes for which the reconciler preempts by it.
    possible = []
    for policy in policy_set.policies.preemption:
        classes = [
            class_
            for class_ in higher
            if (known := managed[class_.metadata.name]) is not None
            and (known.policy is policy and not known.twin and class_.preemption_policy == _NEVER)
        ]
        possible.append(_by_policy(state, policy, view, classes, now))
    # 2. What kube-scheduler may do, for classes that are not `Never` and whose pods the webhook moves to no twin.
    classes = [
        class_
        for class_ in higher
        if class_.preemption_policy != _NEVER and ((known := managed[class_.metadata.name]) is None or not known.twin)
    ]
    text = "by priority alone: annotations and protection windows do not count, and budgets are kept only if possible"
    if not classes:
        text = "no class above its priority preempts by kube-scheduler"
    possible.append(PossibleEviction("", _named(classes), 0.0 if classes else None, "priority", text))
    return possible


def _by_policy(
    state: State, policy: PreemptionPolicy, view: PodSummary, classes: list[PriorityClass], now: float
) -> PossibleEviction:
    """What a policy may do for these classes: the pairs that have the pod as a victim, then the rules about the pod."""
    if not classes:
        text = f"the policy manages no class above its priority {view.priority}"
        return PossibleEviction(policy.name, (), None, f"{policy.name}/priority", text)
    row = state.snapshot.pods.find(view.namespace, view.name)
    assert row is not None
    if immovable(state, ())[row]:
        text = "it is a static pod: its kubelet goes on running it, whatever the API server says"
        return PossibleEviction(policy.name, _named(classes), None, f"{policy.name}/exclusion", text)
    conditions: tuple[str, ...] = ()
    if policy.victims.pairs is not None:
        labels, known = state.snapshot.namespace_labels(view.namespace), state.snapshot.classes
        matchers = compile_rules(policy).pairs or ()
        pairs = [
            (pair, preemptors)
            for pair, (preemptors, victims) in zip(policy.victims.pairs, matchers, strict=True)
            if victims.class_matches(view.profile.priority_class_name, view.priority, known)
            and victims.pod_matches(view.namespace, view.labels_at_creation, labels)
        ]
        named = [own.class_matches for _, own in pairs]
        classes = [row for row in classes if any(matches(row.metadata.name, row.value, known) for matches in named)]
        if not classes:
            text = "no pair of the policy names it as a victim of a higher class"
            return PossibleEviction(policy.name, (), None, f"{policy.name}/pairs", text)
        # A pair that names no more than classes allows every preemptor of them.
        texts = [_described(pair.preemptors) for pair, _ in pairs]
        conditions = () if "" in texts else (f"if the preemptor is {' or '.join(dict.fromkeys(texts))}",)
    if last_resort(state)[row]:
        conditions += ("only if nothing else makes room: its replacement could run on no other node",)
    if policy.schedule is not None:
        conditions += (f"only by the policy's schedule: {policy.schedule}",)
    since, rule, text = _ruled(state, policy, row, classes[-1], now)
    return PossibleEviction(policy.name, _named(classes), since, f"{policy.name}/{rule}", text, conditions)


def _ruled(
    state: State, policy: PreemptionPolicy, row: int, highest: PriorityClass, now: float
) -> tuple[float | None, str, str]:
    """What the rules say of the pod for any preemptor of this class: since when, which rule, its text.

    The time is None if the rules never let it go.
    """
    victims = msgspec.structs.replace(policy.victims, pairs=None)
    rules: Rules = compile_rules(msgspec.structs.replace(policy, victims=victims))
    incoming = compile_pod(Pod(spec=PodSpec(priority=highest.value, priority_class_name=highest.metadata.name)))
    since = now
    for _ in range(_STEPS):
        # 1. The protection window of the pod ends, if its schedule does not end before.
        verdicts = potential_victims(state.snapshot, incoming, rules, since)
        ends = protection_ends(state.snapshot, rules, since, highest.value)
        if verdicts.code[row] == Exclusion.PROTECTED and ends is not None:
            if math.isinf(ends[row]):
                break
            since = float(ends[row])
        # 2. The policy evicts by a schedule.
        elif policy.schedule is not None and not policy.schedule.holds(since):
            begins = policy.schedule.begins(since)
            if begins is None:
                return None, "schedule", rules.outside(since)
            since = begins
        else:
            break
    excluded = verdicts.excluded(row)
    if excluded is not None:
        return None, excluded.rule.partition("/")[2], excluded.text
    grounds = verdicts.reason(row)
    return since, grounds.rule.partition("/")[2], grounds.text


def _described(match: PodsMatch) -> str:
    """Which pods it matches, beyond their classes; empty for all of them."""
    parts = []
    if match.namespaces is not None:
        parts.append(f"in namespace {' or '.join(match.namespaces)}")
    if match.namespace_selector is not None:
        parts.append(f"in a namespace with {_selector(match.namespace_selector)}")
    if match.labels is not None:
        parts.append(f"labelled {_selector(match.labels)}")
    return " and ".join(parts)


def _selector(selector: LabelSelector) -> str:
    """A label selector as kubectl writes it."""
    exact = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    rows = [f"{row.key} {row.operator} ({', '.join(row.values or ())})" for row in selector.match_expressions or ()]
    return ", ".join(exact + rows) or "any label"


def _named(classes: list[PriorityClass]) -> tuple[tuple[str, int], ...]:
    return tuple((class_.metadata.name, class_.value) for class_ in classes)
