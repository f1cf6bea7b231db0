"""`match`, `exclude`, rights and managed classes as CEL: what `webhook.policy.evaluation.matching` does as functions.

What restricts and what gives differ in the same way (docs/policies.md, "Who asks").
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from webhook.admission.mutating import MIRROR
from webhook.native.expressions import (
    FALSE,
    TRUE,
    all_of,
    any_of,
    if_else,
    name_is,
    negate,
    quote,
    selected,
)
from webhook.policy.evaluation.request import CLASSES, OWNER_FIELDS, PODS
from webhook.policy.model.globs import WILDCARD, intersect, literal_prefix
from webhook.policy.model.match import (
    CONTROLLER_MANAGER,
    GARBAGE_COLLECTORS,
    NODE_GROUP,
    NODE_USER,
    SERVICE_ACCOUNT,
    RequestMatch,
    Subject,
)
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.registration.entries import changed, changed_metadata


class Asked(msgspec.Struct, frozen=True):
    """The requests that an expression is about, as rules take them; a Binding does not carry its pod's labels."""

    kind: str
    operation: str
    labels_known: bool = True


NEW_POD, CHANGED_POD = Asked(PODS, "CREATE"), Asked(PODS, "UPDATE")
BINDING = Asked(PODS, "UPDATE", labels_known=False)
NEW_CLASS, CHANGED_CLASS = Asked(CLASSES, "CREATE"), Asked(CLASSES, "UPDATE")
DELETED_CLASS = Asked(CLASSES, "DELETE")
"""Rules take it for a change. There is no new object."""

USER, GROUPS = "request.userInfo.username", "request.userInfo.?groups.orValue([])"
SERVICE_ACCOUNT_ASKS = f"{USER}.startsWith('{SERVICE_ACCOUNT}') || {USER} == '{CONTROLLER_MANAGER}'"
HAS_CONTROLLER = "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
_CONTROLLER_ASKS = any_of(
    [
        f"{USER}.startsWith('{SERVICE_ACCOUNT}kube-system:')",
        f"{USER} == '{CONTROLLER_MANAGER}'",
        HAS_CONTROLLER,
    ]
)

_OF_ITS_NODE = f"owner.?controller.orValue(false) && owner.kind == 'Node' && '{NODE_USER}' + owner.name == {USER}"
STATIC_POD = all_of(
    [
        f"'{NODE_GROUP}' in {GROUPS}",
        f"'{NODE_USER}' + object.spec.?nodeName.orValue('') == {USER}",
        f"{quote(MIRROR)} in object.metadata.?annotations.orValue({{}})",
        f"object.metadata.?ownerReferences.orValue([]).exists(owner, {_OF_ITS_NODE})",
    ]
)
"""A kubelet shows what runs on its own node from a file there (`webhook.admission.validating`)."""
DEFINITION = [
    *map(changed, ("value", "?globalDefault", "?preemptionPolicy", "?description")),
    *map(changed_metadata, ("labels", "annotations")),
]
"""What of a PriorityClass an UPDATE can change, beyond bookkeeping."""
_OWNERS = "metadata.?ownerReferences.orValue([])"
_SAME_OWNER = all_of(f"was.{field} == owner.{field}" for field in OWNER_FIELDS)
_GAINS_OWNER = f"object.{_OWNERS}.exists(owner, !oldObject.{_OWNERS}.exists(was, {_SAME_OWNER}))"
_COLLECTED = all_of([name_is(USER, GARBAGE_COLLECTORS), f"oldObject.{_OWNERS}.size() > 0"])
GOES = if_else(
    "request.operation == 'DELETE'",
    negate(_COLLECTED),
    any_of([_GAINS_OWNER, all_of(["has(object.metadata.deletionTimestamp)", any_of(DEFINITION)])]),
)
"""A class is deleted, but not by the garbage collector for an owner; or it gets an owner, or changes while it goes."""


def holds(match: RequestMatch, asked: Asked, *, gives: bool = False) -> str:
    """The request is one that `match` restricts, or one which it gives a right or excludes."""
    return all_of(_tests(match, asked, gives=gives))


def excluded(exclude: RequestMatch | None, asked: Asked) -> str:
    """The request is excluded; no PriorityClass lies in an excluded namespace."""
    if exclude is None or exclude == RequestMatch():
        return FALSE
    if asked.kind != PODS and exclude.in_namespaces:
        return FALSE
    return holds(exclude, asked, gives=True)


def may(rights: Iterable[RequestMatch], asked: Asked) -> str:
    """One of the alternatives of a right holds."""
    return any_of(holds(right, asked, gives=True) for right in rights)


def may_define(definers: Iterable[RequestMatch], asked: Asked) -> str:
    """Who asks may define this PriorityClass."""
    name = f"{'oldObject' if asked == DELETED_CLASS else 'object'}.metadata.name"
    return any_of(
        all_of(
            [
                name_is(name, definer.names or [WILDCARD]),
                asks(definer.subjects) if definer.subjects else TRUE,
            ]
        )
        for definer in definers
    )


def by_operation(make: Callable[[Asked], str], *about: Asked) -> str:
    """What `make` gives for one operation or two, as one expression."""
    first, *others = ((asked.operation, make(asked)) for asked in about)
    if not others:
        return first[1]
    return if_else(f"request.operation == {quote(first[0])}", first[1], others[0][1])


def asks(subjects: Iterable[Subject]) -> str:
    """Who asks is one of these."""
    rows = list(subjects)
    users = [row.user_pattern for row in rows if row.user_pattern is not None]
    tests, globs = [name_is(USER, users)], []
    for row in rows:
        if row.kind == "Group":
            if WILDCARD in row.name:
                globs.append(row.name)
            else:
                tests.append(f"{quote(row.name)} in {GROUPS}")
    if globs:
        tests.append(f"{GROUPS}.exists(group, {name_is('group', globs)})")
    return any_of(tests)


def twins_of(policies: Iterable[PreemptionPolicy]) -> dict[str, str]:
    """Every class with its twin. By loading, a class has one policy, and Kubernetes' own no twin."""
    twins: dict[str, str] = {}
    for policy in policies:
        twins.update(policy.preemptors.twins)
    return twins


def managed(policies: Iterable[PreemptionPolicy], name: str) -> str:
    """The class of this name (an expression) is managed (docs/semantics.md A); Kubernetes' own never are."""
    patterns: list[str] = []
    for policy in policies:
        twins = policy.preemptors.twins
        patterns += [*policy.preemptors.priority_classes, *twins, *twins.values()]
    system = f"system-{WILDCARD}"
    may_be_system = any(intersect(pattern, system) for pattern in patterns)
    tests = [name_is(name, patterns)]
    if may_be_system:
        tests.insert(0, f"!{name}.startsWith('system-')")
    return all_of(tests)


def managed_if_generated(policies: Iterable[PreemptionPolicy], prefix: str) -> str:
    """A class whose name the API server makes of this `generateName` (an expression) may be managed.

    A glob matches some name with the prefix if the prefix begins with
    what stands before the first `*`, or the reverse.
    """
    tests: list[str] = []
    for policy in policies:
        for pattern in policy.preemptors.priority_classes:
            if WILDCARD in pattern:
                literal = quote(literal_prefix(pattern))
                tests.append(f"{prefix}.startsWith({literal})")
                tests.append(f"{literal}.startsWith({prefix})")
    no_system = f"!{prefix}.startsWith('system-')"
    return all_of([f"{prefix} != ''", no_system, any_of(tests)])


def _tests(match: RequestMatch, asked: Asked, *, gives: bool) -> Iterator[str]:
    """Every part of a match that is named, in the order of `parts_of`; for classes no namespaces.

    An object's labels must be selected before and after a change if
    the match gives something; else one of them suffices.
    """
    of_pods = asked.kind == PODS
    if match.operations is not None:
        operation = "UPDATE" if asked == DELETED_CLASS else asked.operation
        yield TRUE if operation in match.operations else FALSE
    if match.namespaces is not None and of_pods:
        yield name_is("request.namespace", match.namespaces)
    if match.subjects is not None:
        yield _who(match, match.subjects, asked, gives=gives)
    if match.object_selector is not None:
        only = {"CREATE": ["object"], "DELETE": ["oldObject"]}
        states = only.get(asked.operation, ["object", "oldObject"])
        each = [selected(f"{state}.metadata.?labels", match.object_selector) for state in states]
        if asked.labels_known:
            yield all_of(each) if gives else any_of(each)
        else:
            yield FALSE if gives else TRUE
    if match.namespace_selector is not None and of_pods:
        yield selected("namespaceObject.metadata.?labels", match.namespace_selector)


def _who(match: RequestMatch, subjects: Sequence[Subject], asked: Asked, *, gives: bool) -> str:
    """The subjects of a match ask, as far as that is known.

    Service accounts and controllers make pods for others. So subjects say nothing
    of them: they are restricted, and of what gives only namespaces count. One
    exception: subjects name a service account exactly, and it makes a pod without
    a controller. Then it asks for itself (docs/policies.md, "Who asks").
    """
    who = asks(subjects)
    if not gives:
        return any_of([SERVICE_ACCOUNT_ASKS, who]) if asked.kind == PODS else who
    if asked != NEW_POD:
        return who
    if match.by_namespace:
        return if_else(SERVICE_ACCOUNT_ASKS, TRUE, who)
    exactly = sorted(subject.exact_user for subject in subjects if subject.exact_user)
    accounts = [CONTROLLER_MANAGER] if CONTROLLER_MANAGER in exactly else []
    accounts += [name for name in exactly if name.startswith(SERVICE_ACCOUNT)]
    itself = all_of([name_is(USER, accounts), negate(_CONTROLLER_ASKS)])
    return if_else(SERVICE_ACCOUNT_ASKS, itself, who)
