"""Policies that match nothing in this cluster, and rules that name what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import Observed
from webhook.inspection.scope import namespace_labels
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.globs import WILDCARD, name_matcher

_WHY_NOTHING = "A policy that matches nothing looks like a guard and is none; often a name or a label was mistyped."


def matching_nothing(observed: Observed) -> Iterator[ClusterFinding]:
    """Policies for namespaces or classes that do not exist, and default classes that do not."""
    reached = {
        name: namespace_labels(name, namespace)
        for name, namespace in observed.namespaces.items()
        if name in observed.reach
    }
    for policy in observed.policies.priority:
        match = policy.match
        named = name_matcher((WILDCARD,) if match.namespaces is None else match.namespaces)
        selected = label_matcher(match.namespace_selector or LabelSelector())
        if not any(named(name) and selected(labels) for name, labels in reached.items()):
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"PriorityPolicy {policy.name} matches no namespace of this cluster.",
                _WHY_NOTHING,
                f"Compare namespaces and namespaceSelector in {PurePath(policy.source.file).name} of your policies with"
                " kubectl get namespaces --show-labels.",
            )
        for rule in policy.rules:
            name = rule.default_priority_class
            if name is not None and name not in observed.classes:
                yield ClusterFinding(
                    FindingSeverity.ERROR,
                    f"Rule {policy.name}/{rule.name} gives PriorityClass {name}, which does not exist.",
                    "The rule is passed over: pods without a class get the global default, or none.",
                    f"Create PriorityClass {name}, or name one that exists.",
                )
            body = rule.priority_classes
            absent = (
                [
                    allowed
                    for allowed in (body.allow or ())
                    if WILDCARD not in allowed and allowed not in observed.classes
                ]
                if body
                else []
            )
            if absent:
                yield ClusterFinding(
                    FindingSeverity.INFO,
                    f"Rule {policy.name}/{rule.name} allows PriorityClasses that do not exist: {names(absent)}.",
                    _WHY_NOTHING,
                    "Create them, or take them out of allow.",
                )
    engine = Engine(observed.policies)
    managing = {managed.policy.name for name in observed.classes if (managed := engine.managed(name)) is not None}
    for preemption in observed.policies.preemption:
        if preemption.name not in managing:
            yield ClusterFinding(
                FindingSeverity.INFO,
                f"PreemptionPolicy {preemption.name} manages no PriorityClass of this cluster"
                f" ({names(preemption.preemptors.priority_classes) or 'it names none'}).",
                "giveway preempts for nobody by it.",
                "Create a class of such a name, or name one that exists; docs/policies.md explains twins.",
            )
