"""`match`, `exclude` and rights, compiled to functions that say why a request is not meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from webhook.kube.selectors import label_matcher
from webhook.policy.facts import PODS, Facts
from webhook.policy.globs import name_matcher
from webhook.policy.model import Definers, Match, Subject
from webhook.policy.request import UserInfo

__all__ = ["SERVICE_ACCOUNT", "Test", "anyone_of", "definers", "excluder", "matcher", "subjects_matcher"]

Test = Callable[[Facts], str | None]
"""None where the request is meant, else the reason why it is not: a fixed text, so that it costs nothing."""

SERVICE_ACCOUNT = "system:serviceaccount:"
"""A service account's user name is this, its namespace, a colon and its name."""


def matcher(match: Match) -> Test:
    """Compile a `match`: everything named must hold.

    Namespaces say nothing about a PriorityClass, which lies in none: there those parts always hold.
    """
    return _all_of(_parts(match))


def excluder(exclude: Match | None) -> Test:
    """Compile an `exclude`: the reason why the request is excluded, or None.

    Everything named must hold for a request to be excluded; no PriorityClass lies in an excluded namespace.
    """
    if exclude is None or exclude == Match():
        return lambda _facts: None
    test = matcher(exclude)
    by_namespace = exclude.namespaces is not None or exclude.namespace_selector is not None

    def excluded(facts: Facts) -> str | None:
        if by_namespace and facts.kind != PODS:
            return None
        return "exclude holds" if test(facts) is None else None

    return excluded


def anyone_of(alternatives: Iterable[Match]) -> Callable[[Facts], bool]:
    """Compile a right: whether one of the alternatives holds; nobody has a right without alternatives."""
    tests = [matcher(match) for match in alternatives]
    return lambda facts: any(test(facts) is None for test in tests)


def definers(alternatives: Iterable[Definers]) -> Callable[[Facts], bool]:
    """Compile who may define: by the name of the class and by who asks, both where both are named."""
    tests = [(_names(one.names), _users(one.subjects)) for one in alternatives]

    def may(facts: Facts) -> bool:
        name, user = facts.name, facts.request.user
        return any(named(name) and asked(user) for named, asked in tests)

    return may


def _names(names: tuple[str, ...] | None) -> Callable[[str], bool]:
    return (lambda _name: True) if names is None else name_matcher(names)


def _users(subjects: tuple[Subject, ...] | None) -> Callable[[UserInfo], bool]:
    return (lambda _user: True) if subjects is None else subjects_matcher(subjects)


def subjects_matcher(subjects: Iterable[Subject]) -> Callable[[UserInfo], bool]:
    """Compile Users, Groups and ServiceAccounts to a test of who asks."""
    rows = tuple(subjects)
    users = [row.name for row in rows if row.kind == "User"]
    users += [f"{SERVICE_ACCOUNT}{row.namespace}:{row.name}" for row in rows if row.kind == "ServiceAccount"]
    user = name_matcher(users)
    group = name_matcher(row.name for row in rows if row.kind == "Group")
    return lambda info: user(info.username) or any(map(group, info.groups))


def _all_of(tests: list[Test]) -> Test:
    if not tests:
        return lambda _facts: None
    if len(tests) == 1:
        return tests[0]

    def test(facts: Facts) -> str | None:
        for part in tests:
            reason = part(facts)
            if reason is not None:
                return reason
        return None

    return test


def _parts(match: Match) -> list[Test]:
    """The parts of a match that are named, the cheap ones first."""
    tests: list[Test] = []
    if match.operations is not None:
        tests.append(_operation(match.operations))
    if match.namespaces is not None:
        tests.append(_namespace(match.namespaces))
    if match.subjects is not None:
        tests.append(_subject(match.subjects))
    if match.object_selector is not None:
        tests.append(_object(match))
    if match.namespace_selector is not None:
        tests.append(_namespace_labels(match))
    return tests


def _operation(operations: tuple[str, ...]) -> Test:
    reason = f"the operation is not {' or '.join(operations)}"
    return lambda facts: None if facts.operation in operations else reason


def _namespace(namespaces: tuple[str, ...]) -> Test:
    named, reason = name_matcher(namespaces), f"the namespace is none of {', '.join(namespaces)}"
    return lambda facts: None if facts.kind != PODS or named(facts.request.namespace) else reason


def _subject(subjects: tuple[Subject, ...]) -> Test:
    asked = subjects_matcher(subjects)
    reason = f"who asks is none of {', '.join(f'{row.kind} {row.name}' for row in subjects)}"
    return lambda facts: None if asked(facts.request.user) else reason


def _object(match: Match) -> Test:
    selected = label_matcher(match.object_selector)

    def test(facts: Facts) -> str | None:
        """As in Kubernetes, the object before or after suffices: nobody escapes by taking a label off."""
        if selected(facts.labels):
            return None
        old = facts.old_labels
        return None if old is not None and selected(old) else "objectSelector does not select the object's labels"

    return test


def _namespace_labels(match: Match) -> Test:
    selected = label_matcher(match.namespace_selector)
    reason = "namespaceSelector does not select the namespace's labels"
    return lambda facts: None if facts.kind != PODS or selected(facts.namespace_labels) else reason
