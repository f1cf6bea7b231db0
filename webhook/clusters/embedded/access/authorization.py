"""Who may do what: RBAC, evaluated from the stored Role and Binding objects as kube-apiserver does.

`RbacAuthorizer` compiles the stored objects once and again after one of them changed; a request is then decided
from the bindings that name its user or one of its groups. It remembers which rights were exercised: a test runs the
shipped manifests' components against the embedded control plane and then asks `UsedRights` for refused rights (too
few were granted) and `unused` for granted ones that were never exercised (too many).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import msgspec

from webhook.clusters.embedded.access.authentication import AUTHENTICATED, SERVICE_ACCOUNT, Authentication, groups_of
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import Right, SubresourceCall, SubresourceHandler, user_object
from webhook.clusters.embedded.storage.object_store import Memo, StoreReader
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.request import UserInfo

RBAC_RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
SUPERUSERS = "system:masters"
"""The group that kube-apiserver lets do everything, whatever the stored objects say."""
IMPERSONATION = ("impersonate-user", "impersonate-group", "impersonate-uid")
"""The headers by which somebody acts as somebody else; several groups come separated by commas."""


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


class UsedRights:
    """The rights that users exercised, and those they were refused; names of objects are left out of the first."""

    def __init__(self) -> None:
        self._granted: dict[str, set[Right]] = {}
        self._refused: dict[str, set[Right]] = {}

    def record(self, user: str, right: Right, allowed: bool) -> None:
        """Note one decision."""
        if allowed:
            self._granted.setdefault(user, set()).add(replace(right, name=""))
        else:
            self._refused.setdefault(user, set()).add(right)

    def of(self, user: str) -> frozenset[Right]:
        """What the user did."""
        return frozenset(self._granted.get(user, ()))

    def refused(self, user: str) -> frozenset[Right]:
        """What the user was not allowed to do."""
        return frozenset(self._refused.get(user, ()))


class RbacAuthorizer:
    """Decides requests from the stored RBAC objects; the rights that were exercised are kept in `used`."""

    def __init__(self, read: StoreReader) -> None:
        self.used = UsedRights()
        self._read = read
        self._grants = Memo(read, RBAC_RESOURCES, self._compile)

    def authorize(self, user: UserInfo, right: Right) -> bool:
        """Whether the user may do this; remembers the answer."""
        allowed = self.allowed(user, right)
        self.used.record(user.username, right, allowed)
        return allowed

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
        everything = _rule({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        all_paths = _rule({"verbs": ["*"], "nonResourceURLs": ["*"]})
        rules = [everything, all_paths] if SUPERUSERS in user.groups else []
        for grant in self._granted_to(user):
            if grant.namespace is None or grant.namespace == namespace:
                rules.extend(grant.rules)
        return rules

    def _granted_to(self, user: UserInfo) -> Iterator[Grant]:
        grants = self._grants.get()
        for subject in (("User", user.username), *(("Group", group) for group in user.groups)):
            yield from grants.get(subject, ())

    def _compile(self) -> dict[tuple[str, str], list[Grant]]:
        """Roles and bindings as grants by kind and name of the subject."""
        cluster_roles = self._cluster_roles()
        roles = {
            (role["metadata"].get("namespace", ""), role["metadata"]["name"]): _rules(role)
            for role in self._read.all("roles")
        }
        grants: dict[tuple[str, str], list[Grant]] = {}
        for binding in [*self._read.all("clusterrolebindings"), *self._read.all("rolebindings")]:
            namespace, reference = binding["metadata"].get("namespace"), binding["roleRef"]
            if namespace is None or reference["kind"] == "ClusterRole":
                grant = Grant(namespace, cluster_roles.get(reference["name"], ()))
            else:
                grant = Grant(namespace, roles.get((namespace, reference["name"]), ()))
            for subject in binding.get("subjects") or ():
                kind, name = subject["kind"], subject["name"]
                if kind == "ServiceAccount":
                    kind, name = "User", f"{SERVICE_ACCOUNT}{subject.get('namespace') or namespace or ''}:{name}"
                grants.setdefault((kind, name), []).append(grant)
        return grants

    def _cluster_roles(self) -> dict[str, tuple[PolicyRule, ...]]:
        """Rules by ClusterRole; a role with an aggregationRule has those of the roles it selects, transitively."""
        roles = self._read.all("clusterroles")
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


def _rule(rule: Mapping[str, Any]) -> PolicyRule:
    """Compile one PolicyRule of a Role or ClusterRole."""
    return PolicyRule(
        verbs=frozenset(rule.get("verbs") or ()),
        groups=frozenset(rule.get("apiGroups") or ()),
        resources=frozenset(rule.get("resources") or ()),
        names=frozenset(rule.get("resourceNames") or ()),
        paths=tuple(rule.get("nonResourceURLs") or ()),
    )


def _rules(role: Mapping[str, Any]) -> tuple[PolicyRule, ...]:
    return tuple(_rule(rule) for rule in role.get("rules") or ())


def acting_user(user: UserInfo, headers: Mapping[str, str], authorizer: RbacAuthorizer) -> UserInfo:
    """Whom a call is to be judged as: `kubectl --as`, allowed to whom RBAC grants the verb `impersonate`.

    Raises StatusError (403) where `user` may not act so.
    """
    name = headers.get("impersonate-user")
    if not name:
        return user
    groups = tuple(group for group in headers.get("impersonate-group", "").split(",") if group)
    uid = headers.get("impersonate-uid", "")
    wanted = [Right("impersonate", resource="users", name=name)]
    if name.startswith(SERVICE_ACCOUNT):
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        wanted = [Right("impersonate", resource="serviceaccounts", namespace=namespace, name=account)]
    wanted += [Right("impersonate", resource="groups", name=group) for group in groups]
    wanted += [Right("impersonate", group="authentication.k8s.io", resource="uids", name=uid)] if uid else []
    for right in wanted:
        if not authorizer.authorize(user, right):
            raise right.refused_to(user)
    granted = (*groups, AUTHENTICATED) if groups else groups_of(name)
    return UserInfo(name, granted, uid)


def unused(rules: Iterable[Mapping[str, Any]], used: Iterable[Right]) -> list[str]:
    """Each `verb resource.group` that the PolicyRules grant and nobody used, in the rules' order."""
    exercised = {(right.verb, right.group, right.full_resource) for right in used if right.resource}
    paths = {(right.verb, right.path) for right in used if right.path}
    lines = []
    for rule in rules:
        granted = product(rule.get("verbs") or (), rule.get("apiGroups") or (), rule.get("resources") or ())
        left = [right for right in granted if right not in exercised]
        lines += [f"{verb} {resource}.{group}" if group else f"{verb} {resource}" for verb, group, resource in left]
        urls = product(rule.get("verbs") or (), rule.get("nonResourceURLs") or ())
        lines += [f"{verb} {path}" for verb, path in urls if (verb, path) not in paths]
    return lines


def review_handlers(authorizer: RbacAuthorizer, authentication: Authentication) -> dict[str, SubresourceHandler]:
    """Questions about rights and users, answered at once: the handlers by the plural of the review they answer."""

    async def own_access(call: SubresourceCall) -> tuple[int, Object]:
        spec = call.body.get("spec") or {}
        return _answer(call, _access(authorizer, call.change.user, spec, ""))

    async def others_access(call: SubresourceCall) -> tuple[int, Object]:
        spec = call.body.get("spec") or {}
        user = UserInfo(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
        return _answer(call, _access(authorizer, user, spec, call.change.namespace))

    async def own_rules(call: SubresourceCall) -> tuple[int, Object]:
        rules = authorizer.rules_of(call.change.user, (call.body.get("spec") or {}).get("namespace", ""))
        resources = [
            {
                "verbs": sorted(rule.verbs),
                "apiGroups": sorted(rule.groups),
                "resources": sorted(rule.resources),
                **({"resourceNames": sorted(rule.names)} if rule.names else {}),
            }
            for rule in rules
            if rule.resources
        ]
        paths = [{"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths]
        return _answer(call, {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False})

    async def own_user(call: SubresourceCall) -> tuple[int, Object]:
        return _answer(call, {"userInfo": user_object(call.change.user)})

    async def token(call: SubresourceCall) -> tuple[int, Object]:
        user = authentication.user_of(str((call.body.get("spec") or {}).get("token", "")))
        if user is None:
            return _answer(call, {"user": {}, "error": "[invalid bearer token]"})
        return _answer(call, {"authenticated": True, "user": user_object(user)})

    return {
        "selfsubjectaccessreviews": own_access,
        "subjectaccessreviews": others_access,
        "localsubjectaccessreviews": others_access,
        "selfsubjectrulesreviews": own_rules,
        "selfsubjectreviews": own_user,
        "tokenreviews": token,
    }


def _answer(call: SubresourceCall, status: Object) -> tuple[int, Object]:
    return 201, {**call.body, "status": status}


def _access(authorizer: RbacAuthorizer, user: UserInfo, spec: Mapping[str, Any], namespace: str) -> Object:
    """The status of an access review: whether the user has the right that the spec asks about."""
    asked = spec.get("resourceAttributes")
    if asked is not None:
        right = Right(
            asked.get("verb", ""),
            asked.get("group", ""),
            asked.get("resource", ""),
            asked.get("subresource", ""),
            asked.get("namespace", "") or namespace,
            asked.get("name", ""),
        )
    else:
        asked = spec.get("nonResourceAttributes") or {}
        right = Right(asked.get("verb", ""), path=asked.get("path", ""))
    return {"allowed": authorizer.allowed(user, right)}
