"""Who could evict a pod: for which PriorityClasses, by which rule, and from when. Acts on nothing.

Each PreemptionPolicy is asked by the rules of its decisions (docs/semantics.md D4). kube-scheduler comes last:
it preempts by priority alone for every class that is not `Never`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from operator import attrgetter

from webhook.kube.objects.pod import Pod, PodSpec
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.eligible import Exclusion, matched_pods, potential_victims, protection_ends
from webhook.preemption.victims.rules import Rules, compile_rules
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.state import State

_STEPS = 10
"""Ends of protection and beginnings of schedules that are followed."""


@dataclass(frozen=True, slots=True)
class PossibleEviction:
    """What one policy, or kube-scheduler (an empty `policy`), may do to the pod for some classes.

    `classes` are names and values, the lowest first. `since` is from when it may, in seconds since the epoch:
    the past for now, None if it may not as things are. `rule` is `policy/rule`, `text` a sentence for people.
    The `conditions` have to hold as well.
    """

    policy: str
    classes: tuple[tuple[str, int], ...]
    since: float | None
    rule: str
    text: str
    conditions: tuple[str, ...] = ()


def possible_evictions(state: State, policy_set: PolicySet, key: str, now: float) -> list[PossibleEviction]:
    """What can be said of the pod (key); empty for one on no node. `now` is as `since`."""
    namespace, _, name = key.rpartition("/")
    snapshot, pods = state.snapshot, state.snapshot.pods
    row = pods.find(namespace, name)
    if row is None or pods.node[row] < 0:
        return []
    # 1. By whom each higher class preempts: the webhook moves the pods of a twin to that.
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for class_ in sorted(snapshot.classes.values(), key=attrgetter("value", "metadata.name")):
        name, value = class_.metadata.name, class_.value
        managed = policy_set.managed(name)
        if value <= pods.priority[row] or (managed is not None and managed.twin):
            continue
        if class_.preemption_policy != "Never":
            classes[""].append((name, value))
        elif managed is not None:
            classes[managed.policy.name].append((name, value))
    # 2. What each policy may do for its classes, and kube-scheduler for the others.
    policies = policy_set.policies.preemption
    possible = [_by_policy(state, policy, row, classes[policy.name], now) for policy in policies]
    since, text = None, "no class above its priority preempts by kube-scheduler"
    if classes[""]:
        since, text = 0.0, "by priority alone: annotations and protection windows do not count,"
        text += " and budgets are kept only if possible"
    return [*possible, PossibleEviction("", tuple(classes[""]), since, "priority", text)]


def _by_policy(
    state: State, policy: PreemptionPolicy, row: int, classes: list[tuple[str, int]], now: float
) -> PossibleEviction:
    """What a policy may do for these classes: by its pairs, then by its rules."""
    snapshot, rules, conditions = state.snapshot, compile_rules(policy), list[str]()
    if not classes:
        text = f"the policy manages no class above its priority {snapshot.pods.priority[row]}"
        return PossibleEviction(policy.name, (), None, f"{policy.name}/priority", text)
    if rules.pairs is not None:
        named = [own for own, victims in rules.pairs if matched_pods(snapshot, victims)[row]]
        known = snapshot.classes
        classes = [each for each in classes if any(own.class_matches(*each, known) for own in named)]
        if not classes:
            text = "no pair of the policy names it as a victim of a higher class"
            return PossibleEviction(policy.name, (), None, f"{policy.name}/pairs", text)
        conditions.append("only if the policy's pairs name the preemptor")
    if state.index.last_resort()[row]:
        conditions.append("only if nothing else makes room: its replacement could run on no other node")
    if policy.schedule is not None:
        conditions.append(f"only by the policy's schedule: {policy.schedule}")
    since, rule, text = _ruled(state, replace(rules, pairs=None), row, classes[-1], now)
    return PossibleEviction(policy.name, tuple(classes), since, rule, text, tuple(conditions))


def _ruled(state: State, rules: Rules, row: int, class_: tuple[str, int], now: float) -> tuple[float | None, str, str]:
    """From when, by which rule and text preemptors of the class may evict the pod.

    The time is None for never.
    """
    since, (name, priority) = now, class_
    schedule = rules.policy.schedule if rules.policy else None
    incoming = compile_pod(Pod(spec=PodSpec(priority=priority, priority_class_name=name)))
    for _ in range(_STEPS):
        # 1. The pod's protection window ends, if its schedule does not end before.
        verdicts = potential_victims(state.snapshot, incoming, rules, since)
        ends = protection_ends(state.snapshot, rules, since, priority)
        if verdicts.code[row] == Exclusion.PROTECTED and ends is not None:
            if math.isinf(ends[row]):
                break
            since = float(ends[row])
        # 2. The policy evicts by a schedule.
        elif schedule is not None and not schedule.holds(since):
            if (begins := schedule.begins(since)) is None:
                return None, f"{rules.name}/schedule", rules.outside(since)
            since = begins
        else:
            break
    excluded = verdicts.excluded(row)
    if excluded is not None:
        return None, excluded.rule, excluded.text
    grounds = verdicts.reason(row)
    return since, grounds.rule, grounds.text
