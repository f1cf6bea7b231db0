"""PodDisruptionBudgets that protect nothing, or so much that nothing can be evicted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, names
from webhook.inspection.observed import Observed
from webhook.kube.objects import key_of
from webhook.kube.selectors import Matcher, SelectorError, label_matcher

__all__ = ["covering_nothing", "covering_twice"]


def covering_nothing(observed: Observed) -> Iterator[ClusterFinding]:
    """Budgets that no running pod is covered by."""
    covered = {key for keys in _coverage(observed).values() for key in keys}
    for budget in observed.budgets:
        if key_of(budget) not in covered:
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"PodDisruptionBudget {key_of(budget)} covers no running pod.",
                "It looks like a protection and is none. Often a label was renamed, or the budget is in another"
                " namespace than the pods.",
                "Compare spec.selector with the labels of the pods it is meant for; delete it if they are gone.",
            )


def covering_twice(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods that more than one budget covers."""
    twice: dict[tuple[str, tuple[str, ...]], Counter[str]] = defaultdict(Counter)
    coverage = _coverage(observed)
    for pod in observed.pods:
        budgets = coverage.get((pod.namespace, id(pod.labels)), [])
        if len(budgets) > 1:
            twice[pod.namespace, tuple(budgets)][pod.name] += 1
    for (namespace, several), pods in sorted(twice.items()):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{counted(len(pods), 'pod')} in {namespace} covered by {len(several)} budgets, {names(several)}:"
            f" {names(list(pods))}.",
            "The Eviction API refuses to evict a pod that several budgets cover: neither giveway nor kubectl drain can"
            " ever move it.",
            "Change the selectors so that each pod is covered by one budget.",
        )


def _coverage(observed: Observed) -> dict[tuple[str, int], list[str]]:
    """The budgets of pods, by namespace and the identity of their labels, which equal pods share."""
    by_namespace: dict[str, list[tuple[str, Matcher]]] = defaultdict(list)
    for budget in observed.budgets:
        # A budget whose selector is not valid covers nothing
        with suppress(SelectorError):
            by_namespace[budget.metadata.namespace].append((key_of(budget), label_matcher(budget.spec.selector)))
    found: dict[tuple[str, int], list[str]] = {}
    for pod in observed.pods:
        place = pod.namespace, id(pod.labels)
        if place not in found and pod.namespace in by_namespace:
            found[place] = [key for key, covers in by_namespace[pod.namespace] if covers(pod.labels)]
    return found
