"""PriorityClasses: those that preempt past the protections, twins, and annotations that drifted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from webhook.admission.mutating import given_earlier
from webhook.admission.resolving import NEVER, policy_of
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, names, quoted
from webhook.inspection.observed import Observed, ObservedPod
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.priority_classes import silence, speaking
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.managed_classes import shielded
from webhook.preemption.snapshot.pod_view import Profile
from webhook.preemption.victims.rules import EXPENDABLE, Rules, compile_rules

_SYSTEM = "system-"


def preempting(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes for whose pods kube-scheduler preempts, whatever a PreemptionPolicy says of the victims."""
    rules = [compile_rules(policy) for policy in observed.policies.preemption]
    if not rules:
        return
    users: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        users[pod.class_name][pod.namespace] += 1
    protected = [
        (pod.priority, says_so)
        for pod in observed.pods
        if (says_so := _protection(pod, rules, observed.classes)) is not None
    ]
    moved = {original for policy in observed.policies.preemption for original in policy.preemptors.twins}
    for name, priority_class in sorted(observed.classes.items()):
        used = users[name]
        if name.startswith(_SYSTEM) or policy_of(priority_class) == NEVER or (name in moved and not used):
            continue
        below = [says_so for priority, says_so in protected if priority < priority_class.value]
        if not below:
            continue
        # How many of the protected pods are so by an annotation of their own or of their class
        annotated = sum(below)
        said = (
            f"{counted(annotated, 'pod')} by an annotation"
            if annotated
            else "none by an annotation, they did not opt in"
        )
        by = f"used by {counted(used.total(), 'pod')}: {names(used)}" if used else "used by no pod now"
        if priority_class.global_default:
            by += ", and the global default"
        yield ClusterFinding(
            FindingSeverity.WARNING if annotated and (used or priority_class.global_default) else FindingSeverity.INFO,
            f"PriorityClass {name} (value {priority_class.value}) has preemptionPolicy PreemptLowerPriority and is"
            f" above {counted(len(below), 'running pod')} that the policies let nobody evict now ({said}); it is {by}.",
            "kube-scheduler preempts for its pods by itself. It knows neither can-be-preempted nor protection windows,"
            " and breaks disruption budgets if nothing else helps.",
            "Make a class of the same value with preemptionPolicy Never, name it as a twin in a PreemptionPolicy"
            " (docs/policies.md), and let the workloads be made again; or reserve the range of its value.",
        )


def twins(observed: Observed) -> Iterator[ClusterFinding]:
    """Twins that are missing or do not fit their class, and managed classes that preempt by themselves."""
    engine = Engine(observed.policies)
    why = "Pods of the class stay in it, so kube-scheduler preempts for them and giveway does not."
    for policy in observed.policies.preemption:
        for original, twin in policy.preemptors.twins.items():
            own, other = observed.classes.get(original), observed.classes.get(twin)
            if own is None:
                continue
            fix = f"Create PriorityClass {twin} with value {own.value} and preemptionPolicy Never."
            if other is None:
                yield ClusterFinding(
                    FindingSeverity.ERROR, f"Twin {twin} of PriorityClass {original} does not exist.", why, fix
                )
            elif other.value != own.value or policy_of(other) != NEVER:
                yield ClusterFinding(
                    FindingSeverity.ERROR,
                    f"Twin {twin} of PriorityClass {original} has value {other.value} and preemptionPolicy"
                    f" {policy_of(other)}; it needs value {own.value} and {NEVER}.",
                    why,
                    f"Both fields are immutable: delete {twin}. {fix}",
                )
    for name, priority_class in sorted(observed.classes.items()):
        managed = engine.managed(name)
        if managed is not None and managed.twin is None and policy_of(priority_class) != NEVER:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"PriorityClass {name} is managed by PreemptionPolicy {managed.policy.name}, but its preemptionPolicy"
                f" is {policy_of(priority_class)}.",
                why,
                "The field is immutable: delete the class and make it again with preemptionPolicy Never, or give it a"
                " twin in the policy.",
            )


def drifted(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods whose copied annotations say something else than their class says today."""
    copied = Engine(observed.policies).copied & shielded(observed.policies.preemption)
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        priority_class = speaking(observed.classes.get(pod.class_name), pod.priority)
        if priority_class is None or pod.namespace not in observed.reach:
            continue
        for key in copied:
            now, says = pod.annotations.get(key), (priority_class.metadata.annotations or {}).get(key)
            if now == says:
                continue
            given = given_earlier(pod.annotations, dict)
            was_copied = given is not None and key in given.still_there(pod.annotations, (key,))
            # A value that was not copied is the author's choice; one that is absent would be copied today
            if now is not None and not was_copied:
                continue
            difference = ("absent" if now is None else quoted(now), "nothing" if says is None else quoted(says))
            counts[pod.class_name, key, *difference][pod.namespace] += 1
    for (name, key, has, says), pods in sorted(counts.items()):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{counted(pods.total(), 'pod')} of PriorityClass {name}: annotation {key} is {has}, and the class says"
            f" {says} ({names(pods)}).",
            "A pod keeps what was copied when it was created, so the class promises something else than what decides:"
            " a pod that has the annotation goes by it, and a protection holds only as far as it was copied.",
            "If the class is right, let the workloads make their pods again (kubectl rollout restart); if the pods are,"
            " change the class back.",
        )


def expendable(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes whose pods cluster-autoscaler counts as gone, and that preemptors of a managed class may not evict."""
    engine = Engine(observed.policies)
    for rules in map(compile_rules, observed.policies.preemption):
        known = ((name, engine.managed(name)) for name in sorted(observed.classes))
        served = [name for name, managed in known if managed is not None and managed.policy is rules.policy]
        kept: dict[str, Counter[str]] = defaultdict(Counter)
        below = (pod for pod in observed.pods if pod.priority < EXPENDABLE and pod.node)
        for pod in below:
            evictable = _protection(pod, [rules], observed.classes) is None
            if not all(evictable and _paired(observed, rules, name, pod) for name in served):
                kept[pod.class_name][pod.namespace] += 1
        for name, pods in sorted(kept.items()):
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"{counted(pods.total(), 'pod')} of {f'PriorityClass {name}' if name else 'no PriorityClass'}, of a"
                f" priority below {EXPENDABLE}, may not be evicted by PreemptionPolicy {rules.name}: {names(pods)}.",
                f"cluster-autoscaler counts pods below {EXPENDABLE} as gone, so it adds no node for preemptors that fit"
                f" there ({', '.join(served)}), and giveway does not make it: nobody helps the preemptor.",
                f"Let these pods be evicted, give them a class of value {EXPENDABLE} or more, or lower"
                " --expendable-pods-priority-cutoff of cluster-autoscaler (docs/how-to/autoscalers.md).",
            )


def _paired(observed: Observed, rules: Rules, class_name: str, pod: ObservedPod) -> bool:
    """Whether the pairs of a policy let some preemptor of this class evict the pod."""
    space = observed.namespaces.get(pod.namespace)
    labels = {"kubernetes.io/metadata.name": pod.namespace, **((space.metadata.labels if space else None) or {})}
    return rules.pairs is None or any(
        preemptors.class_matches(class_name, observed.classes[class_name].value, observed.classes)
        and victims.class_matches(pod.class_name, pod.priority, observed.classes)
        and victims.pod_matches(pod.namespace, pod.labels, labels)
        for preemptors, victims in rules.pairs
    )


def silent(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods for which the class that they name does not speak: it is gone, or was made again with another value."""
    pods: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        if pod.class_name and speaking(observed.classes.get(pod.class_name), pod.priority) is None:
            pods[pod.class_name, pod.priority][pod.namespace] += 1
    for (name, priority), namespaces in sorted(pods.items()):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{counted(namespaces.total(), 'pod')} of PriorityClass {name} for which it does not speak:"
            f" {silence(name, observed.classes.get(name), priority)} ({names(namespaces)}).",
            "A class speaks only for pods of its own value. Those that say nothing themselves are never victims.",
            f"Make the class again with value {priority}, or let the workloads make their pods again (kubectl rollout"
            " restart).",
        )


def _protection(pod: ObservedPod, rules: list[Rules], classes: dict[str, PriorityClass]) -> bool | None:
    """None if some policy lets the pod go at once; else whether an annotation protects it, and not only silence."""
    says_so = False
    for rule in rules:
        assert rule.policy is not None
        kept = tuple(sorted((key, text) for key, text in pod.annotations.items() if key in rule.annotations))
        profile = Profile(pod.class_name, pod.priority, pod.scheduler_name, kept)
        window = rule.protection(profile)
        if rule.reason(profile, classes).may_go and not window:
            return None
        priority_class = speaking(classes.get(pod.class_name), pod.priority)
        said = {**((priority_class.metadata.annotations if priority_class else None) or {}), **pod.annotations}
        victims = rule.policy.victims
        words = victims.annotations_read - frozenset(victims.annotations.protection)
        says_so |= bool(window) or any(said.get(key) for key in words)
    return says_so
