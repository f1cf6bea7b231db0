"""The API server, free of transport: who calls, may they, and which part answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import msgspec

from webhook.embedded.access.impersonation import acting_user
from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import GROUPS, RESOURCES
from webhook.embedded.protocol.calls import (
    ADMIN,
    Admission,
    AllowAll,
    ApiCall,
    Authenticator,
    Authorizer,
    NoAdmission,
    Reply,
    SubresourceHandler,
    UserInfo,
    authenticate_as_admin,
)
from webhook.embedded.protocol.routing import Route, route
from webhook.embedded.rendering import discovery, openapi
from webhook.embedded.server.binding import bind
from webhook.embedded.server.faults import Faults
from webhook.embedded.server.handling import Handlers, reply_of
from webhook.embedded.server.local import LocalClient
from webhook.embedded.server.writing import ObjectWriter
from webhook.embedded.storage.store import Store
from webhook.kube.transport import USER_AGENT

__all__ = ["ApiServer", "refusal"]

log = logging.getLogger(__name__)

_ROOTS = {row.root for row in RESOURCES}
_HEALTH = ("/healthz", "/livez", "/readyz")
_OPEN = (*_HEALTH, "/version")


class ApiServer:
    """A Kubernetes API server in memory.

    `store` may be one that was kept; `subresources` holds the hooks by (plural, sub-resource), where the
    sub-resource is empty for a resource that is answered at once, such as `selfsubjectaccessreviews`.
    """

    def __init__(
        self,
        authenticator: Authenticator = authenticate_as_admin,
        authorizer: Authorizer | None = None,
        admission: Admission | None = None,
        store: Store | None = None,
    ) -> None:
        self.authenticator = authenticator
        self.authorizer = authorizer or AllowAll()
        self.admission = admission or NoAdmission()
        self.store = store or Store()
        self.writer = ObjectWriter(self.store, self.admission)
        self.faults = Faults()
        self.subresources: dict[tuple[str, str], SubresourceHandler] = {
            ("pods", "binding"): partial(bind, self.writer),
            ("bindings", ""): partial(bind, self.writer),
        }
        self.address = "127.0.0.1:6443"
        """Host and port, as discovery tells them."""
        self._handlers = Handlers(self.writer, self.subresources, self.faults)

    async def handle(self, call: ApiCall) -> Reply:
        """Answer a call; never raises for what a caller can do wrong."""
        try:
            where = route(call.method, call.path, call.query)
            self._authorize(call, where)
            await self.faults.strike(where)
            if where.resource is not None:
                return await self._handlers.handle(where, where.resource, call)
            return self._document(call)
        except statuses.StatusError as error:
            return refusal(error)
        except Exception as error:
            log.exception("%s %s", call.method, call.path)
            return refusal(statuses.internal_error(f"{type(error).__name__}: {error}"))

    async def serve(self, call: ApiCall, peer_cert: Any) -> Reply:
        """Authenticate by headers and certificate, then handle."""
        user = self.authenticator(call.headers, peer_cert)
        if user is None:
            return refusal(statuses.unauthorized())
        try:
            call.user = acting_user(user, call.headers, self.authorizer)
        except statuses.StatusError as error:
            return refusal(error)
        return await self.handle(call)

    def local(self, user: str | UserInfo = ADMIN, agent: str = USER_AGENT) -> LocalClient:
        """A client that goes through the same chain without a connection; `agent` names its field manager."""
        if isinstance(user, str):
            user = ADMIN if user == ADMIN.username else UserInfo(user, _groups(user))
        return LocalClient(self.handle, user, agent)

    def _authorize(self, call: ApiCall, where: Route) -> None:
        """Refuse (403) what the user has no right to, in kube-apiserver's words."""
        if call.path in _OPEN:
            return
        allowed, reason = self.authorizer.authorize(call.user, where.right)
        if allowed:
            return
        shown = f'User "{call.user.username}" cannot {where.verb} '
        tail = f": {reason}" if reason else ""
        if not where.plural:
            raise statuses.failure(403, "Forbidden", f'forbidden: {shown}path "{where.path}"{tail}', {})
        resource = f"{where.plural}/{where.subresource}" if where.subresource else where.plural
        scope = f'in the namespace "{where.namespace}"' if where.namespace else "at the cluster scope"
        qualified = f"{where.plural}.{where.group}" if where.group else where.plural
        subject = f'{qualified} "{where.name}"' if where.name else qualified
        text = f'{subject} is forbidden: {shown}resource "{resource}" in API group "{where.group}" {scope}{tail}'
        details = {"name": where.name} if where.name else {}
        if where.group:
            details["group"] = where.group
        raise statuses.failure(403, "Forbidden", text, {**details, "kind": where.plural})

    def _document(self, call: ApiCall) -> Reply:
        """What is not a resource: discovery, OpenAPI, version and health."""
        if call.method not in ("GET", "HEAD"):
            raise statuses.path_not_found()
        path = call.path.rstrip("/") or "/"
        if path.split("/")[1] in [name[1:] for name in _HEALTH]:
            return Reply(200, b"ok", "text/plain; charset=utf-8")
        if path in ("/api", "/apis"):
            return self._discovery(path, call.headers.get("accept", ""))
        if path.startswith("/openapi/"):
            return openapi.reply(path)
        if path in _ROOTS:
            return reply_of(discovery.resource_list(path, self.subresources))
        if path == "/":
            return reply_of({"paths": ["/api", "/apis", "/openapi/v3", "/version", *sorted(_ROOTS), *_HEALTH]})
        if path == "/version":
            return reply_of(discovery.VERSION)
        if (group := path.removeprefix("/apis/")) in GROUPS:
            return reply_of({"kind": "APIGroup", "apiVersion": "v1", **discovery.group(group)})
        raise statuses.path_not_found()

    def _discovery(self, path: str, accept: str) -> Reply:
        for version in ("v2", "v2beta1"):
            if f"v={version};" in f"{accept};".replace(",", ";") and "APIGroupDiscoveryList" in accept:
                document = discovery.aggregated(path, version, self.subresources)
                kind = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                return Reply(200, msgspec.json.encode(document), kind)
        return reply_of(discovery.legacy_versions(self.address) if path == "/api" else discovery.groups())


def _groups(username: str) -> tuple[str, ...]:
    """The groups every user of that name is in."""
    prefix, account = "system:serviceaccount:", "system:serviceaccounts"
    if not username.startswith(prefix):
        return ("system:authenticated",)
    return (account, f"{account}:{username.removeprefix(prefix).partition(':')[0]}", "system:authenticated")


def refusal(error: statuses.StatusError) -> Reply:
    """A refusal as a reply, with the time to wait where there is one."""
    reply = reply_of(error.status, error.code)
    if error.retry_after is not None:
        reply.headers.append(("Retry-After", str(error.retry_after)))
    return reply
