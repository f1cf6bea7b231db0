"""`match`, `exclude` and rights: compiled to functions, and in words for the person whose request is refused.

A match that restricts and one that gives something differ when the request leaves something open. A service account
may make a pod for someone else, so `subjects` say nothing of it: what restricts holds, what gives holds by namespace.
An UPDATE has the labels before and after: what restricts holds when either are selected, what gives when both are.
"""

from collections.abc import Callable, Iterable
from typing import Any

from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.request import RequestAttributes, strings
from webhook.policy.model.globs import name_matcher
from webhook.policy.model.match import RequestMatch, Subject

Test = Callable[[RequestAttributes], str | None]
"""None if the request is meant, else the reason why it is not: a fixed text, so that it costs nothing."""

_UNSELECTED = {
    "CREATE": "objectSelector does not select the object's labels",
    "UPDATE": "objectSelector does not select the object's labels both before and after this change",
    "BINDING": "objectSelector asks for labels, and a Binding tells none of its pod",
    "namespace": "namespaceSelector does not select the namespace's labels",
}
"""Why labels give nothing, by the operation; what gives must hold before and after an UPDATE."""
_FOR_SOMEONE = "who asks may make the pod for someone else, and no namespace is named"


class Rights:
    """The alternatives of a right, compiled: whoever meets all parts of one has it; nobody without alternatives."""

    def __init__(self, alternatives: Iterable[RequestMatch]) -> None:
        self._alternatives = [parts_of(match, gives=True) for match in alternatives]

    def __call__(self, attributes: RequestAttributes) -> bool:
        """Whether one of the alternatives holds."""
        return any(all(part(attributes) is None for part in parts) for parts in self._alternatives)

    def missing(self, attributes: RequestAttributes) -> str:
        """What the request lacks of alternatives that it meets in part; empty without such."""
        texts = []
        for parts in self._alternatives:
            reasons = lacking(parts, attributes)
            if 0 < len(reasons) < len(parts):
                texts.append(" and ".join(reasons))
        return f" ({'; or '.join(texts)})" if texts else ""


def lacking(parts: Iterable[Test], attributes: RequestAttributes) -> list[str]:
    """The reasons of the parts that do not hold."""
    reasons = []
    for part in parts:
        reason = part(attributes)
        if reason is not None:
            reasons.append(reason)
    return reasons


def parts_of(match: RequestMatch, *, gives: bool = False) -> list[Test]:
    """Compile a `match`: a test for each part named, cheap ones first; all must hold.

    `gives` says that something is given or let off, not restricted. Namespaces say
    nothing about a PriorityClass, which lies in none: there those parts always hold.
    """
    tests: list[Test] = []
    operations = match.operations
    if operations is not None:
        reason = f"the operation is not {' or '.join(operations)}"
        tests.append(_unless(lambda attributes: attributes.operation in operations, reason))
    if match.names is not None:
        called = name_matcher(match.names)
        reason = f"the name is not one of {', '.join(match.names)}"
        tests.append(_unless(lambda attributes: called(attributes.name), reason))
    if match.namespaces is not None:
        inside = name_matcher(match.namespaces)
        reason = f"the namespace is not one of {', '.join(match.namespaces)}"
        tests.append(_of_namespace(lambda attributes: inside(attributes.request.namespace), reason))
    if match.subjects is not None:
        tests.append(_asked_by(match.subjects, gives=gives, by_namespace=match.by_namespace))
    if match.object_selector is not None:
        tests.append(_labelled(match.object_selector, gives=gives))
    if match.namespace_selector is not None:
        selected = label_matcher(match.namespace_selector)
        reason = _UNSELECTED["namespace"]
        tests.append(_of_namespace(lambda attributes: selected(attributes.namespace_labels), reason))
    return tests


def _unless(meant: Callable[[RequestAttributes], bool], reason: str) -> Test:
    return lambda attributes: None if meant(attributes) else reason


def _of_namespace(meant: Callable[[RequestAttributes], bool], reason: str) -> Test:
    """As `_unless`, of what lies in a namespace."""
    return lambda attributes: None if attributes.namespace is None or meant(attributes) else reason


def _asked_by(subjects: tuple[Subject, ...], *, gives: bool, by_namespace: bool) -> Test:
    """Whether one of the subjects asks, as far as that tells of service accounts."""
    user = name_matcher(pattern for row in subjects if (pattern := row.user_pattern) is not None)
    group = name_matcher(row.name for row in subjects if row.kind == "Group")
    reason = f"who asks is not one of {', '.join(f'{row.kind} {row.name}' for row in subjects)}"
    exactly = {subject.exact_user for subject in subjects}
    silent = None if by_namespace else _FOR_SOMEONE

    def test(attributes: RequestAttributes) -> str | None:
        asking = attributes.request.user
        if attributes.by_service_account and not gives:
            return None
        if attributes.by_service_account and attributes.operation == "CREATE":
            return None if asking.username in exactly and not attributes.by_controller else silent
        return None if user(asking.username) or any(map(group, asking.groups)) else reason

    return test


def _labelled(selector: LabelSelector, *, gives: bool) -> Test:
    """Whether labels are selected, before or after an update; both if something is given.

    Nobody escapes a restriction by taking a label off, or gets a right by putting one on.
    Labels that are not known are taken for those that give no right and lift no restriction.
    """
    selected, enough = label_matcher(selector), all if gives else any

    def test(attributes: RequestAttributes) -> str | None:
        if not attributes.request.labels_known:
            return _UNSELECTED["BINDING"] if gives else None
        old = None if gives and attributes.operation == "CREATE" else attributes.old
        states = (attributes.new,) if old is None else (attributes.new, old)
        if enough(selected(strings(state, "labels")) for state in states):
            return None
        return _UNSELECTED["UPDATE" if gives and old is not None else "CREATE"]

    return test


def exclusion(exclude: RequestMatch | None) -> list[Test]:
    """Compile an `exclude`, if it names anything; no PriorityClass lies in an excluded namespace."""
    if exclude is None or exclude == RequestMatch():
        return []
    parts = parts_of(exclude, gives=True)

    def excluded(attributes: RequestAttributes) -> str | None:
        if exclude.in_namespaces and attributes.namespace is None:
            return None
        return "exclude holds" if all(part(attributes) is None for part in parts) else None

    return [excluded]


ANYONE = "anyone"
"""Who may define a class by a right that names nobody."""
_IN_WORDS: dict[str, Callable[[Any], str]] = {
    "namespaces": lambda names: f"namespace {_either(names)}",
    "namespace_selector": lambda selector: f"namespaces labelled {_labels(selector)}",
    "object_selector": lambda selector: f"pods labelled {_labels(selector)}",
    "subjects": lambda subjects: _either(map(str, subjects)),
    "operations": lambda operations: f"operation {_either(operations)}",
}
"""What the parts of a match mean."""


def rights_text(alternatives: Iterable[RequestMatch], everyone: str = "everyone") -> str:
    """`pods in namespace a, or Group b under a name c-*`; `nobody` without alternatives."""
    texts = []
    for match in alternatives:
        parts = [(words, getattr(match, field)) for field, words in _IN_WORDS.items()]
        named = [words(part) for words, part in parts if part is not None]
        text = " with ".join(named) or everyone
        if match.names is not None:
            text += f" under a name {_either(match.names)}"
        texts.append(text)
    return ", or ".join(texts) or "nobody"


def _labels(selector: LabelSelector) -> str:
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    rows = selector.match_expressions or ()
    parts += [f"{row.key} {row.operator} {','.join(row.values or ())}".strip() for row in rows]
    return ", ".join(parts) or "anything"


def _either(names: Iterable[str]) -> str:
    return " or ".join(names) or "none"
