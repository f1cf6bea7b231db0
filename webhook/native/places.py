"""Where protected metadata of pods and PriorityClasses is written, and the policy for one such place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.native import objects
from webhook.native.expressions import any_of, quote
from webhook.native.matching import BINDING, CHANGED_CLASS, CHANGED_POD, NEW_CLASS, NEW_POD, USER, Asked
from webhook.native.sink import Sink


class Place(NamedTuple):
    """Where the metadata of a pod is written; `what` is part of the objects' names, `does` of their descriptions."""

    what: str
    asked: Asked
    resources: tuple[str, ...]
    does: str


NEW_PODS = Place("pods", NEW_POD, ("pods",), "Judges giveway's own keys and protected annotations of new pods")
TRIED_PODS = Place("newannotations", NEW_POD, ("pods",), "Judges annotations of new pods by rules on trial")
CHANGES = Place(
    "annotations",
    CHANGED_POD,
    ("pods", "pods/status"),
    "Keeps protected annotations and giveway's own keys of pods as they are",
)
BINDINGS = Place(
    "bindings",
    BINDING,
    ("pods/binding", "bindings"),
    "Keeps Bindings from setting protected annotations and giveway's own keys of pods",
)


NEW_CLASSES = Place("newclassannotations", NEW_CLASS, (), "Judges protected annotations of new PriorityClasses")
CHANGED_CLASSES = Place(
    "classannotations", CHANGED_CLASS, (), "Keeps protected annotations of PriorityClasses as they are"
)


def place_policy(  # noqa: PLR0917 - a row of a table
    policy: str,
    place: Place,
    enforcement: str,
    validations: list[objects.Validation],
    sink: Sink,
    variables: Sequence[tuple[str, str]] = (),
) -> Iterator[objects.Object]:
    """The policy for one place and enforcement, with its binding; nothing without validations."""
    if not validations:
        return
    conditions = []
    if place is CHANGES:
        # A pod that is being deleted is no exception: until it is gone, its keys decide about other pods
        by_reconciler = ["request.?subResource.orValue('') != 'status'", f"{USER} != {quote(sink.settings.reconciler)}"]
        conditions.append(objects.CompiledCondition("not-the-reconciler", any_of(by_reconciler)))
    operation = "UPDATE" if place in (CHANGES, CHANGED_CLASSES) else "CREATE"
    rule = objects.resource_rule(place.resources, [operation]) if place.resources else objects.classes_rule([operation])
    made = objects.validating_policy(
        objects.object_name(policy, place.what, enforcement),
        policy,
        description=f"{place.does} ({enforcement}).",
        constraints={
            "namespaceSelector": objects.namespaces_reached(sink.settings) if place.resources else {},
            "resourceRules": [rule],
        },
        conditions=conditions,
        validations=validations,
        variables=_used(variables, repr([(validation.expression, validation.text) for validation in validations])),
    )
    yield made
    yield objects.binding(made, enforcement)


def _used(variables: Sequence[tuple[str, str]], by: str) -> list[tuple[str, str]]:
    """The variables that expressions use, by themselves or through others."""
    used: list[tuple[str, str]] = []
    for name, expression in reversed(variables):
        if f"variables.{name}" in by:
            used.append((name, expression))
            by += expression
    return used[::-1]
