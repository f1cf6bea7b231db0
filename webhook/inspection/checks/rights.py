"""Rights that get round what giveway guards, from the cluster's RBAC objects: who has them, and what they allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from webhook.inspection.closed_budgets import Preemptible
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, names
from webhook.inspection.observed import Observed
from webhook.policy.model.creation import labels_recorded, not_recorded
from webhook.policy.model.match import NODE_USER
from webhook.policy.model.values import CREATION, MARK

Json = dict[str, Any]


class Way(NamedTuple):
    """Something that a right allows; `own` says that it matters in giveway's namespace only."""

    what: str
    group: str
    resource: str
    verbs: frozenset[str]
    own: bool
    severity: FindingSeverity
    why: str


_WRITE = frozenset({"patch", "update"})
_STATUS = Way(
    "write the status of pods (pods/status)",
    "",
    "pods/status",
    _WRITE,
    False,
    FindingSeverity.WARNING,
    "status.startTime decides how long a pod is protected, within bounds, and status.nominatedNodeName keeps room for"
    " it. The webhook judges the annotations there, not the status.",
)
_PODS = _STATUS._replace(what="write pods", resource="pods")
_WAYS = (
    _STATUS,
    Way(
        "change webhook configurations",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        _WRITE | {"delete"},
        False,
        FindingSeverity.INFO,
        "Whoever may change or delete them can switch giveway off.",
    ),
    Way(
        "change Namespaces",
        "",
        "namespaces",
        _WRITE,
        False,
        FindingSeverity.INFO,
        "The label giveway.dev/exempt takes a namespace out of giveway's reach; the component exempt-label guards it.",
    ),
    Way(
        "write ConfigMaps in giveway's namespace",
        "",
        "configmaps",
        _WRITE,
        True,
        FindingSeverity.INFO,
        "The policies are a ConfigMap: whoever writes it decides who may run at which priority.",
    ),
    Way(
        "read Secrets in giveway's namespace",
        "",
        "secrets",
        frozenset({"get", "list", "watch"}),
        True,
        FindingSeverity.INFO,
        "The key of the authority is there: with it one can answer the API server in the webhook's place.",
    ),
    Way(
        "impersonate nodes, as any other user",
        "",
        "users",
        frozenset({"impersonate"}),
        False,
        FindingSeverity.INFO,
        "No rule judges the mirror pods that a kubelet makes of its own node's static pods, and nobody evicts them.",
    ),
    Way(
        "act as service accounts of giveway's namespace",
        "",
        "serviceaccounts/token",
        frozenset({"create"}),
        True,
        FindingSeverity.INFO,
        "As the reconciler one may write plans, nominations and evictions.",
    ),
)
_EVERYBODY = frozenset(
    {"Group system:authenticated", "Group system:unauthenticated", "Group system:serviceaccounts"},
)
_KUBERNETES = frozenset(
    {
        "Group system:masters",
        "Group system:nodes",
        "User system:apiserver",
        "User system:kube-controller-manager",
        "User system:kube-scheduler",
    }
)
_FIX = "kubectl get clusterrolebindings,rolebindings -A -o wide shows the bindings; take away those that nobody needs."


class BoundRole(NamedTuple):
    """A role's rules for some subjects; `namespace` is empty if they hold everywhere."""

    namespace: str
    subjects: list[str]
    rules: list[Json]


def around_the_shield(observed: Observed) -> Iterator[ClusterFinding]:
    """Who, beside administrators and Kubernetes' own parts, may go round what giveway guards."""
    for way in _WAYS:
        with_right = _holders(observed, way)
        everybody = [subject for subject in with_right if subject in _EVERYBODY]
        if everybody:
            yield ClusterFinding(
                FindingSeverity.ERROR, f"Everybody ({names(everybody)}) may {way.what}.", way.why, _FIX
            )
        others = _shown(with_right, but=_EVERYBODY)
        if others:
            yield ClusterFinding(way.severity, f"May {way.what}: {names(others)}.", way.why, _FIX)


def unrecorded(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods of which policies read labels or groups as they are now, because no record tells how they were made."""
    policies = observed.policies.preemption
    group = ["group"] if any(policy.reads_groups for policy in policies) else []
    preemptible = Preemptible(policies, observed.classes)
    pods: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        if MARK in pod.labels or preemptible(pod.class_name, pod.priority, pod.scheduler_name, pod.annotations):
            labels = not_recorded(pod.annotations, labels_recorded(policies) or ())
            for what in [*(f"label {label}" for label in labels), *([] if CREATION in pod.annotations else group)]:
                pods[what][pod.namespace] += 1
    who = _shown(_holders(observed, _STATUS) | _holders(observed, _PODS)) if pods else []
    for what, namespaces in sorted(pods.items()):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{counted(namespaces.total(), 'pod')} whose {what} counts as it is now, because it was not recorded when"
            f" they were made: {names(namespaces)}.",
            "Whoever may patch pods or their status makes victims of them, or keeps them from being ones:"
            f" {names(who) if who else 'administrators alone'}.",
            "Let the workloads make their pods again (kubectl rollout restart).",
        )


def _holders(observed: Observed, way: Way) -> dict[str, set[str]]:
    """Who has a right, beside administrators and Kubernetes' own parts, and in which namespaces; empty for all."""
    known = list(grants(observed))
    administrators = {
        subject
        for grant in known
        if not grant.namespace and any(_allows(rule, "*", "*", frozenset({"*"})) for rule in grant.rules)
        for subject in grant.subjects
    }
    parts = ("ServiceAccount kube-system/", f"ServiceAccount {observed.own}/giveway-")
    holders: dict[str, set[str]] = defaultdict(set)
    for grant in known:
        if way.own and grant.namespace not in ("", observed.own):
            continue
        if any(_allows(rule, way.group, way.resource, way.verbs) for rule in grant.rules):
            for subject in grant.subjects:
                holders[subject].add(grant.namespace)
    return {
        subject: where
        for subject, where in holders.items()
        if subject not in administrators and subject not in _KUBERNETES and not subject.startswith(parts)
    }


def _shown(holders: dict[str, set[str]], but: frozenset[str] = frozenset()) -> list[str]:
    """The holders of a right for people, with their namespaces."""
    return sorted(
        subject if "" in where else f"{subject} in {names(sorted(where))}"
        for subject, where in holders.items()
        if subject not in but
    )


def grants(observed: Observed) -> Iterator[BoundRole]:
    """Every binding with the rules of its role; subjects are `User alice`, `Group dev`, `ServiceAccount team-a/ci`."""
    roles = {("ClusterRole", "", row["metadata"]["name"]): row for row in observed.objects["clusterroles"]}
    roles |= {("Role", row["metadata"]["namespace"], row["metadata"]["name"]): row for row in observed.objects["roles"]}
    for plural in ("clusterrolebindings", "rolebindings"):
        for binding in observed.objects[plural]:
            namespace = binding["metadata"].get("namespace", "")
            ref = binding.get("roleRef") or {}
            kind = ref.get("kind", "")
            role = roles.get((kind, namespace if kind == "Role" else "", ref.get("name", "")))
            subjects = []
            for subject in binding.get("subjects") or ():
                within = subject.get("namespace") or namespace
                place = f"{within}/" if subject.get("kind") == "ServiceAccount" else ""
                subjects.append(f"{subject.get('kind', '')} {place}{subject.get('name', '')}")
            if role is not None and subjects:
                yield BoundRole(namespace, subjects, role.get("rules") or [])


def _allows(rule: Json, group: str, resource: str, verbs: frozenset[str]) -> bool:
    """Whether a PolicyRule allows one of the verbs on every object of a resource, or on users that are nodes."""
    if not all(name.startswith(NODE_USER) for name in rule.get("resourceNames") or ()):
        return False
    resources = set(rule.get("resources") or ())
    _, slash, sub = resource.partition("/")
    wanted = {"*", resource} | ({f"*/{sub}"} if slash else set())
    return (
        bool({"*", group} & set(rule.get("apiGroups") or ()))
        and bool(wanted & resources)
        and bool(({"*"} | verbs) & set(rule.get("verbs") or ()))
    )
