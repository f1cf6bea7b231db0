"""Rights, from the cluster's RBAC objects: those that get round what giveway guards, and those that it lacks."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from webhook.inspection.closed_budgets import Preemptible
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, finding, names
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.policy.model.creation import labels_recorded, not_recorded
from webhook.policy.model.match import NODE_USER
from webhook.policy.model.values import CREATION, MARK

Json = dict[str, Any]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a right allows; `own` says that it matters in giveway's namespace only."""

    what: str
    resource: str
    verbs: frozenset[str]
    why: str
    group: str = ""
    own: bool = False
    severity: FindingSeverity = FindingSeverity.INFO


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on resources of one group; `own` if they are needed in giveway's own namespace only."""

    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    group: str = ""
    own: bool = False


class _Rights(msgspec.Struct):
    """The table of rights: what gets round giveway, and what its service accounts need."""

    ways: tuple[Way, ...]
    needed: dict[str, tuple[Needed, ...]]


_TABLE = msgspec.convert(tomllib.loads(files("webhook.inspection.checks").joinpath("rights.toml").read_text()), _Rights)
NEEDED = _TABLE.needed
_STATUS = _TABLE.ways[0]
_PODS = msgspec.structs.replace(_STATUS, what="write pods", resource="pods")
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


class BoundRole(NamedTuple):
    """A role's rules for some subjects; `namespace` is empty if they hold everywhere."""

    namespace: str
    subjects: list[str]
    rules: list[Json]


def around_the_shield(observed: Observed) -> Iterator[ClusterFinding]:
    """Who, beside administrators and Kubernetes' own parts, may go round what giveway guards."""
    for way in _TABLE.ways:
        with_right = _holders(observed, way)
        if everybody := [subject for subject in with_right if subject in _EVERYBODY]:
            yield finding("rights.everybody", everybody=everybody, way=way)
        if others := _shown(with_right, but=_EVERYBODY):
            yield finding("rights.others", severity=way.severity, others=others, way=way)


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
        yield finding(
            "not-recorded.pods", pods=namespaces, part=what, who=names(who) if who else "administrators alone"
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


def missing(observed: Observed) -> Iterator[ClusterFinding]:
    """Each service account that lacks a right, and which."""
    known, static = list(grants(observed)), observed.own_state.static_entries
    for account, needs in NEEDED.items():
        deployment = observed.own_state.deployments.get(account)
        if deployment is None:
            continue
        # What it needs only to keep the entries of its configurations, it does not if an administrator applies them
        keeps = not (static and account == "giveway-webhook")
        needed = [row for row in needs if keeps or row.resources != CONFIGURATIONS]
        held = [grant for grant in known if f"ServiceAccount {observed.own}/{account}" in grant.subjects]
        lacking = [
            f"{verb} {resource}" + (f" in {observed.own}" if row.own else "")
            for row in needed
            for resource in row.resources
            for verb in row.verbs
            if not any(_has(grant, row, resource, verb, observed.own) for grant in held)
        ]
        if lacking:
            yield finding("own-rights.lacking", own=observed.own, account=account, lacking=lacking)
        group = "admissionregistration.k8s.io"
        rows = [Needed(group=group, resources=(plural,), verbs=("update",)) for plural in CONFIGURATIONS if not keeps]
        may = [
            row.resources[0]
            for row in rows
            for grant in held
            if _has(grant, row, row.resources[0], "update", observed.own)
        ]
        if may:
            yield finding("own-rights.beyond", own=observed.own, account=account, may=may)


def _has(grant: BoundRole, row: Needed, resource: str, verb: str, own: str) -> bool:
    """Whether a grant allows it, on some objects at least: most rights are for objects of one name."""
    if grant.namespace and not (row.own and grant.namespace == own):
        return False
    return any(
        {"*", row.group} & set(rule.get("apiGroups") or ())
        and {"*", resource} & set(rule.get("resources") or ())
        and {"*", verb} & set(rule.get("verbs") or ())
        for rule in grant.rules
    )
