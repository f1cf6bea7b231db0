"""Rights and limits in words, for the person whose request is refused."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.kube.instants import rfc3339
from webhook.kube.objects import LabelSelector
from webhook.policy.model import Definers, PolicyException, PriorityClasses, RequestMatch, Subject

__all__ = ["classes_text", "definers_text", "excepted_text", "quoted", "rights_text", "subjects_text"]


def quoted(name: str) -> str:
    """A name as texts show it."""
    return f'"{name}"'


def classes_text(body: PriorityClasses) -> str:
    """`allows a, b and denies c`."""
    parts = []
    if body.allow is not None:
        parts.append(f"allows {', '.join(body.allow) or 'none'}")
    if body.deny:
        parts.append(f"denies {', '.join(body.deny)}")
    return " and ".join(parts)


def rights_text(alternatives: Iterable[RequestMatch]) -> str:
    """`pods in namespace a, or Group b`; `nobody` without alternatives."""
    return ", or ".join(_match_text(match) for match in alternatives) or "nobody"


def definers_text(alternatives: Iterable[Definers]) -> str:
    """`anyone under a name system-*, or by Group b`; `nobody` without alternatives."""
    return ", or ".join(_definer_text(one) for one in alternatives) or "nobody"


def excepted_text(rule_id: str, exception: PolicyException, violation: str) -> str:
    """What the author of an excepted request is told; the end comes first, since long warnings are cut."""
    until = rfc3339(exception.until)
    account = f"{exception.owner}: {exception.reason}"
    return f"rule {rule_id} lets this in by an exception until {until} ({account}): {violation}"


def _match_text(match: RequestMatch) -> str:
    parts = []
    if match.namespaces is not None:
        parts.append(f"namespace {_either(match.namespaces)}")
    if match.namespace_selector is not None:
        parts.append(f"namespaces labelled {_selector_text(match.namespace_selector)}")
    if match.object_selector is not None:
        parts.append(f"pods labelled {_selector_text(match.object_selector)}")
    if match.subjects is not None:
        parts.append(subjects_text(match.subjects))
    if match.operations is not None:
        parts.append(f"operation {_either(match.operations)}")
    return " with ".join(parts) or "everyone"


def _definer_text(one: Definers) -> str:
    who = subjects_text(one.subjects) if one.subjects is not None else "anyone"
    return who if one.names is None else f"{who} under a name {_either(one.names)}"


def subjects_text(subjects: Iterable[Subject]) -> str:
    """`Group a or ServiceAccount kube-system/b`."""
    return _either([f"{row.kind} {f'{row.namespace}/' if row.namespace else ''}{row.name}" for row in subjects])


def _selector_text(selector: LabelSelector) -> str:
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    parts += [
        f"{row.key} {row.operator} {','.join(row.values or ())}".strip() for row in selector.match_expressions or ()
    ]
    return ", ".join(parts) or "anything"


def _either(names: Iterable[str]) -> str:
    return " or ".join(names) or "none"
