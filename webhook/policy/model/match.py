"""Who asks, and which requests and objects are meant: what policies of both kinds share.

A person acts for themselves. A service account may act for someone else: a controller makes the pods of everybody's
workloads, an operator those of everybody's custom resources. Who is behind them is not in the request, so `subjects`
say nothing of such a request, and rights hold by namespace (docs/policies.md, "Who asks").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec

from webhook.kube.objects import LabelSelector, Requirement
from webhook.kube.selectors import label_matcher
from webhook.policy.model.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model.values import LABEL_KEY, LABEL_VALUE, NAMESPACE, NAMESPACES
from webhook.policy.shapes.nodes import SourcePosition
from webhook.policy.shapes.object_shape import Field, ObjectShape, Property, Values, mapping, shape_of
from webhook.policy.shapes.shapes import Choice, ListOf, MapOf, Text

__all__ = [
    "CONTROLLER_GROUPS",
    "CONTROLLER_MANAGER",
    "KUBE_SYSTEM_ACCOUNT",
    "OPERATIONS",
    "RIGHT",
    "SELECTOR",
    "SERVICE_ACCOUNT",
    "SUBJECTS",
    "RequestMatch",
    "Subject",
    "reads_user",
    "requirement",
]

SERVICE_ACCOUNT = "system:serviceaccount:"
"""A service account's user name is this, its namespace, a colon and its name."""
KUBE_SYSTEM_ACCOUNT = f"{SERVICE_ACCOUNT}kube-system:"
CONTROLLER_MANAGER = "system:kube-controller-manager"
"""Who makes pods if kube-controller-manager runs without `--use-service-account-credentials`."""
CONTROLLER_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
"""The groups of Kubernetes' own controllers, which make the pods of workloads."""

_CONTROLLERS = (
    CONTROLLER_MANAGER,
    *(
        f"{KUBE_SYSTEM_ACCOUNT}{name}-controller"
        for name in ("cronjob", "daemon-set", "deployment", "job", "replicaset", "replication", "statefulset")
    ),
)
"""Kubernetes' own users that make pods, or the workloads that make them."""
_NO_NAMESPACE = "\0"
"""The name of no namespace, so that nothing but a glob or a negative requirement means it."""

OPERATIONS = ListOf(
    Choice("an operation", {"CREATE": "the object is made", "UPDATE": "the object is changed"}), least=1
)


def requirement(values: Values, source: SourcePosition) -> Requirement:
    """A row of matchExpressions from its values."""
    del source
    return Requirement(
        key=values["key"], operator=values["operator"], values=list(values["values"]) if "values" in values else None
    )


_REQUIREMENT = ObjectShape(
    "label requirement",
    "One row of matchExpressions.",
    (
        Property("key", "key", LABEL_KEY, "The label's key.", required=True),
        Property(
            "operator",
            "operator",
            Choice(
                "an operator",
                {
                    "In": "the value is one of these",
                    "NotIn": "the value is not one of these, or the label is not there",
                    "Exists": "the label is there",
                    "DoesNotExist": "the label is not there",
                },
            ),
            "In, NotIn, Exists or DoesNotExist.",
            required=True,
        ),
        Property("values", "values", ListOf(LABEL_VALUE), "The values for In and NotIn."),
    ),
    model=Requirement,
    build=requirement,
)


def _selector(values: Values, source: SourcePosition) -> LabelSelector:
    del source
    rows = values.get("match_expressions")
    return LabelSelector(match_labels=values.get("match_labels"), match_expressions=list(rows) if rows else None)


SELECTOR = ObjectShape(
    "label selector",
    "As everywhere in Kubernetes: all that is named must hold; an empty one selects everything.",
    (
        Property("matchLabels", "match_labels", MapOf(LABEL_VALUE, LABEL_KEY), "Labels with exactly these values."),
        Property("matchExpressions", "match_expressions", ListOf(_REQUIREMENT), "Further requirements on labels."),
    ),
    build=_selector,
)


@mapping("subject")
class Subject(msgspec.Struct, frozen=True):
    """Who asks. The pods of a Deployment or Job are made by a controller, of which subjects say nothing."""

    kind: Annotated[
        str,
        Field(
            "User, Group or ServiceAccount.",
            Choice(
                "a kind of subject",
                {"User": "by user name", "Group": "by group", "ServiceAccount": "by namespace and name"},
            ),
        ),
    ]
    name: Annotated[str, Field("The name; * stands for any characters.", Text("a name"))]
    namespace: Annotated[str, Field("The ServiceAccount's namespace; * stands for any characters.", NAMESPACE)] = ""

    @property
    def user_pattern(self) -> str | None:
        """The user names that a User or ServiceAccount means, as a name or glob; None for a Group."""
        if self.kind == "ServiceAccount":
            return f"{SERVICE_ACCOUNT}{self.namespace}:{self.name}"
        return self.name if self.kind == "User" else None

    @property
    def exact_user(self) -> str | None:
        """The one user that it names; None for groups and globs."""
        pattern = self.user_pattern
        return None if pattern is None or WILDCARD in pattern else pattern

    @property
    def covers_controllers(self) -> bool:
        """Whether it means a controller that makes pods for everybody: by name, by glob or by group."""
        pattern = self.user_pattern
        if pattern is None:
            return any(intersect(self.name, group) for group in CONTROLLER_GROUPS)
        if pattern.startswith(KUBE_SYSTEM_ACCOUNT) and WILDCARD not in pattern and pattern.endswith("-controller"):
            return True
        return any(intersect(pattern, user) for user in _CONTROLLERS)


SUBJECTS = ListOf(shape_of(Subject), least=1)


@mapping("match")
class RequestMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are meant: everything named must hold, what is absent always does."""

    namespaces: Annotated[
        tuple[str, ...] | None,
        Field(
            "The object's namespace is one of these; * stands for any characters. Says nothing about PriorityClasses.",
            NAMESPACES,
        ),
    ] = None
    namespace_selector: Annotated[
        LabelSelector | None,
        Field("The labels of the object's namespace are selected. Says nothing about PriorityClasses.", SELECTOR),
    ] = None
    object_selector: Annotated[
        LabelSelector | None,
        Field(
            "The labels of the pod, the pod template or the PriorityClass are selected, before or after an update.",
            SELECTOR,
        ),
    ] = None
    subjects: Annotated[tuple[Subject, ...] | None, Field("Who asks is one of these.", SUBJECTS)] = None
    operations: Annotated[tuple[str, ...] | None, Field("CREATE, UPDATE or both (when absent).", OPERATIONS)] = None

    @property
    def by_namespace(self) -> bool:
        """Whether it tells namespaces apart: one that nobody named or labelled is not meant.

        So `*`, an empty selector and one that only leaves some namespaces out do not count.
        """
        names, selector = self.namespaces, self.namespace_selector
        named = names is not None and not name_matcher(names)(_NO_NAMESPACE)
        unlabelled = {"kubernetes.io/metadata.name": _NO_NAMESPACE}
        return named or (selector is not None and not label_matcher(selector)(unlabelled))


def reads_user(expression: str) -> bool:
    """Whether a CEL expression may read who asks: `request.userInfo`, however it is written."""
    return "userInfo" in expression


RIGHT = replace(
    shape_of(RequestMatch),
    title="right",
    doc="Who has a right: everything named must hold. A list of rights gives alternatives. A pod that a service account"
    " or a controller makes has a right by namespace only, unless the right names that service account exactly.",
    fields=tuple(one for one in shape_of(RequestMatch).fields if one.attribute != "operations"),
)
"""A match without operations: a right is asked for in one operation."""
