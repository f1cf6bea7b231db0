"""Rights, from the cluster's RBAC objects: those that get round what giveway guards, and those that it lacks."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from webhook.component_base.own_names import WEBHOOK
from webhook.inspection.checks.budgets import preemptible_by
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, finding, names
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.policy.model.creation import labels_recorded, not_recorded
from webhook.policy.model.match import NODE_USER
from webhook.policy.model.values import CREATION, MARK

Json = dict[str, Any]


class RbacRight(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on resources of one group; `own` says that giveway's namespace alone matters.

    Of one that gets round giveway: what it allows, and why that matters.
    """

    resources: tuple[str, ...]
    verbs: frozenset[str]
    group: str = ""
    own: bool = False
    what: str = ""
    why: str = ""
    severity: FindingSeverity = FindingSeverity.INFO


class _Rights(msgspec.Struct):
    """The table of rights: what gets round giveway, and what its service accounts need."""

    ways: tuple[RbacRight, ...]
    needed: dict[str, tuple[RbacRight, ...]]


_TABLE = msgspec.toml.decode(files("webhook.inspection.checks").joinpath("rights.toml").read_text(), type=_Rights)
NEEDED = _TABLE.needed
_STATUS = _TABLE.ways[0]
_PODS = msgspec.structs.replace(_STATUS, resources=("pods",))
_EVERYBODY = frozenset(f"Group system:{name}" for name in ("authenticated", "unauthenticated", "serviceaccounts"))
_USERS = ("apiserver", "kube-controller-manager", "kube-scheduler")
_KUBERNETES = {"Group system:masters", "Group system:nodes", *(f"User system:{name}" for name in _USERS)}


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
    preemptible = preemptible_by(policies, observed.classes)
    pods: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in observed.pods:
        annotations = pod.metadata.annotations or {}
        if MARK in (pod.metadata.labels or {}) or preemptible(pod):
            labels = not_recorded(annotations, labels_recorded(policies) or ())
            for what in [*(f"label {label}" for label in labels), *([] if CREATION in annotations else group)]:
                pods[what][pod.metadata.namespace] += 1
    who = names(_shown(_holders(observed, _STATUS) | _holders(observed, _PODS))) if pods else ""
    for what, namespaces in sorted(pods.items()):
        yield finding("not-recorded.pods", pods=namespaces, part=what, who=who or "administrators alone")


def _holders(observed: Observed, way: RbacRight) -> dict[str, set[str]]:
    """Who has a right, beside administrators and Kubernetes' own parts, and in which namespaces; empty for all."""
    administrators, holders = set[str](), defaultdict[str, set[str]](set)
    for grant in grants(observed):
        if not grant.namespace and any(_allows(rule, "*", "*", {"*"}) for rule in grant.rules):
            administrators.update(grant.subjects)
        if way.own and grant.namespace not in ("", observed.own):
            continue
        if any(_allows(rule, way.group, way.resources[0], way.verbs) for rule in grant.rules):
            for subject in grant.subjects:
                holders[subject].add(grant.namespace)
    parts = ("ServiceAccount kube-system/", f"ServiceAccount {observed.own}/giveway-")
    left_out = administrators | _KUBERNETES
    return {
        subject: where
        for subject, where in holders.items()
        if subject not in left_out and not subject.startswith(parts)
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


def _allows(rule: Json, group: str, resource: str, verbs: AbstractSet[str], *, named: bool = False) -> bool:
    """Whether a PolicyRule allows one of the verbs on every object of a resource, or on users that are nodes.

    With `named` objects of some names are enough.
    """
    if not named and not all(name.startswith(NODE_USER) for name in rule.get("resourceNames") or ()):
        return False
    _, slash, sub = resource.partition("/")
    wanted = {"*", resource} | ({f"*/{sub}"} if slash else set())
    return (
        bool({"*", group} & set(rule.get("apiGroups") or ()))
        and bool(wanted & set(rule.get("resources") or ()))
        and bool(({"*"} | verbs) & set(rule.get("verbs") or ()))
    )


def missing(observed: Observed) -> Iterator[ClusterFinding]:
    """Each service account that lacks a right, and which."""
    known, static = list(grants(observed)), observed.own_state.static_entries
    for account, needs in NEEDED.items():
        if account not in observed.own_state.deployments:
            continue
        held = [grant for grant in known if f"ServiceAccount {observed.own}/{account}" in grant.subjects]
        lacking, beyond = [], []
        for row in needs:
            there = ("", observed.own) if row.own else ("",)
            rules = [rule for grant in held if grant.namespace in there for rule in grant.rules]
            # What it needs only to keep the entries of its configurations, it does not if an administrator applies them
            if static and account == WEBHOOK and row.resources == tuple(CONFIGURATIONS):
                beyond = [plural for plural in CONFIGURATIONS if _may(rules, row, plural, "update")]
                continue
            where = f" in {observed.own}" if row.own else ""
            pairs = [(verb, resource) for resource in row.resources for verb in sorted(row.verbs)]
            lacking += [f"{verb} {resource}{where}" for verb, resource in pairs if not _may(rules, row, resource, verb)]
        if lacking:
            yield finding("own-rights.lacking", own=observed.own, account=account, lacking=lacking)
        if beyond:
            yield finding("own-rights.beyond", own=observed.own, account=account, may=beyond)


def _may(rules: list[Json], row: RbacRight, resource: str, verb: str) -> bool:
    """Whether it is allowed on some objects at least: most rights are for objects of one name."""
    return any(_allows(rule, row.group, resource, {verb}, named=True) for rule in rules)
