"""Who is calling: bearer tokens from a table, service account tokens signed by this control plane.

Service account tokens are JSON Web Tokens with the claims Kubernetes writes, signed with a key that lives as
long as the process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import SubresourceCall
from webhook.clusters.embedded.protocol.statuses import Cause, invalid, not_found
from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.request import UserInfo

AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))
DEFAULT_LIFETIME = 3600
SHORTEST_LIFETIME = 600
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the names of service accounts' users begin."""


class Authentication:
    """The authenticator: from the headers of a request to a user.

    `tokens` maps static bearer tokens to users; `uid_of(namespace, name)` gives the uid of a stored service
    account, or None if there is none (its tokens are then refused).
    """

    def __init__(self, uid_of: Callable[[str, str], str | None]) -> None:
        self.tokens: dict[str, UserInfo] = {}
        self.signer = TokenSigner(secrets.token_bytes(32))
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
        claims = self.signer.verify(token)
        if claims is None:
            return None
        account = claims["kubernetes.io"]["serviceaccount"]
        namespace, name = claims["kubernetes.io"]["namespace"], account["name"]
        if self._uid_of(namespace, name) != account["uid"]:
            return None
        return service_account(namespace, name, account["uid"], claims["jti"])

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
        token, expiry = self.signer.issue(change.namespace, change.name, uid, lifetime)
        body = {**call.body, "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        body["status"] = {"token": token, "expirationTimestamp": rfc3339(expiry)}
        return 201, body


class TokenSigner:
    """Issues and checks JSON Web Tokens (HS256) for service accounts."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, namespace: str, name: str, uid: str, lifetime: int) -> tuple[str, float]:
        """Return a token and the instant it expires, in seconds since the epoch. `lifetime` is in seconds."""
        now = int(time.time())
        claims = {
            "aud": [ISSUER],
            "exp": now + lifetime,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
            "nbf": now,
            "sub": f"{SERVICE_ACCOUNT}{namespace}:{name}",
        }
        body = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(claims)}"
        return f"{body}.{self._sign(body)}", float(now + lifetime)

    def verify(self, token: str) -> dict[str, Any] | None:
        """The claims of a token signed here and not expired; None otherwise."""
        body, _, signature = token.rpartition(".")
        if not token.isascii() or not hmac.compare_digest(self._sign(body), signature):
            return None
        encoded = body.partition(".")[2]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        return claims if claims["exp"] > time.time() else None

    def _sign(self, body: str) -> str:
        return _text(hmac.new(self._key, body.encode(), hashlib.sha256).digest())


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


def _encode(part: dict[str, Any]) -> str:
    return _text(json.dumps(part, separators=(",", ":")).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
