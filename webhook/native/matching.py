"""`match`, `exclude` and rights as CEL of the API server: what `webhook.policy.evaluation.matching` does as functions.

What restricts and what gives differ in the same way (docs/policies.md, "Who asks").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from webhook.native.expressions import FALSE, TRUE, all_of, any_of, if_else, listing, name_is, negate, selected
from webhook.policy.evaluation.attributes import CLASSES, PODS
from webhook.policy.evaluation.requester import (
    CONTROLLER_MANAGER,
    SERVICE_ACCOUNT,
    by_namespace,
    names_exactly,
    user_pattern,
)
from webhook.policy.model import Definers, RequestMatch, Subject

__all__ = [
    "BINDING",
    "CHANGED_CLASS",
    "CHANGED_POD",
    "NEW_CLASS",
    "NEW_POD",
    "SERVICE_ACCOUNT_ASKS",
    "Asked",
    "asks",
    "by_operation",
    "excluded",
    "may",
    "may_define",
    "restricted",
    "who_is_given",
]


class Asked(msgspec.Struct, frozen=True):
    """The requests that an expression is about; `operation` is what the rules take them for.

    `labels_known` is false for Bindings, which change a pod without carrying it.
    """

    kind: str
    operation: str
    labels_known: bool = True


NEW_POD, CHANGED_POD = Asked(PODS, "CREATE"), Asked(PODS, "UPDATE")
BINDING = Asked(PODS, "UPDATE", labels_known=False)
NEW_CLASS, CHANGED_CLASS = Asked(CLASSES, "CREATE"), Asked(CLASSES, "UPDATE")

USER, GROUPS = "request.userInfo.username", "request.userInfo.?groups.orValue([])"
SERVICE_ACCOUNT_ASKS = f"({USER}.startsWith('{SERVICE_ACCOUNT}') || {USER} == '{CONTROLLER_MANAGER}')"
_CONTROLLER_ASKS = any_of(
    [
        f"{USER}.startsWith('{SERVICE_ACCOUNT}kube-system:')",
        f"{USER} == '{CONTROLLER_MANAGER}'",
        "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))",
    ]
)


def restricted(match: RequestMatch, asked: Asked) -> str:
    """The request is one that `match` restricts, leaving out what `matchConstraints` say by themselves."""
    tests = [_operation(match, asked), _namespaces(match, asked)]
    if match.subjects is not None:
        who = asks(match.subjects)
        tests.append(any_of([SERVICE_ACCOUNT_ASKS, who]) if asked.kind == PODS else who)
    if match.object_selector is not None:
        tests.append(_selected(match, asked, any_of) if asked.labels_known else TRUE)
    tests.append(_namespace_labels(match, asked))
    return all_of(tests)


def who_is_given(match: RequestMatch, asked: Asked) -> str:
    """The request is one to which `match` gives something, or which it lets off."""
    tests = [_operation(match, asked), _namespaces(match, asked)]
    if match.subjects is not None:
        tests.append(_given_subject(match, asked))
    if match.object_selector is not None:
        tests.append(_selected(match, asked, all_of) if asked.labels_known else FALSE)
    tests.append(_namespace_labels(match, asked))
    return all_of(tests)


def excluded(exclude: RequestMatch | None, asked: Asked) -> str:
    """The request is excluded; no PriorityClass lies in an excluded namespace."""
    if exclude is None or exclude == RequestMatch():
        return FALSE
    if asked.kind != PODS and (exclude.namespaces is not None or exclude.namespace_selector is not None):
        return FALSE
    return who_is_given(exclude, asked)


def may(rights: Iterable[RequestMatch], asked: Asked) -> str:
    """One of the alternatives of a right holds."""
    return any_of([who_is_given(right, asked) for right in rights])


def may_define(definers: Iterable[Definers]) -> str:
    """Who asks may define this PriorityClass."""
    return any_of(
        all_of(
            [
                TRUE if one.names is None else name_is("object.metadata.name", one.names),
                TRUE if one.subjects is None else asks(one.subjects),
            ]
        )
        for one in definers
    )


def by_operation(make: Callable[[Asked], str], *about: Asked) -> str:
    """What `make` gives for CREATE and for UPDATE, as one expression; for one of them if only that is asked about."""
    made = {asked.operation: make(asked) for asked in about}
    if len(made) == 1:
        return next(iter(made.values()))
    return if_else("request.operation == 'CREATE'", made["CREATE"], made["UPDATE"])


def asks(subjects: Iterable[Subject]) -> str:
    """Who asks is one of these."""
    rows = list(subjects)
    users = [pattern for row in rows if (pattern := user_pattern(row)) is not None]
    groups = [row.name for row in rows if row.kind == "Group"]
    tests = [name_is(USER, users)]
    literal = [name for name in groups if "*" not in name]
    tests += [f"{listing([name])[1:-1]} in {GROUPS}" for name in literal]
    globs = [name for name in groups if "*" in name]
    if globs:
        tests.append(f"{GROUPS}.exists(group, {name_is('group', globs)})")
    return any_of(tests)


def _given_subject(match: RequestMatch, asked: Asked) -> str:
    who = asks(match.subjects or ())
    if asked.kind != PODS or asked.operation != "CREATE":
        return who
    exactly = sorted(filter(None, map(names_exactly, match.subjects or ())))
    silent = TRUE if by_namespace(match) else FALSE
    accounts = [name for name in exactly if name.startswith(SERVICE_ACCOUNT) or name == CONTROLLER_MANAGER]
    itself = all_of([name_is(USER, accounts), negate(_CONTROLLER_ASKS)])
    return if_else(SERVICE_ACCOUNT_ASKS, if_else(itself, TRUE, silent) if accounts else silent, who)


def _operation(match: RequestMatch, asked: Asked) -> str:
    return FALSE if match.operations is not None and asked.operation not in match.operations else TRUE


def _namespaces(match: RequestMatch, asked: Asked) -> str:
    if match.namespaces is None or asked.kind != PODS:
        return TRUE
    return name_is("request.namespace", match.namespaces)


def _namespace_labels(match: RequestMatch, asked: Asked) -> str:
    if match.namespace_selector is None or asked.kind != PODS:
        return TRUE
    return selected("namespaceObject.metadata.?labels", match.namespace_selector)


def _selected(match: RequestMatch, asked: Asked, enough: Callable[[Iterable[str]], str]) -> str:
    now = selected("object.metadata.?labels", match.object_selector)
    if asked.operation == "CREATE":
        return now
    return enough([now, selected("oldObject.metadata.?labels", match.object_selector)])
