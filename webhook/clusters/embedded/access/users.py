"""Who is calling, by bearer tokens of users and of service accounts, and what they may do, by RBAC.

RBAC is evaluated from the stored Role and Binding objects as kube-apiserver does: `RbacAuthorizer` compiles them once
and again after one of them changed; a request is then decided from the bindings that name its user or one of its
groups. It remembers which rights were exercised: a test runs the shipped manifests' components against the embedded
control plane, and then asks whether too few were granted, or too many.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, Object
from webhook.clusters.embedded.protocol.calls import Right, WriteRequest, user_object
from webhook.clusters.embedded.protocol.statuses import not_found
from webhook.clusters.embedded.storage.object_store import Memo, ObjectStore
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
DEFAULT_LIFETIME = 3600
SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the names of service accounts' users begin."""
RBAC_RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
SUPERUSERS = "system:masters"
"""The group that kube-apiserver lets do everything, whatever the stored objects say."""
IMPERSONATION = ("impersonate-user", "impersonate-group")
"""The headers by which somebody acts as somebody else; several groups come separated by commas."""


class Authentication:
    """The authenticator: from the headers of a request to a user.

    `tokens` maps bearer tokens to users. Those of stored service accounts end with their accounts, whatever time was
    asked for.
    """

    def __init__(self, read: ObjectStore) -> None:
        self.tokens: dict[str, UserInfo] = {}
        self._read = read

    def authenticate(self, headers: Mapping[str, str]) -> UserInfo | None:
        """Return the user; None for credentials that are wrong or missing."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None or not user.username.startswith(SERVICE_ACCOUNT):
            return user
        namespace, _, name = user.username.removeprefix(SERVICE_ACCOUNT).partition(":")
        account = self._read.one("serviceaccounts", namespace, name)
        return user if account is not None and account["metadata"]["uid"] == user.uid else None

    def issue(self, user: UserInfo) -> str:
        """A new bearer token of a user."""
        token = secrets.token_urlsafe(24)
        self.tokens[token] = user
        return token

    def issue_to_account(self, namespace: str, name: str) -> str:
        """A new bearer token of a stored service account. Raises StatusError (404) if there is none of that name."""
        account = self._read.one("serviceaccounts", namespace, name)
        if account is None:
            raise not_found(BY_PLURAL["serviceaccounts"], name)
        return self.issue(service_account(namespace, name, account["metadata"]["uid"]))

    async def request_token(self, change: WriteRequest) -> tuple[int, Object]:
        """Issue a token for the service account that the path names: the handler of `serviceaccounts/token`."""
        token = self.issue_to_account(change.namespace, change.name)
        asked = change.object or {}
        ends = time.time() + ((asked.get("spec") or {}).get("expirationSeconds") or DEFAULT_LIFETIME)
        named = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        return 201, {**asked, **named, "status": {"token": token, "expirationTimestamp": rfc3339(ends)}}


def groups_of(username: str) -> tuple[str, ...]:
    """The groups that every user of this name is in."""
    if not username.startswith(SERVICE_ACCOUNT):
        return (AUTHENTICATED,)
    namespace = username.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def service_account(namespace: str, name: str, uid: str = "") -> UserInfo:
    """The user a service account is."""
    username = f"{SERVICE_ACCOUNT}{namespace}:{name}"
    return UserInfo(username, groups_of(username), uid)


def allows(rule: Mapping[str, Any], right: Right) -> bool:
    """Whether a PolicyRule of a Role or ClusterRole, as JSON data, grants a right."""
    if not {"*", right.verb} & set(rule.get("verbs") or ()):
        return False
    if right.path:
        return any(
            right.path.startswith(pattern[:-1]) if pattern.endswith("*") else right.path == pattern
            for pattern in rule.get("nonResourceURLs") or ()
        )
    wanted = {"*", right.full_resource, *([f"*/{right.subresource}"] if right.subresource else ())}
    if not {"*", right.group} & set(rule.get("apiGroups") or ()) or not wanted & set(rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames")
    return not names or right.name in names


class RbacAuthorizer:
    """Decides requests from the stored RBAC objects; the rights that were exercised are kept in `used`."""

    def __init__(self, read: ObjectStore) -> None:
        self.used: set[tuple[str, Right, bool]] = set()
        """Users, the rights that they exercised or wanted, and whether they had them."""
        self._read = read
        self._grants = Memo(read, RBAC_RESOURCES, self._compile)

    def authorize(self, user: UserInfo, right: Right) -> bool:
        """Whether the user may do this; remembers the answer."""
        grants = self._grants.get()
        subjects = (("User", user.username), *(("Group", group) for group in user.groups))
        allowed = SUPERUSERS in user.groups or any(
            namespace in (None, right.namespace) and allows(rule, right)
            for subject in subjects
            for namespace, rule in grants.get(subject, ())
        )
        self.used.add((user.username, replace(right, name="") if allowed else right, allowed))
        return allowed

    def _compile(self) -> dict[tuple[str, str], list[tuple[str | None, Object]]]:
        """The rules by kind and name of whom they are bound to, each with its namespace or (None) everywhere."""
        roles = {
            (role["metadata"].get("namespace", ""), role["metadata"]["name"]): role.get("rules") or ()
            for role in (*self._read.all("clusterroles"), *self._read.all("roles"))
        }
        grants: dict[tuple[str, str], list[tuple[str | None, Object]]] = {}
        for binding in (*self._read.all("clusterrolebindings"), *self._read.all("rolebindings")):
            namespace, reference = binding["metadata"].get("namespace"), binding["roleRef"]
            where = "" if namespace is None or reference["kind"] == "ClusterRole" else namespace
            rules = [(namespace, rule) for rule in roles.get((where, reference["name"]), ())]
            for subject in binding.get("subjects") or ():
                kind, name = subject["kind"], subject["name"]
                if kind == "ServiceAccount":
                    kind, name = "User", f"{SERVICE_ACCOUNT}{subject.get('namespace') or namespace or ''}:{name}"
                grants.setdefault((kind, name), []).extend(rules)
        return grants


def acting_user(user: UserInfo, headers: Mapping[str, str], authorizer: RbacAuthorizer) -> UserInfo:
    """Whom a call is to be judged as: `kubectl --as`, allowed to whom RBAC grants the verb `impersonate`.

    Raises StatusError (403) if `user` may not act so.
    """
    name = headers.get("impersonate-user")
    if not name:
        return user
    groups = tuple(group for group in headers.get("impersonate-group", "").split(",") if group)
    wanted = [Right("impersonate", resource="users", name=name)]
    if name.startswith(SERVICE_ACCOUNT):
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        wanted = [Right("impersonate", resource="serviceaccounts", namespace=namespace, name=account)]
    wanted += [Right("impersonate", resource="groups", name=group) for group in groups]
    for right in wanted:
        if not authorizer.authorize(user, right):
            raise right.refused_to(user)
    granted = (*groups, AUTHENTICATED) if groups else groups_of(name)
    return UserInfo(name, granted)


async def own_user(change: WriteRequest) -> tuple[int, Object]:
    """Who the caller is, as `kubectl auth whoami` asks it."""
    metadata = {"creationTimestamp": rfc3339(time.time())}
    return 201, {**(change.object or {}), "metadata": metadata, "status": {"userInfo": user_object(change.user)}}
