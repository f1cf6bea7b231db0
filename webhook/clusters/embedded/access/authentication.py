"""Who is calling: bearer tokens of users and of service accounts. Nobody can read a token's claims."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import not_found
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
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
