"""Who could evict a pod: for which PriorityClasses, by which rule, and from when. Acts on nothing.

Each PreemptionPolicy is asked with the rules that the decision asks (docs/semantics.md D4). kube-scheduler comes last:
it preempts by priority alone for every class that is not `Never`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from webhook.kube.objects import LabelSelector, Pod, PodSpec, PriorityClass
from webhook.policy.model import PodsMatch, PreemptionPair, PreemptionPolicy
from webhook.policy.model.globs import name_matcher
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import PodSummary
from webhook.preemption.victims.eligible import Exclusion, potential_victims, protection_ends
from webhook.preemption.victims.rules import Rules, compile_rules
from webhook.reconciler.evaluate.victim_exclusions import immovable, last_resort
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

__all__ = ["PossibleEviction", "possible_evictions"]

_NEVER = "Never"


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
    found = [_by_policy(state, policy_set, policy, view, now) for policy in policy_set.policies.preemption]
    return [*found, _by_scheduler(state, policy_set, view)]


def _by_policy(
    state: State, policy_set: PolicySet, policy: PreemptionPolicy, view: PodSummary, now: float
) -> PossibleEviction:
    """What a policy may do: its classes first, then the rules about the pod, then the pairs of the two."""
    classes = [one for one in _higher(state, view) if _acts_for(policy_set, policy, one)]
    if not classes:
        text = f"the policy manages no class above its priority {view.priority}"
        return PossibleEviction(policy.name, (), None, f"{policy.name}/priority", text)
    row = state.snapshot.pods.find(view.namespace, view.name)
    assert row is not None
    if immovable(state, ())[row]:
        text = "it is a static pod: its kubelet goes on running it, whatever the API server says"
        return PossibleEviction(policy.name, _named(classes), None, f"{policy.name}/exclusion", text)
    pairs = _pairs_with(state, policy, view)
    conditions: tuple[str, ...] = ()
    if pairs is not None:
        classes = [one for one in classes if any(_has_class(pair.preemptors, one) for pair in pairs)]
        if not classes:
            text = "no pair of the policy names it as a victim of a higher class"
            return PossibleEviction(policy.name, (), None, f"{policy.name}/pairs", text)
        conditions = _preemptors_of(pairs)
    if last_resort(state)[row]:
        conditions += ("only if nothing else makes room: its replacement could run on no other node",)
    since, rule, text = _ruled(state, policy, row, classes[-1], now)
    return PossibleEviction(policy.name, _named(classes), since, f"{policy.name}/{rule}", text, conditions)


def _ruled(
    state: State, policy: PreemptionPolicy, row: int, highest: PriorityClass, now: float
) -> tuple[float | None, str, str]:
    """From when the rules about the pod alone let it go for a preemptor of this class, which one, and why."""
    victims = msgspec.structs.replace(policy.victims, pairs=None)
    rules: Rules = compile_rules(msgspec.structs.replace(policy, victims=victims))
    incoming = compile_pod(Pod(spec=PodSpec(priority=highest.value, priority_class_name=highest.metadata.name)))
    verdicts = potential_victims(state.snapshot, incoming, rules, now)
    since = now
    ends = protection_ends(state.snapshot, rules)
    if verdicts.code[row] == Exclusion.PROTECTED and ends is not None:
        since = float(ends[row])
        if math.isinf(since):
            said = verdicts.excluded(row)
            return None, "protection", said.text if said else ""
        verdicts = potential_victims(state.snapshot, incoming, rules, since)
    excluded = verdicts.excluded(row)
    if excluded is not None:
        return None, excluded.rule.partition("/")[2], excluded.text
    grounds = verdicts.reason(row)
    return since, grounds.rule.partition("/")[2], grounds.text


def _by_scheduler(state: State, policy_set: PolicySet, view: PodSummary) -> PossibleEviction:
    """What kube-scheduler may do for classes that no policy has made `Never`."""
    classes = [
        one for one in _higher(state, view) if one.preemption_policy != _NEVER and not _is_moved(policy_set, one)
    ]
    if not classes:
        return PossibleEviction("", (), None, "priority", "no class above its priority preempts by kube-scheduler")
    text = "by priority alone: annotations and protection windows do not count, and budgets are kept only if possible"
    return PossibleEviction("", _named(classes), 0.0, "priority", text)


def _higher(state: State, view: PodSummary) -> list[PriorityClass]:
    """The classes of higher priority than the pod, the lowest first."""
    classes = [one for one in state.snapshot.classes.values() if one.value > view.priority]
    return sorted(classes, key=lambda one: (one.value, one.metadata.name))


def _acts_for(policy_set: PolicySet, policy: PreemptionPolicy, one: PriorityClass) -> bool:
    """Whether the reconciler preempts by this policy for pods of the class."""
    managed = policy_set.managed(one.metadata.name)
    return managed is not None and managed.policy is policy and not managed.twin and one.preemption_policy == _NEVER


def _is_moved(policy_set: PolicySet, one: PriorityClass) -> bool:
    """Whether the webhook moves pods of the class to its twin, which is `Never`."""
    managed = policy_set.managed(one.metadata.name)
    return managed is not None and bool(managed.twin)


def _pairs_with(state: State, policy: PreemptionPolicy, view: PodSummary) -> list[PreemptionPair] | None:
    """The policy's pairs that have the pod among their victims; None if the policy has no pairs."""
    if policy.victims.pairs is None:
        return None
    labels = state.snapshot.namespace_labels(view.namespace)
    return [
        pair
        for pair, matcher in zip(policy.victims.pairs, compile_rules(policy).pairs or (), strict=True)
        if matcher.victims.class_matches(view.profile.priority_class_name)
        and matcher.victims.pod_matches(view.namespace, view.labels, labels)
    ]


def _has_class(match: PodsMatch, one: PriorityClass) -> bool:
    names = match.priority_classes
    return names is None or name_matcher(names)(one.metadata.name)


def _preemptors_of(pairs: list[PreemptionPair]) -> tuple[str, ...]:
    """Which preemptors the pairs allow, beyond their classes; nothing if one of the pairs allows every one."""
    texts = [_described(pair.preemptors) for pair in pairs]
    return () if "" in texts else (f"if the preemptor is {' or '.join(dict.fromkeys(texts))}",)


def _described(match: PodsMatch) -> str:
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
    return tuple((one.metadata.name, one.value) for one in classes)
