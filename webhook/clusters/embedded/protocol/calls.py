"""What goes through the API server: a call, what it asks for, its reply, and what admission sees.

Everything here is free of transport: of `webhook.clusters.embedded.apiserver.api_server`, `HttpServer` makes an
`ApiCall` of an HTTP request, and `LocalClient` makes one without.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_NAME, ApiResource, Object
from webhook.policy.evaluation.request import UserInfo

ADMIN = UserInfo("system:admin", ("system:masters", "system:authenticated"))

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_DEPTHS = {"api": 2, "apis": 3}
"""Parts of a path before the resource: `/api/VERSION` and `/apis/GROUP/VERSION`."""


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
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncGenerator[bytes, None] | None = None
    content_type: str = "application/json"


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

    def refused_to(self, user: UserInfo) -> statuses.StatusError:
        """403 for a user without this right, in kube-apiserver's words (`responsewriters.Forbidden`)."""
        who = f'User "{user.username}" cannot {self.verb}'
        if self.path:
            return statuses.failure(403, "Forbidden", f'forbidden: {who} path "{self.path}"', {})
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        why = f'{who} resource "{self.full_resource}" in API group "{self.group}" {scope}'
        return statuses.forbidden(self.group, self.resource, self.name, why)


def asked_for(method: str, path: str, query: Mapping[str, str]) -> tuple[Right, ApiResource | None]:
    """What a call needs, and the resource that it is about; None for an unknown one, or a path outside the resources.

    The path is taken apart as Kubernetes' RequestInfoFactory does.
    """
    parts = [part for part in path.split("/") if part]
    depth = _DEPTHS.get(parts[0], 0) if parts else 0
    if not depth or len(parts) <= depth:
        return Right(method.lower(), path=path), None
    api_version, rest = "/".join(parts[1:depth]), parts[depth:]
    namespace, within = "", False
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace, within = rest[1], len(rest) > 2 and rest[2] not in ("status", "finalize")
        if within:
            rest = rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    resource = BY_NAME.get((api_version, plural)) if len(rest) <= 3 else None
    if resource is not None and (within or name) and within != resource.namespaced:
        resource = None
    if method in ("GET", "HEAD"):
        verb = "get" if name else "watch" if truthy(query.get("watch")) else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    if not name and verb in ("list", "watch"):
        # A collection that is narrowed to one object: RBAC's resourceNames look at its name.
        terms = (term.partition("=") for term in query.get("fieldSelector", "").split(","))
        name = next((value.lstrip("=") for key, _, value in terms if key == "metadata.name"), "")
    group = parts[1] if parts[0] == "apis" else ""
    return Right(verb, group, plural, subresource, namespace, name), resource


def truthy(text: str | None) -> bool:
    """A boolean query parameter: present and neither `0` nor `false`."""
    return text is not None and text.lower() not in ("0", "false")


def whole_number(query: Mapping[str, str], name: str) -> int:
    """A query parameter that is a number of 64 bits, 0 if it is not given. Raises StatusError (400)."""
    text = query.get(name, "")
    if text and not (text.isdecimal() and len(text) <= 20):
        raise statuses.bad_request(f"{name} must be a whole number, not {text[:20]!r}")
    return int(text or 0)


def user_object(user: UserInfo) -> Object:
    """A user as `authentication.k8s.io/v1` UserInfo."""
    extra = {key: list(values) for key, values in user.extra.items()}
    info = {"username": user.username, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {key: value for key, value in info.items() if value or key == "username"}


@dataclass(slots=True)
class WriteRequest:
    """One write: on what, by whom, how; and, once it is known, what admission judges.

    `operation` (CREATE, UPDATE, DELETE or CONNECT), `object` (None at DELETE) and `old_object` (None at CREATE) are
    called as in `admission.k8s.io/v1` AdmissionRequest.
    """

    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: UserInfo = ADMIN
    dry_run: bool = False
    manager: str = "giveway"
    """The field manager."""
    options: Object = field(default_factory=dict)
    """CreateOptions, UpdateOptions, PatchOptions or DeleteOptions."""
    warnings: list[str] = field(default_factory=list)
    """Each becomes a `Warning` header."""
    admit: bool = True
    """False for what an inner part of the server does, such as the delete that an eviction leads to."""
    operation: str = ""
    object: Object | None = None
    old_object: Object | None = None

    def judging(self, operation: str, obj: Object | None, old: Object | None) -> WriteRequest:
        """The same with what admission judges."""
        return replace(self, operation=operation, object=obj, old_object=old)

    def denied(self, why: str) -> statuses.StatusError:
        """403 in the words of an admission plugin, with the name; before it is made, `generateName` or `Unknown`."""
        metadata = (self.object or {}).get("metadata") or {}
        name = self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
        return statuses.forbidden(self.resource.group, self.resource.plural, name, why)


SubresourceHandler = Callable[[WriteRequest], Awaitable[tuple[int, Object]]]
"""Answers a POST to a sub-resource such as `pods/eviction`, whose body is the request's object.

Returns an HTTP status and the object to send; raises StatusError for a refusal.
"""
