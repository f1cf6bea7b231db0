"""Acting as somebody else: `kubectl --as`, allowed to whom RBAC grants the verb `impersonate`."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.calls import Authorizer, Right, UserInfo

__all__ = ["HEADERS", "acting_user"]

HEADERS = ("impersonate-user", "impersonate-group", "impersonate-uid")
"""The headers read; several groups come separated by commas."""

_SERVICE_ACCOUNT = "system:serviceaccount:"


def acting_user(user: UserInfo, headers: Mapping[str, str], authorizer: Authorizer) -> UserInfo:
    """The user the call is to be judged as. Raises StatusError (403) where `user` may not act so."""
    name = headers.get("impersonate-user")
    if not name:
        return user
    groups = tuple(group for group in headers.get("impersonate-group", "").split(",") if group)
    _check(user, authorizer, "users", name)
    for group in groups:
        _check(user, authorizer, "groups", group)
    if not groups and name.startswith(_SERVICE_ACCOUNT):
        namespace = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return UserInfo(name, (*groups, "system:authenticated"), headers.get("impersonate-uid", ""))


def _check(user: UserInfo, authorizer: Authorizer, resource: str, name: str) -> None:
    namespace, subject = "", name
    if resource == "users" and name.startswith(_SERVICE_ACCOUNT):
        resource = "serviceaccounts"
        namespace, _, subject = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
    allowed, reason = authorizer.authorize(
        user, Right("impersonate", resource=resource, namespace=namespace, name=subject)
    )
    if not allowed:
        text = f'{resource} "{subject}" is forbidden: User "{user.username}" cannot impersonate resource "{resource}"'
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        details = {"name": subject, "kind": resource}
        tail = f": {reason}" if reason else ""
        raise statuses.failure(403, "Forbidden", f'{text} in API group "" {scope}{tail}', details)
