"""Who is calling: bearer tokens of users and of service accounts, from two tables. Nobody can read a token's claims."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Mapping

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import not_found
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))
DEFAULT_LIFETIME = 3600
SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the names of service accounts' users begin."""


class Authentication:
    """The authenticator: from the headers of a request to a user.

    `tokens` maps bearer tokens to users; `uid_of(namespace, name)` gives the uid of a stored service account, or None
    if there is none (its tokens are then refused).
    """

    def __init__(self, uid_of: Callable[[str, str], str | None]) -> None:
        self.tokens: dict[str, UserInfo] = {}
        self._ends: dict[str, float] = {}
        """When tokens of service accounts end, in seconds since the epoch."""
        self._uid_of = uid_of

    def authenticate(self, headers: Mapping[str, str]) -> UserInfo | None:
        """Return the user; None for credentials that are wrong, the anonymous user for none at all."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS
        return self.user_of(token.strip()) if scheme.lower() == "bearer" else None

    def user_of(self, token: str) -> UserInfo | None:
        """The user of a bearer token, None for a wrong or expired one."""
        user = self.tokens.get(token)
        if user is None or token not in self._ends:
            return user
        namespace, _, name = user.username.removeprefix(SERVICE_ACCOUNT).partition(":")
        return user if self._ends[token] > time.time() and self._uid_of(namespace, name) == user.uid else None

    def issue(self, namespace: str, name: str, uid: str, lifetime: int) -> tuple[str, float]:
        """A token of a service account and when it ends, in seconds since the epoch. `lifetime` is in seconds."""
        token = secrets.token_urlsafe(24)
        self._ends[token] = float(int(time.time()) + lifetime)
        self.tokens[token] = service_account(namespace, name, uid, str(uuid.uuid4()))
        return token, self._ends[token]

    async def request_token(self, change: WriteRequest) -> tuple[int, Object]:
        """Issue a token for the service account that the path names: the handler of `serviceaccounts/token`."""
        uid = self._uid_of(change.namespace, change.name)
        if uid is None:
            raise not_found(change.resource, change.name)
        lifetime = ((change.object or {}).get("spec") or {}).get("expirationSeconds") or DEFAULT_LIFETIME
        token, expiry = self.issue(change.namespace, change.name, uid, lifetime)
        body = {**(change.object or {}), "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        body["status"] = {"token": token, "expirationTimestamp": rfc3339(expiry)}
        return 201, body


def groups_of(username: str) -> tuple[str, ...]:
    """The groups that every user of this name is in."""
    if not username.startswith(SERVICE_ACCOUNT):
        return (AUTHENTICATED,)
    namespace = username.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def service_account(namespace: str, name: str, uid: str = "", token_id: str = "") -> UserInfo:
    """The user a service account is, with the id of the token it came with."""
    extra: dict[str, tuple[str, ...]] = {}
    if token_id:
        extra["authentication.kubernetes.io/credential-id"] = (f"JTI={token_id}",)
    username = f"{SERVICE_ACCOUNT}{namespace}:{name}"
    return UserInfo(username, groups_of(username), uid, extra)
