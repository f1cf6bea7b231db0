"""Reserved ranges: classes and pods in them that their rules would not let in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.admission.context import Objects
from webhook.admission.resolving import policy_of
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, names
from webhook.inspection.judge import CANNOT_BE_JUDGED, Existing, Judge
from webhook.inspection.makers import UNKNOWN, Maker, maker_of
from webhook.inspection.observed import Observed
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy

_WHY = "A reserved priority is what keeps others from preempting or outranking what the range is for."
_Range = tuple[str, int, int]
"""A rule, and the lowest and highest value that it reserves."""
_SEVERITIES = {"refused": FindingSeverity.ERROR, CANNOT_BE_JUDGED: FindingSeverity.INFO}


def reserved(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes and running pods in a reserved range that its rule refuses, judged as `giveway scan` judges them."""
    # The rules that reserve and no others, and their ranges
    policies: list[PriorityPolicy] = []
    ranges: list[_Range] = []
    for policy in observed.policies.priority:
        reserving = [(rule, rule.reserve) for rule in policy.rules if rule.reserve is not None]
        ranges += [(f"{policy.name}/{rule.name}", body.from_, body.to) for rule, body in reserving]
        if reserving:
            policies.append(msgspec.structs.replace(policy, rules=tuple(rule for rule, _ in reserving)))
    if not ranges:
        return
    judge = Judge(Policies(priority=tuple(policies)), Objects(observed.classes.values(), observed.namespaces.values()))
    for name, priority_class in sorted(observed.classes.items()):
        if not _in_range(priority_class.value, ranges):
            continue
        data = {
            "metadata": {"name": name},
            "value": priority_class.value,
            "preemptionPolicy": policy_of(priority_class),
        }
        existing = Existing(msgspec.json.encode(data), "priorityclasses", "", name)
        for rule, verdict in _verdicts(judge, existing, UNKNOWN, ranges):
            yield ClusterFinding(
                _SEVERITIES.get(verdict, FindingSeverity.WARNING),
                f"PriorityClass {name} has value {priority_class.value}, in a range that"
                f" rule {rule} reserves ({verdict}).",
                _WHY,
                "Delete the class when no pod uses it any more, or name it in the rule's define.",
            )
    yield from _pods(observed, judge, ranges)


def _pods(observed: Observed, judge: Judge, ranges: list[_Range]) -> Iterator[ClusterFinding]:
    """Running pods of a reserved priority; those that are alike in what rules about ranges read are judged once."""
    counts: dict[tuple[str, str, str, int], Counter[str]] = defaultdict(Counter)
    known: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
    for pod in observed.pods:
        if pod.namespace not in observed.reach or not _in_range(pod.priority, ranges):
            continue
        api_version, kind, owner = pod.owner
        alike = (pod.namespace, pod.class_name, pod.priority, pod.preemption_policy, api_version, kind, id(pod.labels))
        if alike not in known:
            owners = [{"apiVersion": api_version, "kind": kind, "name": owner, "controller": True}] if kind else []
            metadata = {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels, "ownerReferences": owners}
            spec: dict[str, Any] = {"priority": pod.priority, "preemptionPolicy": pod.preemption_policy}
            spec |= {"priorityClassName": pod.class_name} if pod.class_name else {}
            raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
            existing = Existing(raw, "pods", pod.namespace, pod.name)
            known[alike] = _verdicts(judge, existing, maker_of(owners, {}, pod.node), ranges)
        for rule, verdict in known[alike]:
            counts[rule, verdict, pod.class_name, pod.priority][pod.namespace] += 1
    for (rule, verdict, class_name, priority), pods in sorted(counts.items()):
        by = f" (PriorityClass {class_name})" if class_name else ""
        yield ClusterFinding(
            _SEVERITIES.get(verdict, FindingSeverity.WARNING),
            f"{counted(pods.total(), 'pod')} of priority {priority}{by} in a range that rule {rule} reserves:"
            f" {names(pods)} ({verdict}).",
            _WHY,
            "giveway scan says whose they are. Let the owners choose another class and make the pods again, or name the"
            " namespaces in the rule's use.",
        )


def _in_range(value: int, ranges: list[_Range]) -> bool:
    return any(start <= value <= end for _, start, end in ranges)


def _verdicts(judge: Judge, existing: Existing, maker: Maker, ranges: list[_Range]) -> list[tuple[str, str]]:
    """What the rules that reserve say, as pairs of rule and verdict."""
    rules = {rule for rule, _, _ in ranges}
    return [(said.rule, said.verdict) for said in judge.judge(existing, maker).said if said.rule in rules]
