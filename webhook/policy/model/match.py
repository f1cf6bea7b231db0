"""Who asks, and which requests and objects are meant: what policies of both kinds share.

A person acts for themselves. A service account may act for someone else: a controller makes the pods of everybody's
workloads, an operator those of everybody's custom resources. Who is behind them is not in the request, so `subjects`
say nothing of such a request, and rights hold by namespace (docs/policies.md, "Who asks").
"""

from dataclasses import replace
from typing import Annotated

import msgspec

from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.policy.model.globs import WILDCARD, name_matcher
from webhook.policy.model.values import LABEL_KEY, LABEL_VALUE, NamespaceGlob, Namespaces
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import FILLED, Nodes, Values, mapping, shape_of
from webhook.policy.shapes.shapes import ListOf, MapOf, one_of, string
from webhook.policy.shapes.yaml_nodes import YamlNode, YamlSequence

SERVICE_ACCOUNT = "system:serviceaccount:"
"""A service account's user name is this, its namespace, a colon and its name."""
KUBE_SYSTEM_ACCOUNT = f"{SERVICE_ACCOUNT}kube-system:"
CONTROLLER_MANAGER = "system:kube-controller-manager"
"""Who makes pods if kube-controller-manager runs without `--use-service-account-credentials`."""
NODE_USER, NODE_GROUP = "system:node:", "system:nodes"
"""A kubelet's user name is this and its node's name, and its group."""
GARBAGE_COLLECTORS = CONTROLLER_MANAGER, f"{KUBE_SYSTEM_ACCOUNT}generic-garbage-collector"
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

Operation = Annotated[str, one_of("an operation", {"CREATE": "the object is made", "UPDATE": "the object is changed"})]
Operations = Annotated[tuple[Operation, ...], FILLED]
_OPERATOR = one_of(
    "an operator",
    {
        "In": "the value is one of these",
        "NotIn": "the value is not one of these, or the label is not there",
        "Exists": "the label is there",
        "DoesNotExist": "the label is not there",
    },
)


@mapping("label requirement", build=lambda values, _: Requirement(**values))
class _LabelRequirement(msgspec.Struct, frozen=True):
    """One row of matchExpressions."""

    key: Annotated[str, LABEL_KEY, "The label's key."]
    operator: Annotated[str, _OPERATOR, "In, NotIn, Exists or DoesNotExist."]
    values: Annotated[tuple[Annotated[str, LABEL_VALUE], ...], "The values for In and NotIn."] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """The operator and the values must fit."""
        if "key" not in values or "operator" not in values:
            return
        try:
            label_matcher(LabelSelector(match_expressions=[Requirement(**values)]))
        except SelectorError as error:
            reader.error(nodes.get("values", nodes["operator"]), str(error))


@mapping("label selector", build=lambda values, _: LabelSelector(**values))
class _LabelSelector(msgspec.Struct, frozen=True):
    """As everywhere in Kubernetes: all that is named must hold; an empty one selects everything."""

    match_labels: Annotated[dict[str, str], MapOf(LABEL_VALUE, LABEL_KEY), "Labels with exactly these values."] = {}
    match_expressions: Annotated[tuple[_LabelRequirement, ...], "Further requirements on labels."] = ()


Selector = Annotated[LabelSelector, shape_of(_LabelSelector)]


def keys_of(selector: LabelSelector | None) -> set[str]:
    """The labels by which a selector selects."""
    if selector is None:
        return set()
    return {*(selector.match_labels or ()), *(row.key for row in selector.match_expressions or ())}


_SUBJECT = one_of(
    "a kind of subject", {"User": "by user name", "Group": "by group", "ServiceAccount": "by namespace and name"}
)


@mapping("subject")
class Subject(msgspec.Struct, frozen=True):
    """Who asks. The pods of a Deployment or Job are made by a controller, of which subjects say nothing."""

    kind: Annotated[str, _SUBJECT, "User, Group or ServiceAccount."]
    name: Annotated[str, string("a name"), "The name; * stands for any characters."]
    namespace: Annotated[NamespaceGlob, "The ServiceAccount's namespace; * stands for any characters."] = ""

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """A ServiceAccount has a namespace, and nothing else has."""
        kind = values.get("kind")
        if kind == "ServiceAccount" and "namespace" not in values:
            reader.error(nodes["kind"], 'a ServiceAccount needs "namespace"; "*" is any')
        elif kind not in (None, "ServiceAccount") and "namespace" in nodes:
            reader.error(nodes["namespace"], f'a {kind} has no "namespace"; only ServiceAccounts do')

    def __str__(self) -> str:
        """`Group a`, or `ServiceAccount kube-system/b`."""
        return f"{self.kind} {self.namespace}{'/' if self.namespace else ''}{self.name}"

    @property
    def user_pattern(self) -> str | None:
        """The user names that it means, a name or glob; None for a Group."""
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
        """Whether it means a controller of everybody's pods: by name, glob or group."""
        pattern = self.user_pattern
        if pattern is None:
            return any(map(name_matcher((self.name,)), CONTROLLER_GROUPS))
        account = self.exact_user or ""
        if account.startswith(KUBE_SYSTEM_ACCOUNT) and account.endswith("-controller"):
            return True
        return any(map(name_matcher((pattern,)), _CONTROLLERS))


Subjects = Annotated[tuple[Subject, ...], FILLED]


@mapping("match")
class RequestMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are meant: everything named must hold, what is absent always does."""

    namespaces: Annotated[
        Namespaces | None,
        "The object's namespace is one of these; * stands for any characters. Says nothing about PriorityClasses.",
    ] = None
    namespace_selector: Annotated[
        Selector | None, "The labels of the object's namespace are selected. Says nothing about PriorityClasses."
    ] = None
    object_selector: Annotated[
        Selector | None,
        "The labels of the pod, the pod template or the PriorityClass are selected, before or after an update.",
    ] = None
    subjects: Annotated[Subjects | None, "Who asks is one of these."] = None
    operations: Annotated[Operations | None, "CREATE, UPDATE or both (when absent)."] = None
    names: tuple[str, ...] | None = None
    """The class's name is one of these; in the right to define one only."""

    @property
    def in_namespaces(self) -> bool:
        """Whether it means objects in namespaces, which no PriorityClass is."""
        return self.namespaces is not None or self.namespace_selector is not None

    @property
    def by_namespace(self) -> bool:
        """Whether it tells namespaces apart: one that nobody named or labelled is not meant.

        So `*`, an empty selector and one that only leaves some namespaces out do not count.
        """
        names, selector = self.namespaces, self.namespace_selector
        if names is not None and not name_matcher(names)(_NO_NAMESPACE):
            return True
        unlabelled = {"kubernetes.io/metadata.name": _NO_NAMESPACE}
        return selector is not None and not label_matcher(selector)(unlabelled)


RIGHT = replace(
    shape_of(RequestMatch),
    title="right",
    doc="Who has a right: everything named must hold. A list of rights gives alternatives. A pod that a service account"
    " or a controller makes has a right by namespace only, unless the right names that service account exactly.",
    fields=tuple(field for field in shape_of(RequestMatch).fields if field.attribute != "operations"),
)
"""A match without operations: a right is asked for in one operation."""
Rights = Annotated[tuple[RequestMatch, ...], ListOf(RIGHT, or_one=True)]


MEND = 'add "namespaces" or "namespaceSelector" (not "*", {} or all but some: a new namespace must not be meant)'
"""What to do about a right or a match that would mean the controllers, which make pods for everybody."""
_EVERYBODYS = (
    "means the controllers, which make pods for whoever makes a workload: the right would be everybody's; leave this"
    " subject out and say for which pods the right is"
)


def check_rights(rights: tuple[RequestMatch, ...], node: YamlNode, reader: Reader) -> None:
    """Refuse alternatives that controllers open to everybody (docs/policies.md, "Who asks")."""
    places = node.items if isinstance(node, YamlSequence) else [node]
    for number, right in enumerate(rights):
        subjects = () if right.by_namespace else right.subjects or ()
        controllers = [str(subject) for subject in subjects if subject.covers_controllers]
        if controllers:
            place = places[number] if len(places) == len(rights) else node  # else some could not be read
            reader.error(place, f"{' or '.join(controllers)} {_EVERYBODYS}: {MEND}")
