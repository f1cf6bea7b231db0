"""Who is calling: bearer tokens of users and of service accounts. Nobody can read a token's claims."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import not_found
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))
DEFAULT_LIFETIME = 3600
SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the names of service accounts' users begin."""


class Authentication:
    """The authenticator: from the headers of a request to a user.

    `tokens` maps bearer tokens to users. Those of stored service accounts end with their accounts, whatever time was
    asked for.
    """

    def __init__(self, read: ObjectStore) -> None:
        self.tokens: dict[str, UserInfo] = {}
        self._read = read

    def authenticate(self, headers: Mapping[str, str]) -> UserInfo | None:
        """Return the user; None for credentials that are wrong, the anonymous user for none at all."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None or not user.username.startswith(SERVICE_ACCOUNT):
            return user
        namespace, _, name = user.username.removeprefix(SERVICE_ACCOUNT).partition(":")
        return user if self._uid_of(namespace, name) == user.uid else None

    def _uid_of(self, namespace: str, name: str) -> str | None:
        account = self._read.one("serviceaccounts", namespace, name)
        return str(account["metadata"]["uid"]) if account else None

    def issue(self, user: UserInfo) -> str:
        """A new bearer token of a user."""
        token = secrets.token_urlsafe(24)
        self.tokens[token] = user
        return token

    def issue_to_account(self, namespace: str, name: str) -> str | None:
        """A new token of a service account; None if there is none of that name."""
        uid = self._uid_of(namespace, name)
        return None if uid is None else self.issue(service_account(namespace, name, uid))

    async def request_token(self, change: WriteRequest) -> tuple[int, Object]:
        """Issue a token for the service account that the path names: the handler of `serviceaccounts/token`."""
        token = self.issue_to_account(change.namespace, change.name)
        if token is None:
            raise not_found(change.resource, change.name)
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
