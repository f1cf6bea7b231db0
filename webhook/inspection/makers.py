"""Who made an object that exists, as far as the object tells, and how rules that read the requester are judged then.

Kubernetes does not store who made an object. Of a pod with a controller it is known: a controller, so that `subjects`
say nothing of it (docs/policies.md, "Who asks"). Of a bare pod or a PriorityClass it is not. Then every test of the
requester is taken once as the one that refuses and once as the one that does not. A rule that refuses both times
refuses the object whoever made it; a rule that refuses only once cannot be judged after the fact.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.policy.evaluation.request import CONTROLLER, UserInfo
from webhook.policy.model.match import RequestMatch, reads_user
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule, Validate

_MIRROR = "kubernetes.io/config.mirror"
_KUBE_SYSTEM = "system:serviceaccount:kube-system:"
_CONTROLLERS = {
    ("apps/v1", "DaemonSet"): "daemon-set-controller",
    ("apps/v1", "ReplicaSet"): "replicaset-controller",
    ("apps/v1", "StatefulSet"): "statefulset-controller",
    ("batch/v1", "Job"): "job-controller",
    ("v1", "ReplicationController"): "replication-controller",
}
"""Kubernetes' own controllers that make pods, by apiVersion and kind of what they make them for."""
_MAKES = {"cronjobs": "jobs", "deployments": "replicasets"}
"""Workloads that make others, of which pods are made."""
_OF_TEMPLATES = {f"{kind.lower()}s": controller for (_, kind), controller in _CONTROLLERS.items()}


class Maker(msgspec.Struct, frozen=True):
    """Who made an object. `kind` says what of them is known.

    "named": the user name. "controller": that a controller made it, but not by which name. "unknown": nothing.
    """

    kind: str
    user: UserInfo = UserInfo()

    @property
    def known(self) -> bool:
        """Whether every rule can be judged."""
        return self.kind == "named"


UNKNOWN = Maker("unknown")


def maker_of(owners: list[dict[str, Any]], annotations: dict[str, str], node: str) -> Maker:
    """Who made a pod: by its ownerReferences, or the kubelet if it is a mirror pod."""
    if _MIRROR in annotations:
        return Maker("named", UserInfo(f"system:node:{node}", ("system:nodes", "system:authenticated")))
    owner = next((reference for reference in owners if reference.get("controller")), None)
    if owner is None:
        return UNKNOWN
    controller = _CONTROLLERS.get((owner.get("apiVersion", ""), owner.get("kind", "")))
    return Maker("controller", CONTROLLER) if controller is None else _named(controller)


def maker_of_template(plural: str) -> Maker:
    """Who makes the pods of a workload."""
    return _named(_OF_TEMPLATES[_MAKES.get(plural, plural)])


def _named(controller: str) -> Maker:
    return Maker("named", UserInfo(f"{_KUBE_SYSTEM}{controller}", CONTROLLER.groups))


def bounded(policies: Policies, *, refuses: bool, subjects: bool) -> Policies:
    """The policies with every test of the requester settled: as the one that refuses, or as the one that does not.

    Without `subjects` only expressions that read `request.userInfo` are settled.
    """
    settle = _strict if refuses else _lenient
    changed = (settle(policy, subjects=subjects) for policy in policies.priority)
    return msgspec.structs.replace(policies, priority=tuple(policy for policy in changed if policy is not None))


def _strict(policy: PriorityPolicy, *, subjects: bool) -> PriorityPolicy:
    """The policy as it applies to whoever it is hardest on."""
    exclude = policy.exclude
    return msgspec.structs.replace(
        policy,
        match=_without(policy.match) if subjects else policy.match,
        exclude=None if subjects and exclude is not None and exclude.subjects is not None else exclude,
        conditions=tuple(condition for condition in policy.conditions if not reads_user(condition.expression)),
        rules=tuple(_rule(rule, subjects=subjects, refuses=True) for rule in policy.rules),
        exceptions=tuple(
            exception for exception in policy.exceptions if not (subjects and exception.match.subjects is not None)
        ),
    )


def _lenient(policy: PriorityPolicy, *, subjects: bool) -> PriorityPolicy | None:
    """The policy as it applies to whoever it is easiest on; None if there may be somebody it is not about."""
    if any(reads_user(condition.expression) for condition in policy.conditions):
        return None
    exclude = policy.exclude
    if subjects and policy.match.subjects is not None:
        return None
    if subjects and exclude is not None and exclude.subjects is not None:
        exclude = _without(exclude)
        if exclude == RequestMatch():
            return None
    rules = tuple(_rule(rule, subjects=subjects, refuses=False) for rule in policy.rules)
    exceptions = policy.exceptions
    if subjects:
        exceptions = tuple(
            msgspec.structs.replace(exception, match=_without(exception.match)) for exception in exceptions
        )
        # One by subjects alone then names nobody in particular, so its rules refuse nobody for sure.
        let_in = {rule for exception in exceptions if exception.match == RequestMatch() for rule in exception.rules}
        rules = tuple(rule for rule in rules if rule.name not in let_in)
    return msgspec.structs.replace(policy, exclude=exclude, rules=rules, exceptions=exceptions)


def _rule(rule: PriorityRule, *, subjects: bool, refuses: bool) -> PriorityRule:
    """The rule with its tests of the requester settled. What it tests is read off its declaration."""
    declaration = rule.declaration
    if declaration.rights is None or any(map(reads_user, declaration.expressions)):
        body = Validate(expression="false" if refuses else "true", resources=tuple(sorted(declaration.about)))
        return PriorityRule(name=rule.name, source=rule.source, enforcement=rule.enforcement, validate=body)
    rights = {right.field: _rights(right.alternatives, refuses) for right in declaration.rights}
    if not subjects or not rights:
        return rule
    name, body = rule.body
    return msgspec.structs.replace(rule, **{name: msgspec.structs.replace(body, **rights)})


def _rights(rights: tuple[Any, ...], refuses: bool) -> tuple[Any, ...]:
    return tuple(right for right in rights if right.subjects is None) if refuses else tuple(map(_without, rights))


def _without(right: Any) -> Any:
    return msgspec.structs.replace(right, subjects=None)
