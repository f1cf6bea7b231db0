"""Who asks for a pod, and whether `subjects` can say anything of them.

A person acts for themselves. A service account may act for someone else: a controller makes the pods of everybody's
workloads, an operator those of everybody's custom resources. Who is behind them is not in the request, so `subjects`
say nothing of such a request, and rights hold by namespace (docs/policies.md, "Who asks").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.globs import WILDCARD, intersect, name_matcher
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.model import PriorityPolicy, RequestMatch, Subject

__all__ = [
    "CONTROLLER",
    "CONTROLLER_MANAGER",
    "SERVICE_ACCOUNT",
    "asks_who",
    "by_namespace",
    "covers_controllers",
    "has_controller",
    "is_controller",
    "is_service_account",
    "names_exactly",
    "reads_user",
    "user_pattern",
]

SERVICE_ACCOUNT = "system:serviceaccount:"
"""A service account's user name is this, its namespace, a colon and its name."""
CONTROLLER_MANAGER = "system:kube-controller-manager"
"""Who makes pods if kube-controller-manager runs without `--use-service-account-credentials`."""
_NO_NAMESPACE = "\0"
"""The name of no namespace, so that nothing but a glob or a negative requirement means it."""
_KUBE_SYSTEM = f"{SERVICE_ACCOUNT}kube-system:"
_CONTROLLERS = (
    CONTROLLER_MANAGER,
    *(
        f"{_KUBE_SYSTEM}{name}-controller"
        for name in ("cronjob", "daemon-set", "deployment", "job", "replicaset", "replication", "statefulset")
    ),
)
"""Kubernetes' own users that make pods, or the workloads that make them."""
CONTROLLER = UserInfo(
    username=f"{_KUBE_SYSTEM}replicaset-controller",
    groups=("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
)
"""Who makes the pods of a workload; for policies one controller is as good as another."""


def is_service_account(username: str) -> bool:
    """Whether this user may make pods for someone else."""
    return username.startswith(SERVICE_ACCOUNT) or username == CONTROLLER_MANAGER


def is_controller(username: str) -> bool:
    """Whether pods of this user are always made for someone else: service accounts of kube-system count as well."""
    return username.startswith(_KUBE_SYSTEM) or username == CONTROLLER_MANAGER


def has_controller(metadata: Mapping[str, Any]) -> bool:
    """Whether an ownerReference says `controller: true`.

    Whoever makes the object writes it, so it may only take rights away.
    """
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list):
        return False
    return any(isinstance(one, dict) and one.get("controller") is True for one in owners)


def by_namespace(match: RequestMatch) -> bool:
    """Whether a match tells namespaces apart: one that nobody named or labelled is not meant.

    So `*`, an empty selector and one that only leaves some namespaces out do not count.
    """
    names, selector = match.namespaces, match.namespace_selector
    named = names is not None and not name_matcher(names)(_NO_NAMESPACE)
    unlabelled = {"kubernetes.io/metadata.name": _NO_NAMESPACE}
    return named or (selector is not None and not label_matcher(selector)(unlabelled))


def user_pattern(subject: Subject) -> str | None:
    """The user names that a User or ServiceAccount means, as a name or glob; None for a Group."""
    if subject.kind == "ServiceAccount":
        return f"{SERVICE_ACCOUNT}{subject.namespace}:{subject.name}"
    return subject.name if subject.kind == "User" else None


def names_exactly(subject: Subject) -> str | None:
    """The one user that a subject names; None for groups and globs."""
    pattern = user_pattern(subject)
    return None if pattern is None or WILDCARD in pattern else pattern


def reads_user(expression: str) -> bool:
    """Whether a CEL expression may read who asks: `request.userInfo`, however it is written."""
    return "userInfo" in expression


def asks_who(policy: PriorityPolicy) -> bool:
    """Whether who asks makes a difference to what a policy says of a pod."""
    matches = [policy.match, policy.exclude or RequestMatch(), *(one.match for one in policy.exceptions)]
    expressions = [one.expression for one in policy.conditions]
    for rule in policy.rules:
        matches += rule.reserve.use if rule.reserve else ()
        matches += rule.protect_annotations.allow if rule.protect_annotations else ()
        expressions += [rule.validate.expression] if rule.validate else []
    return any(one.subjects is not None for one in matches) or any(map(reads_user, expressions))


def covers_controllers(subject: Subject) -> bool:
    """Whether a subject means a controller that makes pods for everybody: by name, by glob or by group."""
    pattern = user_pattern(subject)
    if pattern is None:
        return any(intersect(subject.name, group) for group in CONTROLLER.groups)
    if pattern.startswith(_KUBE_SYSTEM) and WILDCARD not in pattern and pattern.endswith("-controller"):
        return True
    return any(intersect(pattern, user) for user in _CONTROLLERS)
