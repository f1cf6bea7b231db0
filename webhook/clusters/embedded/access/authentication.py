"""Who is calling: bearer tokens of users and of service accounts, from two tables. Nobody can read a token's claims."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import SubresourceCall
from webhook.clusters.embedded.protocol.statuses import Cause, invalid, not_found
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))
DEFAULT_LIFETIME = 3600
SHORTEST_LIFETIME = 600
SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the names of service accounts' users begin."""


class _Issued(NamedTuple):
    """Whose a service account's token is, and until when, in seconds since the epoch."""

    namespace: str
    name: str
    uid: str
    token_id: str
    ends: float


class Authentication:
    """The authenticator: from the headers of a request to a user.

    `tokens` maps static bearer tokens to users; `uid_of(namespace, name)` gives the uid of a stored service
    account, or None if there is none (its tokens are then refused).
    """

    def __init__(self, uid_of: Callable[[str, str], str | None]) -> None:
        self.tokens: dict[str, UserInfo] = {}
        self._issued: dict[str, _Issued] = {}
        self._uid_of = uid_of

    def authenticate(self, headers: Mapping[str, str]) -> UserInfo | None:
        """Return the user; None for credentials that are wrong, the anonymous user for none at all."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS
        return self.user_of(token.strip()) if scheme.lower() == "bearer" else None

    def user_of(self, token: str) -> UserInfo | None:
        """The user of a bearer token, None for a wrong or expired one."""
        known = self.tokens.get(token)
        if known is not None:
            return known
        issued = self._issued.get(token)
        if issued is None or issued.ends <= time.time() or self._uid_of(issued.namespace, issued.name) != issued.uid:
            return None
        return service_account(issued.namespace, issued.name, issued.uid, issued.token_id)

    def issue(self, namespace: str, name: str, uid: str, lifetime: int) -> tuple[str, float]:
        """A token of a service account and when it ends, in seconds since the epoch. `lifetime` is in seconds."""
        token, ends = secrets.token_urlsafe(24), float(int(time.time()) + lifetime)
        self._issued[token] = _Issued(namespace, name, uid, str(uuid.uuid4()), ends)
        return token, ends

    async def request_token(self, call: SubresourceCall) -> tuple[int, Object]:
        """Issue a token for the service account that the path names: the handler of `serviceaccounts/token`."""
        change = call.change
        uid = self._uid_of(change.namespace, change.name)
        if uid is None:
            raise not_found(change.resource, change.name)
        lifetime = (call.body.get("spec") or {}).get("expirationSeconds") or DEFAULT_LIFETIME
        if lifetime < SHORTEST_LIFETIME:
            text = f"Invalid value: {lifetime}: may not specify a duration less than 10 minutes"
            cause = Cause("spec.expirationSeconds", "FieldValueInvalid", text)
            raise invalid(change.resource, change.name, [cause], kind="TokenRequest")
        token, expiry = self.issue(change.namespace, change.name, uid, lifetime)
        body = {**call.body, "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
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
