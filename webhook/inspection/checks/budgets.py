"""PodDisruptionBudgets that protect nothing, or so much that nothing can be evicted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress

from webhook.inspection.closed_budgets import Preemptible, never_allows
from webhook.inspection.cluster_findings import ClusterFinding, finding
from webhook.inspection.observed import Observed
from webhook.kube.objects.meta import key_of
from webhook.kube.pods import SCALED
from webhook.kube.selectors import Matcher, SelectorError, label_matcher


def covering_nothing(observed: Observed) -> Iterator[ClusterFinding]:
    """Budgets that no running pod is covered by."""
    covered = {key for keys in _coverage(observed).values() for key in keys}
    for budget in observed.budgets:
        if key_of(budget) not in covered:
            yield finding("budgets-covering-nothing.budget", key=key_of(budget))


def covering_twice(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods that more than one budget covers."""
    twice: dict[tuple[str, tuple[str, ...]], Counter[str]] = defaultdict(Counter)
    coverage = _coverage(observed)
    for pod in observed.pods:
        budgets = coverage.get((pod.namespace, id(pod.labels)), [])
        if len(budgets) > 1:
            twice[pod.namespace, tuple(budgets)][pod.name] += 1
    for (namespace, several), pods in sorted(twice.items()):
        yield finding("budgets-covering-twice.pods", pods=list(pods), namespace=namespace, budgets=several)


def never_allowing(observed: Observed) -> Iterator[ClusterFinding]:
    """Budgets that never let go any of the pods that the policies may evict."""
    closed = {key_of(budget): why for budget in observed.budgets if (why := never_allows(budget))}
    if not closed:
        return
    preemptible = Preemptible(observed.policies.preemption, observed.classes)
    coverage = _coverage(observed)
    kept: dict[str, list[str]] = defaultdict(list)
    without_scale: dict[str, list[str]] = defaultdict(list)
    for pod in observed.pods:
        for key in coverage.get((pod.namespace, id(pod.labels)), []):
            without_scale[key].append("" if pod.owner[1] in SCALED else pod.owner[1] or "pod without a controller")
            if key in closed and preemptible(pod.class_name, pod.priority, pod.scheduler_name, pod.annotations):
                kept[key].append(pod.name)
    for key, pods in sorted(kept.items()):
        kinds = sorted(set(without_scale[key]) - {""})
        allow = "maxUnavailable: 1"
        if kinds:
            allow = f"minAvailable: {len(without_scale[key]) - 1}, a number, because Kubernetes counts nothing else for"
            allow += f" pods without a scale: {', '.join(kinds)}"
        yield finding("budgets-never-allowing.budget", key=key, pods=pods, reason=closed[key], allow=allow)


def _coverage(observed: Observed) -> dict[tuple[str, int], list[str]]:
    """The budgets of pods, by namespace and the identity of their labels, which equal pods share."""
    by_namespace: dict[str, list[tuple[str, Matcher]]] = defaultdict(list)
    for budget in observed.budgets:
        # A budget whose selector is not valid covers nothing
        with suppress(SelectorError):
            by_namespace[budget.metadata.namespace].append((key_of(budget), label_matcher(budget.spec.selector)))
    covered: dict[tuple[str, int], list[str]] = {}
    for pod in observed.pods:
        place = pod.namespace, id(pod.labels)
        if place not in covered and pod.namespace in by_namespace:
            covered[place] = [key for key, covers in by_namespace[pod.namespace] if covers(pod.labels)]
    return covered
