"""PriorityClasses: those that preempt past the protections, twins, drifted annotations, and reserved ranges."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from webhook.admission.context import Objects
from webhook.admission.mutating import given_earlier
from webhook.admission.resolving import NEVER, PREEMPT, policy_of
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, finding, names, quoted
from webhook.inspection.judge import CANNOT_BE_JUDGED, Existing, Judge, maker_of
from webhook.inspection.observed import Observed
from webhook.inspection.reading import namespace_labels
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import KubeObject, ObjectMeta
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.kube.pods import controller_of, silence, speaking
from webhook.policy.evaluation.engine import Engine, shielded
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Reserve
from webhook.preemption.snapshot.pod_view import profile_of
from webhook.preemption.victims.rules import EXPENDABLE, Rules, compile_rules

_SYSTEM = "system-"


def preempting(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes for whose pods kube-scheduler preempts, whatever a PreemptionPolicy says of the victims."""
    rules = [compile_rules(policy) for policy in observed.policies.preemption]
    if not rules:
        return
    users: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        users[pod.spec.priority_class_name][pod.metadata.namespace] += 1
    protected = [
        (pod.spec.priority or 0, says_so)
        for pod in observed.pods
        if (says_so := _protection(pod, rules, observed.classes)) is not None
    ]
    moved = {original for policy in observed.policies.preemption for original in policy.preemptors.twins}
    for name, priority_class in sorted(observed.classes.items()):
        used = users[name]
        if name.startswith(_SYSTEM) or policy_of(priority_class) == NEVER or (name in moved and not used):
            continue
        if not (below := [says_so for priority, says_so in protected if priority < priority_class.value]):
            continue
        # How many of the protected pods are so by an annotation of their own or of their class
        annotated = sum(below)
        by_annotation = f"{counted(annotated, 'pod')} by an annotation"
        said = by_annotation if annotated else "none by an annotation, they did not opt in"
        value, severity = priority_class.value, FindingSeverity.INFO
        if annotated and (used or priority_class.global_default):
            severity = FindingSeverity.WARNING
        by = f"used by {counted(used.total(), 'pod')}: {names(used)}" if used else "used by no pod now"
        if priority_class.global_default:
            by += ", and the global default"
        yield finding(
            "preempting-classes.above", severity=severity, name=name, value=value, below=below, said=said, by=by
        )


def twins(observed: Observed) -> Iterator[ClusterFinding]:
    """Twins that are missing or do not fit their class, and managed classes that preempt by themselves."""
    engine = Engine(observed.policies)
    for policy in observed.policies.preemption:
        for original, twin in policy.preemptors.twins.items():
            own, other = observed.classes.get(original), observed.classes.get(twin)
            if own is None:
                continue
            told: dict[str, Any] = {"twin": twin, "original": original, "own": own}
            if other is None:
                yield finding("twins.gone", **told)
            elif other.value != own.value or policy_of(other) != NEVER:
                yield finding("twins.other", other=other, policy=policy_of(other), **told)
    for name, priority_class in sorted(observed.classes.items()):
        managed = engine.managed(name)
        if managed is not None and managed.twin is None and policy_of(priority_class) != NEVER:
            yield finding("twins.managed", name=name, managed=managed, policy=policy_of(priority_class))


def drifted(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods whose copied annotations say something else than their class says today."""
    copied = Engine(observed.policies).copied & shielded(observed.policies.preemption)
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        name, namespace = pod.spec.priority_class_name, pod.metadata.namespace
        annotations = pod.metadata.annotations or {}
        priority_class = speaking(observed.classes.get(name), pod.spec.priority)
        if priority_class is None or namespace not in observed.reach:
            continue
        for key in copied:
            now, says = annotations.get(key), (priority_class.metadata.annotations or {}).get(key)
            if now == says:
                continue
            given = given_earlier(annotations)
            was_copied = given is not None and key in given.still_there(annotations, (key,))
            # A value that was not copied is the author's choice; one that is absent would be copied today
            if now is not None and not was_copied:
                continue
            difference = ("absent" if now is None else quoted(now), "nothing" if says is None else quoted(says))
            counts[name, key, *difference][namespace] += 1
    for (name, key, has, says), pods in sorted(counts.items()):
        yield finding("drifted-annotations.differ", pods=pods, name=name, key=key, has=has, says=says)


def expendable(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes whose pods cluster-autoscaler counts as gone, and that preemptors of a managed class may not evict."""
    engine = Engine(observed.policies)
    for rules in map(compile_rules, observed.policies.preemption):
        known = ((name, engine.managed(name)) for name in sorted(observed.classes))
        served = [name for name, managed in known if managed is not None and managed.policy is rules.policy]
        kept: dict[str, Counter[str]] = defaultdict(Counter)
        below = (pod for pod in observed.pods if (pod.spec.priority or 0) < EXPENDABLE and pod.spec.node_name)
        for pod in below:
            evictable = _protection(pod, [rules], observed.classes) is None
            if not all(evictable and _paired(observed, rules, name, pod) for name in served):
                kept[pod.spec.priority_class_name][pod.metadata.namespace] += 1
        for name, pods in sorted(kept.items()):
            of = f"PriorityClass {name}" if name else "no PriorityClass"
            yield finding(
                "expendable-pods.kept", pods=pods, of=of, below=EXPENDABLE, rules=rules, served=", ".join(served)
            )


def _paired(observed: Observed, rules: Rules, class_name: str, pod: Pod) -> bool:
    """Whether the pairs of a policy let some preemptor of this class evict the pod."""
    spec, meta = pod.spec, pod.metadata
    labels = namespace_labels(meta.namespace, observed.namespaces.get(meta.namespace))
    return rules.pairs is None or any(
        preemptors.class_matches(class_name, observed.classes[class_name].value, observed.classes)
        and victims.class_matches(spec.priority_class_name, spec.priority or 0, observed.classes)
        and victims.pod_matches(meta.namespace, meta.labels or {}, labels)
        for preemptors, victims in rules.pairs
    )


def silent(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods for which the class that they name does not speak: it is gone, or was made again with another value."""
    pods: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        name, priority = pod.spec.priority_class_name, pod.spec.priority or 0
        if name and speaking(observed.classes.get(name), priority) is None:
            pods[name, priority][pod.metadata.namespace] += 1
    for (name, priority), namespaces in sorted(pods.items()):
        said = silence(name, observed.classes.get(name), priority)
        yield finding("silent-classes.silent", pods=namespaces, name=name, priority=priority, silence=said)


def _protection(pod: Pod, rules: list[Rules], classes: dict[str, PriorityClass]) -> bool | None:
    """None if some policy lets the pod go at once; else whether an annotation protects it, and not only silence."""
    says_so = False
    for rule in rules:
        assert rule.policy is not None
        profile = profile_of(pod, rule.annotations)
        window = rule.protection(profile)
        if rule.reason(profile, classes).may_go and not window:
            return None
        priority_class = speaking(classes.get(pod.spec.priority_class_name), pod.spec.priority)
        of_class = priority_class.metadata.annotations if priority_class else None
        said = {**(of_class or {}), **(pod.metadata.annotations or {})}
        victims = rule.policy.victims
        words = victims.annotations_read - frozenset(victims.annotations.protection)
        says_so |= bool(window) or any(said.get(key) for key in words)
    return says_so


_SEVERITIES = {"refused": FindingSeverity.ERROR, CANNOT_BE_JUDGED: FindingSeverity.INFO}


def reserved(observed: Observed) -> Iterator[ClusterFinding]:
    """Classes and running pods in a reserved range that its rule refuses, judged as `giveway scan` judges them.

    Pods that are alike in what rules about ranges read are judged once.
    """
    policies, bodies = list[PriorityPolicy](), dict[str, Reserve]()
    for policy in observed.policies.priority:
        if rules := tuple(rule for rule in policy.rules if rule.reserve is not None):
            policies.append(msgspec.structs.replace(policy, rules=rules))
        bodies |= {f"{policy.name}/{rule.name}": rule.reserve for rule in rules if rule.reserve is not None}
    judge = Judge(Policies(priority=tuple(policies)), Objects(observed.classes.values(), observed.namespaces.values()))

    @cache
    def verdicts(existing: Existing) -> list[tuple[str, str]]:
        """What the rules that reserve say, as pairs of rule and verdict."""
        maker = maker_of(msgspec.json.decode(existing.raw, type=KubeObject).metadata, "")
        return [(row.rule, row.verdict) for row in judge.judge(existing, maker).said if row.rule in bodies]

    def is_reserved(value: int) -> bool:
        return any(body.from_ <= value <= body.to for body in bodies.values())

    for name, priority_class in sorted(observed.classes.items()):
        value, data = priority_class.value, {"metadata": {"name": name}, "preemptionPolicy": policy_of(priority_class)}
        existing = Existing(msgspec.json.encode({**data, "value": value}), "priorityclasses", "", name)
        for rule, verdict in verdicts(existing) if is_reserved(value) else ():
            # Who made a class is not stored: it may be by whom the rule lets
            who = "-of-somebody" if verdict == CANNOT_BE_JUDGED else ""
            yield finding(f"reserved-ranges.class{who}", name=name, value=value, **_judged(rule, verdict))
    counts: dict[tuple[str, str, str, int], Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        namespace, spec = pod.metadata.namespace, pod.spec
        name, priority = spec.priority_class_name, spec.priority or 0
        if namespace not in observed.reach or not is_reserved(priority):
            continue
        owner = controller_of(pod.metadata)
        owners = [msgspec.structs.replace(owner, name="owner", uid="")] if owner else []
        metadata = ObjectMeta(name="pod", namespace=namespace, labels=pod.metadata.labels, owner_references=owners)
        preempts = spec.preemption_policy or PREEMPT
        judged = PodSpec(priority=priority, preemption_policy=preempts, priority_class_name=name)
        raw = msgspec.json.encode(Pod(metadata=metadata, spec=judged))
        for rule, verdict in verdicts(Existing(raw, "pods", namespace, "pod")):
            counts[rule, verdict, name, priority][namespace] += 1
    for (rule, verdict, class_name, priority), pods in sorted(counts.items()):
        by = f" (PriorityClass {class_name})" if class_name else ""
        yield finding("reserved-ranges.pods", pods=pods, priority=priority, by=by, **_judged(rule, verdict))


def _judged(rule: str, verdict: str) -> dict[str, Any]:
    """What a rule says, and how much that matters."""
    return {"rule": rule, "verdict": verdict, "severity": _SEVERITIES.get(verdict, FindingSeverity.WARNING)}
