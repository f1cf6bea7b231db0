"""Who could evict a pod: for which PriorityClasses, by which rule, and from when. Acts on nothing.

Each PreemptionPolicy is asked with the rules that the decision asks (docs/semantics.md D4). kube-scheduler comes last:
it preempts by priority alone for every class that is not `Never`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.kube.objects.pod import Pod, PodSpec
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.eligible import Exclusion, matched_pods, potential_victims, protection_ends
from webhook.preemption.victims.rules import Rules, compile_rules
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
    namespace, _, name = key.rpartition("/")
    row, pods = state.snapshot.pods.find(namespace, name), state.snapshot.pods
    if row is None or pods.node[row] < 0:
        return []
    # 1. By whom the pods of each higher class preempt: by no twin's, since the webhook moves those to the other class.
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    higher = [class_ for class_ in state.snapshot.classes.values() if class_.value > pods.priority[row]]
    for class_ in sorted(higher, key=lambda class_: (class_.value, class_.metadata.name)):
        managed = policy_set.managed(class_.metadata.name)
        by_scheduler = class_.preemption_policy != _NEVER
        if (by_scheduler or managed is not None) and (managed is None or not managed.twin):
            by = "" if by_scheduler or managed is None else managed.policy.name
            classes[by].append((class_.metadata.name, class_.value))
    # 2. What each policy may do for its classes, and kube-scheduler for the others.
    policies = policy_set.policies.preemption
    possible = [_by_policy(state, policy, row, classes[policy.name], now) for policy in policies]
    since, text = None, "no class above its priority preempts by kube-scheduler"
    if classes[""]:
        since, text = 0.0, "by priority alone: annotations and protection windows do not count, and budgets are kept"
        text += " only if possible"
    return [*possible, PossibleEviction("", tuple(classes[""]), since, "priority", text)]


def _by_policy(
    state: State, policy: PreemptionPolicy, row: int, classes: list[tuple[str, int]], now: float
) -> PossibleEviction:
    """What a policy may do for these classes: the pairs that have the pod as a victim, then the rules about the pod."""
    if not classes:
        text = f"the policy manages no class above its priority {state.snapshot.pods.priority[row]}"
        return PossibleEviction(policy.name, (), None, f"{policy.name}/priority", text)
    conditions = []
    if (pairs := compile_rules(policy).pairs) is not None:
        known = state.snapshot.classes
        named = [own.class_matches for own, victims in pairs if matched_pods(state.snapshot, victims)[row]]
        classes = [(name, value) for name, value in classes if any(matches(name, value, known) for matches in named)]
        if not classes:
            text = "no pair of the policy names it as a victim of a higher class"
            return PossibleEviction(policy.name, (), None, f"{policy.name}/pairs", text)
        conditions.append("only if the policy's pairs name the preemptor")
    if state.index.last_resort()[row]:
        conditions.append("only if nothing else makes room: its replacement could run on no other node")
    if policy.schedule is not None:
        conditions.append(f"only by the policy's schedule: {policy.schedule}")
    since, rule, text = _ruled(state, policy, row, classes[-1], now)
    return PossibleEviction(policy.name, tuple(classes), since, rule, text, tuple(conditions))


def _ruled(
    state: State, policy: PreemptionPolicy, row: int, highest: tuple[str, int], now: float
) -> tuple[float | None, str, str]:
    """What the rules say of the pod for any preemptor of the class of this name: since when, which rule, its text.

    The time is None if the rules never let it go.
    """
    name, priority = highest
    victims = replace(policy.victims, pairs=None)
    rules: Rules = compile_rules(replace(policy, victims=victims))
    incoming = compile_pod(Pod(spec=PodSpec(priority=priority, priority_class_name=name)))
    since = now
    for _ in range(_STEPS):
        # 1. The protection window of the pod ends, if its schedule does not end before.
        verdicts = potential_victims(state.snapshot, incoming, rules, since)
        ends = protection_ends(state.snapshot, rules, since, priority)
        if verdicts.code[row] == Exclusion.PROTECTED and ends is not None:
            if math.isinf(ends[row]):
                break
            since = float(ends[row])
        # 2. The policy evicts by a schedule.
        elif policy.schedule is not None and not policy.schedule.holds(since):
            begins = policy.schedule.begins(since)
            if begins is None:
                return None, f"{policy.name}/schedule", rules.outside(since)
            since = begins
        else:
            break
    excluded = verdicts.excluded(row)
    if excluded is not None:
        return None, excluded.rule, excluded.text
    grounds = verdicts.reason(row)
    return since, grounds.rule, grounds.text
