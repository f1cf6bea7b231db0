"""Questions about rights, answered at once: SubjectAccessReview and its kin, TokenReview and SelfSubjectReview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.embedded.access.authentication import Authentication
from webhook.embedded.access.rbac import PolicyRule, RbacAuthorizer
from webhook.embedded.protocol.calls import Object, Right, SubresourceCall, SubresourceHandler, UserInfo

__all__ = ["review_handlers"]


def review_handlers(authorizer: RbacAuthorizer, authentication: Authentication) -> dict[str, SubresourceHandler]:
    """The handlers by the plural of the review they answer."""

    async def own_access(call: SubresourceCall) -> tuple[int, Object]:
        spec = call.body.get("spec") or {}
        return _answer(call, _access(authorizer, call.change.user, spec, ""))

    async def others_access(call: SubresourceCall) -> tuple[int, Object]:
        spec = call.body.get("spec") or {}
        user = UserInfo(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
        return _answer(call, _access(authorizer, user, spec, call.change.namespace))

    async def own_rules(call: SubresourceCall) -> tuple[int, Object]:
        namespace = (call.body.get("spec") or {}).get("namespace", "")
        rules = authorizer.rules_of(call.change.user, namespace)
        return _answer(call, _rules(rules))

    async def own_user(call: SubresourceCall) -> tuple[int, Object]:
        return _answer(call, {"userInfo": _user(call.change.user)})

    async def token(call: SubresourceCall) -> tuple[int, Object]:
        user = authentication.user_of(str((call.body.get("spec") or {}).get("token", "")))
        if user is None:
            return _answer(call, {"user": {}, "error": "[invalid bearer token]"})
        return _answer(call, {"authenticated": True, "user": _user(user)})

    return {
        "selfsubjectaccessreviews": own_access,
        "subjectaccessreviews": others_access,
        "localsubjectaccessreviews": others_access,
        "selfsubjectrulesreviews": own_rules,
        "selfsubjectreviews": own_user,
        "tokenreviews": token,
    }


def _answer(call: SubresourceCall, status: Object) -> tuple[int, Object]:
    return 201, {**call.body, "status": status}


def _access(authorizer: RbacAuthorizer, user: UserInfo, spec: Mapping[str, Any], namespace: str) -> Object:
    """The status of an access review: whether the user has the right that the spec asks about."""
    asked = spec.get("resourceAttributes")
    if asked is not None:
        right = Right(
            asked.get("verb", ""),
            asked.get("group", ""),
            asked.get("resource", ""),
            asked.get("subresource", ""),
            asked.get("namespace", "") or namespace,
            asked.get("name", ""),
        )
    else:
        asked = spec.get("nonResourceAttributes") or {}
        right = Right(asked.get("verb", ""), path=asked.get("path", ""))
    return {"allowed": authorizer.allowed(user, right)}


def _rules(rules: list[PolicyRule]) -> Object:
    resources = [
        {
            "verbs": sorted(rule.verbs),
            "apiGroups": sorted(rule.groups),
            "resources": sorted(rule.resources),
            **({"resourceNames": sorted(rule.names)} if rule.names else {}),
        }
        for rule in rules
        if rule.resources
    ]
    paths = [{"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths]
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def _user(user: UserInfo) -> Object:
    info: Object = {"username": user.username, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info
