"""Budgets that never let anybody go, by which a tenant keeps preemptible pods forever."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache

from webhook.inspection.cluster_findings import ClusterFinding, finding, sentence
from webhook.inspection.observed import Observed
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import SCALED, controller_of, sync_failure
from webhook.kube.selectors import Matcher, SelectorError, label_matcher
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.pod_view import Profile, profile_of
from webhook.preemption.victims.rules import compile_rules


def never_allows(budget: PodDisruptionBudget) -> str:
    """Why the budget lets no pod go even when all of them are healthy; empty if it lets one go then.

    What the disruption controller has counted decides. Before it has, and for the values that need no count, the spec.
    """
    spec, status = budget.spec, budget.status
    if failure := sync_failure(status):
        return f"its pods cannot be counted ({failure.message})"
    if spec.max_unavailable in (0, "0", "0%"):
        return f"its maxUnavailable is {spec.max_unavailable}"
    if spec.min_available == "100%":
        return "its minAvailable is 100%"
    if status.expected_pods == 0 < status.current_healthy:
        return "none of its pods has a controller, by whose scale it would count"
    if status.desired_healthy >= status.expected_pods > 0:
        return f"it wants {status.desired_healthy} of {status.expected_pods} pods healthy"
    return ""


def preemptible_by(policies: Iterable[PreemptionPolicy], classes: Mapping[str, PriorityClass]) -> Callable[[Pod], bool]:
    """Whether some policy may evict a pod by what it and its class say; each kind of pod is asked once."""
    compiled = [compile_rules(policy) for policy in policies]
    read = frozenset[str]().union(*(rules.annotations for rules in compiled))

    @cache
    def may_go(profile: Profile) -> bool:
        return any(rules.reason(profile, classes).may_go for rules in compiled)

    return lambda pod: may_go(profile_of(pod, read))


def by_namespace(budgets: Iterable[PodDisruptionBudget]) -> dict[str, list[tuple[PodDisruptionBudget, Matcher]]]:
    """The budgets of each namespace with whom they cover; one whose selector is not valid covers nothing."""
    matchers: dict[str, list[tuple[PodDisruptionBudget, Matcher]]] = defaultdict(list)
    for budget in budgets:
        with suppress(SelectorError):
            matchers[budget.metadata.namespace].append((budget, label_matcher(budget.spec.selector)))
    return matchers


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
    for meta in (pod.metadata for pod in observed.pods):
        budgets = coverage.get((meta.namespace, id(meta.labels)), [])
        if len(budgets) > 1:
            twice[meta.namespace, tuple(budgets)][meta.name] += 1
    for (namespace, several), pods in sorted(twice.items()):
        yield finding("budgets-covering-twice.pods", pods=list(pods), namespace=namespace, budgets=several)


def never_allowing(observed: Observed) -> Iterator[ClusterFinding]:
    """Budgets that never let go any of the pods that the policies may evict."""
    closed = {key_of(budget): why for budget in observed.budgets if (why := never_allows(budget))}
    if not closed:
        return
    preemptible = preemptible_by(observed.policies.preemption, observed.classes)
    coverage = _coverage(observed)
    kept: dict[str, list[str]] = defaultdict(list)
    without_scale: dict[str, list[str]] = defaultdict(list)
    for pod in observed.pods:
        owner = controller_of(pod.metadata)
        for key in coverage.get((pod.metadata.namespace, id(pod.metadata.labels)), []):
            kind = owner.kind if owner else "pod without a controller"
            without_scale[key].append("" if kind in SCALED else kind)
            if key in closed and preemptible(pod):
                kept[key].append(pod.metadata.name)
    for key, pods in sorted(kept.items()):
        kinds, left = sorted(set(without_scale[key]) - {""}), len(without_scale[key]) - 1
        allow = sentence("allow-number", left=left, kinds=", ".join(kinds)) if kinds else "maxUnavailable: 1"
        yield finding("budgets-never-allowing.budget", key=key, pods=pods, reason=closed[key], allow=allow)


def _coverage(observed: Observed) -> dict[tuple[str, int], list[str]]:
    """The budgets of pods, by namespace and the identity of their labels, which equal pods share."""
    budgets, covered = by_namespace(observed.budgets), dict[tuple[str, int], list[str]]()
    for meta in (pod.metadata for pod in observed.pods):
        place = meta.namespace, id(meta.labels)
        if place not in covered and meta.namespace in budgets:
            covered[place] = [key_of(row) for row, covers in budgets[meta.namespace] if covers(meta.labels or {})]
    return covered
