"""What goes through the API server: a call, its reply, what admission sees, and the parts that can be plugged in.

Everything here is free of transport: `webhook.embedded.server.http` makes a `ApiCall` of an HTTP request,
`webhook.embedded.server.local` makes one without.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.policy.evaluation.request import UserInfo

__all__ = [
    "ADMIN",
    "Admission",
    "AllowAll",
    "ApiCall",
    "Attributes",
    "Authenticator",
    "Authorizer",
    "NoAdmission",
    "Object",
    "Reply",
    "Right",
    "SubresourceCall",
    "SubresourceHandler",
    "UserInfo",
    "WriteRequest",
    "authenticate_as_admin",
]

Object = dict[str, Any]
"""A Kubernetes object as plain JSON data."""


ADMIN = UserInfo("system:admin", ("system:masters", "system:authenticated"))


@dataclass(slots=True)
class ApiCall:
    """One request: `path` is decoded and without query, `query` has the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header names in lower case; read are `accept`, `content-type` and `user-agent`."""
    body: bytes = b""
    user: UserInfo = ADMIN


@dataclass(slots=True)
class Reply:
    """One answer: `body` whole, or for a watch `stream`, whose chunks are sent as they come."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass(slots=True)
class Attributes:
    """What admission sees of one change; the same names as `admission.k8s.io/v1` AdmissionRequest.

    `object` is None at DELETE, `old_object` is None at CREATE. `operation` is CREATE, UPDATE, DELETE or CONNECT.
    `options` is the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request. `warnings` may be
    appended to: each becomes a `Warning` header.
    """

    operation: str
    resource: ApiResource
    subresource: str
    namespace: str
    name: str
    object: Object | None
    old_object: Object | None
    user: UserInfo
    dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class WriteRequest:
    """One write as `Writer` takes it: on what, by whom, how.

    `manager` is the field manager; `options` are those of the request (DeleteOptions for a delete, and so on).
    """

    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: UserInfo = ADMIN
    dry_run: bool = False
    manager: str = "giveway"
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    admit: bool = True
    """False for what an inner part of the server does, such as the delete that an eviction leads to."""

    def attributes(self, operation: str, obj: Object | None, old: Object | None) -> Attributes:
        """What admission sees of it."""
        return Attributes(
            operation=operation,
            resource=self.resource,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name,
            object=obj,
            old_object=old,
            user=self.user,
            dry_run=self.dry_run,
            options=self.options,
            warnings=self.warnings,
        )


@dataclass(slots=True)
class SubresourceCall:
    """A call to a sub-resource with a hook, such as `pods/eviction`: `body` is its decoded object."""

    verb: str
    body: Object
    change: WriteRequest


SubresourceHandler = Callable[[SubresourceCall], Awaitable[tuple[int, Object]]]
"""Answers with an HTTP status and the object to send; raises StatusError for a refusal."""


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, or (with `path`) on one non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """`pods` or `pods/eviction`, as rules and refusals write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Authorizer(Protocol):
    """Decides who may do what."""

    def authorize(self, user: UserInfo, right: Right) -> tuple[bool, str]:
        """Whether the user has the right, and the reason."""
        ...


class Admission(Protocol):
    """The admission chain between a request and the store."""

    async def mutate(self, attributes: Attributes) -> Object | None:
        """Return the object to go on with (None at DELETE). Raises StatusError to refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Judge the final object. Raises StatusError to refuse."""
        ...


Authenticator = Callable[[Mapping[str, str], Any], UserInfo | None]
"""Headers (lower case) and the peer certificate as `ssl.SSLSocket.getpeercert()` gives it, to a user; None is a 401."""


def authenticate_as_admin(headers: Mapping[str, str], peer_cert: Any) -> UserInfo | None:
    """Take everyone for the administrator: what a server without an authenticator does."""
    del headers, peer_cert
    return ADMIN


class AllowAll:
    """An authorizer that allows everything."""

    def authorize(self, user: UserInfo, right: Right) -> tuple[bool, str]:
        """Allow."""
        del user, right
        return True, ""


class NoAdmission:
    """An admission chain without plugins."""

    async def mutate(self, attributes: Attributes) -> Object | None:
        """Change nothing."""
        return attributes.object

    async def validate(self, attributes: Attributes) -> None:
        """Accept."""
