"""`match`, `exclude` and rights, compiled to functions that say why a request is not meant.

A match that restricts and one that gives something differ when the request leaves something open. A service account
may make a pod for someone else, so `subjects` say nothing of it: what restricts holds, what gives holds by namespace.
An UPDATE has the labels before and after: what restricts holds when either are selected, what gives when both are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.attributes import PODS, RequestAttributes
from webhook.policy.evaluation.globs import name_matcher
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.evaluation.requester import by_namespace, names_exactly, user_pattern
from webhook.policy.model import Definers, RequestMatch, Subject

__all__ = ["Test", "anyone_of", "definers", "excluder", "matcher", "subjects_matcher"]

Test = Callable[[RequestAttributes], str | None]
"""None if the request is meant, else the reason why it is not: a fixed text, so that it costs nothing."""


def matcher(match: RequestMatch, *, gives: bool = False) -> Test:
    """Compile a `match`: everything named must hold. `gives` says that something is given or let off, not restricted.

    Namespaces say nothing about a PriorityClass, which lies in none: there those parts always hold.
    """
    return _all_of(_parts(match, gives=gives))


def excluder(exclude: RequestMatch | None) -> Test:
    """Compile an `exclude`: the reason why the request is excluded, or None.

    Everything named must hold for a request to be excluded; no PriorityClass lies in an excluded namespace.
    """
    if exclude is None or exclude == RequestMatch():
        return lambda _attributes: None
    test = matcher(exclude, gives=True)
    by_namespace = exclude.namespaces is not None or exclude.namespace_selector is not None

    def excluded(attributes: RequestAttributes) -> str | None:
        if by_namespace and attributes.kind != PODS:
            return None
        return "exclude holds" if test(attributes) is None else None

    return excluded


def anyone_of(alternatives: Iterable[RequestMatch]) -> Callable[[RequestAttributes], bool]:
    """Compile a right: whether one of the alternatives holds; nobody has a right without alternatives."""
    tests = [matcher(match, gives=True) for match in alternatives]
    return lambda attributes: any(test(attributes) is None for test in tests)


def definers(alternatives: Iterable[Definers]) -> Callable[[RequestAttributes], bool]:
    """Compile who may define: by the name of the class, by who asks, or by both if both are named."""
    tests = [
        (
            None if one.names is None else name_matcher(one.names),
            None if one.subjects is None else subjects_matcher(one.subjects),
        )
        for one in alternatives
    ]

    def may(attributes: RequestAttributes) -> bool:
        name, user = attributes.name, attributes.request.user
        return any((named is None or named(name)) and (asked is None or asked(user)) for named, asked in tests)

    return may


def subjects_matcher(subjects: Iterable[Subject]) -> Callable[[UserInfo], bool]:
    """Compile Users, Groups and ServiceAccounts to a test of who asks."""
    rows = tuple(subjects)
    user = name_matcher(pattern for row in rows if (pattern := user_pattern(row)) is not None)
    group = name_matcher(row.name for row in rows if row.kind == "Group")
    return lambda info: user(info.username) or any(map(group, info.groups))


def _all_of(tests: list[Test]) -> Test:
    if not tests:
        return lambda _attributes: None
    if len(tests) == 1:
        return tests[0]

    def test(attributes: RequestAttributes) -> str | None:
        for part in tests:
            reason = part(attributes)
            if reason is not None:
                return reason
        return None

    return test


def _parts(match: RequestMatch, *, gives: bool) -> list[Test]:
    """The parts of a match that are named, the cheap ones first."""
    tests: list[Test] = []
    if match.operations is not None:
        tests.append(_operation(match.operations))
    if match.namespaces is not None:
        tests.append(_namespace(match.namespaces))
    if match.subjects is not None:
        tests.append(
            _given_subject(match.subjects, by_namespace=by_namespace(match))
            if gives
            else _restricted_subject(match.subjects)
        )
    if match.object_selector is not None:
        tests.append(_object(match, gives=gives))
    if match.namespace_selector is not None:
        tests.append(_namespace_labels(match))
    return tests


def _operation(operations: tuple[str, ...]) -> Test:
    reason = f"the operation is not {' or '.join(operations)}"
    return lambda attributes: None if attributes.operation in operations else reason


def _namespace(namespaces: tuple[str, ...]) -> Test:
    named, reason = name_matcher(namespaces), f"the namespace is not one of {', '.join(namespaces)}"
    return lambda attributes: None if attributes.kind != PODS or named(attributes.request.namespace) else reason


def _restricted_subject(subjects: tuple[Subject, ...]) -> Test:
    asked, reason = subjects_matcher(subjects), _other_subject(subjects)
    return lambda attributes: None if attributes.by_service_account or asked(attributes.request.user) else reason


def _given_subject(subjects: tuple[Subject, ...], *, by_namespace: bool) -> Test:
    asked, reason = subjects_matcher(subjects), _other_subject(subjects)
    exactly = frozenset(filter(None, map(names_exactly, subjects)))
    silent = None if by_namespace else "who asks may make the pod for someone else, and no namespace is named"

    def test(attributes: RequestAttributes) -> str | None:
        user = attributes.request.user
        if attributes.by_service_account and attributes.operation == "CREATE":
            return None if user.username in exactly and not attributes.by_controller else silent
        return None if asked(user) else reason

    return test


def _other_subject(subjects: tuple[Subject, ...]) -> str:
    return f"who asks is not one of {', '.join(f'{row.kind} {row.name}' for row in subjects)}"


def _object(match: RequestMatch, *, gives: bool) -> Test:
    """Whether the labels are selected: those before or after an update, or both if something is given."""
    selected = label_matcher(match.object_selector)
    reason = "objectSelector does not select the object's labels"
    enough = all if gives else any

    def test(attributes: RequestAttributes) -> str | None:
        """Nobody escapes a restriction by taking a label off, or gains a right by putting one on.

        Labels that are not known are taken for those that give no right and lift no restriction.
        """
        if not attributes.request.labels_known:
            return reason if gives else None
        old = None if gives and attributes.operation == "CREATE" else attributes.old_labels
        found = (attributes.labels,) if old is None else (attributes.labels, old)
        return None if enough(map(selected, found)) else reason

    return test


def _namespace_labels(match: RequestMatch) -> Test:
    selected = label_matcher(match.namespace_selector)
    reason = "namespaceSelector does not select the namespace's labels"
    return lambda attributes: None if attributes.kind != PODS or selected(attributes.namespace_labels) else reason
