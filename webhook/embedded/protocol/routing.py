"""From a method and a path to a verb and a resource, as Kubernetes' RequestInfo has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import BY_URL, ApiResource
from webhook.embedded.protocol.calls import Right

__all__ = ["Route", "route", "truthy", "whole_number"]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_DEPTHS = {"api": 2, "apis": 3}
"""Parts of a path before the resource: `/api/VERSION` and `/apis/GROUP/VERSION`."""


@dataclass(slots=True)
class Route:
    """Where a call leads. `resource` is None for a path outside the resources, whose verb is the method."""

    verb: str
    path: str
    resource: ApiResource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    group: str = ""
    plural: str = ""

    @property
    def right(self) -> Right:
        """What a user needs to go there; the path counts only outside the resources."""
        path = "" if self.plural else self.path
        return Right(self.verb, self.group, self.plural, self.subresource, self.namespace, self.name, path)


def truthy(text: str | None) -> bool:
    """A boolean query parameter: present and neither `0` nor `false`."""
    return text is not None and text.lower() not in ("0", "false")


def whole_number(query: Mapping[str, str], name: str) -> int:
    """A query parameter that counts something, 0 if it is not given. Raises StatusError (400)."""
    text = query.get(name, "")
    if text and not text.isdecimal():
        raise statuses.bad_request(f"{name} must be a whole number, not {text!r}")
    return int(text or 0)


def route(method: str, path: str, query: Mapping[str, str]) -> Route:
    """Take a call's path apart."""
    parts = [part for part in path.split("/") if part]
    depth = _DEPTHS.get(parts[0], 0) if parts else 0
    if not depth or len(parts) <= depth:
        return Route(method.lower(), path)
    root, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    found = Route(
        verb=_verb(method, name, query),
        path=path,
        resource=BY_URL.get((root, plural)) if len(rest) <= 3 else None,
        namespace=namespace,
        name=name,
        subresource=subresource,
        group=parts[1] if parts[0] == "apis" else "",
        plural=plural,
    )
    if not name and found.verb in ("list", "watch", "deletecollection"):
        found.name = _single_name(query.get("fieldSelector", ""))
    return found


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        if truthy(query.get("watch")):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _VERBS.get(method, method.lower())


def _single_name(selector: str) -> str:
    """The one object a collection request is narrowed to, which is what RBAC's resourceNames look at."""
    for part in selector.split(","):
        key, _, value = part.partition("=")
        if key == "metadata.name":
            return value.lstrip("=")
    return ""
