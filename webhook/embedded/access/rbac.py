"""RBAC: who may do what, evaluated from the stored Role and Binding objects as kube-apiserver does.

`RbacAuthorizer` compiles the stored objects once and again after one of them changed; a request is then decided
from the bindings that name its user or one of its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.embedded.access.rights import UsedRights
from webhook.embedded.protocol.calls import Right, UserInfo
from webhook.embedded.storage.reading import Memo, StoreReader
from webhook.kube.objects import LabelSelector
from webhook.kube.selectors import label_matcher

__all__ = ["PolicyRule", "RbacAuthorizer", "rule_from"]

RBAC_RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
SUPERUSERS = "system:masters"
"""The group that kube-apiserver lets do everything, whatever the stored objects say."""

Objects = Callable[[str], Iterable[Mapping[str, Any]]]
"""Reads the stored RBAC objects of one resource, such as `clusterroles`."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One PolicyRule, as sets."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]

    def allows(self, right: Right) -> bool:
        """Whether the rule grants the right."""
        if "*" not in self.verbs and right.verb not in self.verbs:
            return False
        if right.path:
            return any(
                right.path.startswith(pattern[:-1]) if pattern.endswith("*") else right.path == pattern
                for pattern in self.paths
            )
        if "*" not in self.groups and right.group not in self.groups:
            return False
        if (
            "*" not in self.resources
            and right.full_resource not in self.resources
            and not (right.subresource and f"*/{right.subresource}" in self.resources)
        ):
            return False
        return not self.names or right.name in self.names


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules bound to subjects, in one namespace or (namespace None) everywhere."""

    namespace: str | None
    rules: tuple[PolicyRule, ...]


class RbacAuthorizer:
    """Decides requests from the stored RBAC objects; the rights that were exercised are kept in `used`."""

    def __init__(self, read: StoreReader) -> None:
        self.used = UsedRights()
        self._grants = Memo(read, RBAC_RESOURCES, lambda: _compile(read.all))

    def authorize(self, user: UserInfo, right: Right) -> tuple[bool, str]:
        """Whether the user may do this. No reason is given."""
        allowed = self.allowed(user, right)
        self.used.record(user.username, right, allowed)
        return allowed, ""

    def allowed(self, user: UserInfo, right: Right) -> bool:
        """Whether the user has the right."""
        if SUPERUSERS in user.groups:
            return True
        return any(
            rule.allows(right)
            for grant in self._granted_to(user)
            if grant.namespace is None or grant.namespace == right.namespace
            for rule in grant.rules
        )

    def rules_of(self, user: UserInfo, namespace: str) -> list[PolicyRule]:
        """Every rule that holds for the user in the namespace (SelfSubjectRulesReview)."""
        everything = rule_from({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        all_paths = rule_from({"verbs": ["*"], "nonResourceURLs": ["*"]})
        found = [everything, all_paths] if SUPERUSERS in user.groups else []
        for grant in self._granted_to(user):
            if grant.namespace is None or grant.namespace == namespace:
                found.extend(grant.rules)
        return found

    def _granted_to(self, user: UserInfo) -> Iterator[Grant]:
        grants = self._grants.get()
        for subject in (("User", user.username), *(("Group", group) for group in user.groups)):
            yield from grants.get(subject, ())


def rule_from(rule: Mapping[str, Any]) -> PolicyRule:
    """Compile one PolicyRule of a Role or ClusterRole."""
    return PolicyRule(
        verbs=frozenset(rule.get("verbs") or ()),
        groups=frozenset(rule.get("apiGroups") or ()),
        resources=frozenset(rule.get("resources") or ()),
        names=frozenset(rule.get("resourceNames") or ()),
        paths=tuple(rule.get("nonResourceURLs") or ()),
    )


def _compile(objects: Objects) -> dict[tuple[str, str], list[Grant]]:
    """Roles and bindings as rights by subject."""
    cluster_roles = _cluster_roles(list(objects("clusterroles")))
    roles = {
        (role["metadata"].get("namespace", ""), role["metadata"]["name"]): _rules(role) for role in objects("roles")
    }
    grants: dict[tuple[str, str], list[Grant]] = {}
    for binding in objects("clusterrolebindings"):
        rules = cluster_roles.get(binding["roleRef"]["name"], ())
        _bind(grants, binding, Grant(None, rules))
    for binding in objects("rolebindings"):
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            rules = cluster_roles.get(reference["name"], ())
        else:
            rules = roles.get((namespace, reference["name"]), ())
        _bind(grants, binding, Grant(namespace, rules))
    return grants


def _bind(grants: dict[tuple[str, str], list[Grant]], binding: Mapping[str, Any], grant: Grant) -> None:
    for subject in binding.get("subjects") or ():
        kind, name = subject["kind"], subject["name"]
        if kind == "ServiceAccount":
            namespace = subject.get("namespace") or grant.namespace or ""
            kind, name = "User", f"system:serviceaccount:{namespace}:{name}"
        grants.setdefault((kind, name), []).append(grant)


def _rules(role: Mapping[str, Any]) -> tuple[PolicyRule, ...]:
    return tuple(rule_from(rule) for rule in role.get("rules") or ())


def _cluster_roles(roles: list[Mapping[str, Any]]) -> dict[str, tuple[PolicyRule, ...]]:
    """Rules by ClusterRole; a role with an aggregationRule has the rules of the roles it selects, transitively."""
    own = {role["metadata"]["name"]: _rules(role) for role in roles}
    labels = {role["metadata"]["name"]: role["metadata"].get("labels") or {} for role in roles}
    selectors = {
        role["metadata"]["name"]: [
            label_matcher(msgspec.convert(selector, LabelSelector))
            for selector in role["aggregationRule"].get("clusterRoleSelectors") or ()
        ]
        for role in roles
        if role.get("aggregationRule")
    }

    def collect(name: str, seen: frozenset[str]) -> Iterator[PolicyRule]:
        if name not in selectors:
            yield from own[name]
            return
        for other, its_labels in labels.items():
            if other not in seen and any(matches(its_labels) for matches in selectors[name]):
                yield from collect(other, seen | {other})

    return {name: tuple(dict.fromkeys(collect(name, frozenset({name})))) for name in own}
