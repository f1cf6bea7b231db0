"""The rules of a PriorityPolicy: one struct for each body, with what it declares of itself.

`webhook.policy.evaluation` turns these into closures. A new rule body is a struct here, its field in `PriorityRule`,
and its evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from webhook.policy.cel.program import VARIABLES, compile_bool, compile_text
from webhook.policy.model.declarations import FIELDS_OF_PRIORITY, UNDECLARED, Declaration, RightGiven
from webhook.policy.model.match import OPERATIONS, RIGHT, SUBJECTS, RequestMatch, Subject, check_rights, reads_user
from webhook.policy.model.values import (
    ANNOTATION,
    CLASS_GLOB,
    CLASS_NAME,
    NAME,
    NEW_CLASS_GLOB,
    Expression,
    warn_of_unknown_fields,
)
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import Checked, Field, Nodes, Values, mapping, shape_of
from webhook.policy.shapes.shapes import Choice, ListOf, OneOrMore, Text, Whole
from webhook.policy.shapes.yaml_nodes import SourcePosition

_PRIORITY = Whole("a priority", -(2**31), 2**31 - 1)
_VARIABLES = ", ".join(VARIABLES)
_PODS = frozenset({"pods"})
_RESOURCES = ListOf(
    Choice("a resource", {"pods": "pods and the pod templates of workloads", "priorityclasses": "PriorityClasses"}),
    least=1,
)
_FILLS_IN = Declaration(about=_PODS, fields=FIELDS_OF_PRIORITY, always_asked=False, asks_who=False, rights=())
"""What fills something in where a pod is made, and refuses nothing."""


class Enforcement(StrEnum):
    """What a violated rule does: refuse, warn the author, or only leave an audit annotation."""

    ENFORCE = "enforce"
    WARN = "warn"
    AUDIT = "audit"


ENFORCEMENT = Choice(
    "an enforcement",
    {
        "enforce": "a violation refuses the request",
        "warn": "a violation is told to the author as a warning",
        "audit": "a violation is left in the audit log",
    },
    Enforcement,
)


@mapping("priorityClasses rule")
class PriorityClasses(msgspec.Struct, frozen=True, kw_only=True):
    """Which PriorityClasses pods may name. Pods without one are not meant: their value is what `reserve` looks at."""

    allow: Annotated[
        tuple[str, ...] | None, Field("Names or globs that may be used; all if absent.", ListOf(CLASS_GLOB))
    ] = None
    deny: Annotated[
        tuple[str, ...], Field("Names or globs that may not be used; deny wins over allow.", ListOf(CLASS_GLOB))
    ] = ()

    @property
    def declaration(self) -> Declaration:
        """It looks at the class that a pod names."""
        return Declaration(about=_PODS, fields=FIELDS_OF_PRIORITY, asks_who=False, rights=())


@mapping("definers")
class Definers(msgspec.Struct, frozen=True, kw_only=True):
    """Who may define PriorityClasses in a range: everything named must hold. A list gives alternatives."""

    names: Annotated[
        tuple[str, ...] | None,
        Field("The class's name is one of these; * is a wildcard.", ListOf(NEW_CLASS_GLOB, least=1)),
    ] = None
    subjects: Annotated[tuple[Subject, ...] | None, Field("Who asks is one of these.", SUBJECTS)] = None


@mapping("reserve rule")
class Reserve(Checked, frozen=True, kw_only=True):
    """Reserves a range of priority values, both ends included. What counts is a pod's value, however it got there.

    Each right is a list of alternatives: one that holds suffices, and without any nobody has it (docs/semantics.md B).
    """

    from_: Annotated[int, Field("The lowest value reserved.", _PRIORITY)]
    to: Annotated[int, Field("The highest value reserved.", _PRIORITY)]
    define: Annotated[
        tuple[Definers, ...],
        Field("Who may create, change or delete PriorityClasses in it; else nobody.", OneOrMore(shape_of(Definers))),
    ] = ()
    use: Annotated[
        tuple[RequestMatch, ...], Field("Which pods may have a priority in it; else none.", OneOrMore(RIGHT))
    ] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """The range begins before it ends, and its rights mean whom they name."""
        if "from_" in values and "to" in values and values["from_"] > values["to"]:
            reader.error(nodes["from_"], f"the range ends at {values['to']}, before it begins; swap from and to")
        if values.get("use"):
            check_rights(values["use"], nodes["use"], reader)

    @property
    def declaration(self) -> Declaration:
        """It looks at the value, and asks who uses it and who defines a class of it."""
        return Declaration(
            fields=FIELDS_OF_PRIORITY,
            always_asked=False,
            asks_who=_by_subjects(self.use),
            rights=(RightGiven("use", self.use), RightGiven("define", self.define)),
        )


@mapping("protectAnnotations rule")
class ProtectAnnotations(Checked, frozen=True, kw_only=True):
    """Who may set, change or remove annotations. Rules that enforce add up: one that allows suffices.

    No PriorityClass lies in a namespace, so a right by namespaces gives nothing there.
    """

    keys: Annotated[tuple[str, ...], Field("The annotations.", ListOf(ANNOTATION, least=1))]
    allow: Annotated[tuple[RequestMatch, ...], Field("Who may; nobody if absent.", OneOrMore(RIGHT))] = ()
    operations: Annotated[tuple[str, ...], Field("When the rule holds.", OPERATIONS)] = ("UPDATE",)
    resources: Annotated[tuple[str, ...], Field("Whose annotations they are.", _RESOURCES)] = ("pods",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Its rights mean whom they name."""
        if values.get("allow") and "CREATE" in values.get("operations", ()):
            check_rights(values["allow"], nodes["allow"], reader)

    @property
    def declaration(self) -> Declaration:
        """It looks at its annotations, and asks who changes them."""
        return Declaration(
            about=frozenset(self.resources),
            fields=frozenset(("metadata", "annotations", key) for key in self.keys),
            always_asked=False,
            asks_who=_by_subjects(self.allow),
            rights=(RightGiven("allow", self.allow),),
        )


@mapping("validate rule", f"A CEL expression that must be true, over {_VARIABLES}.")
class Validate(Checked, frozen=True, kw_only=True):
    """A CEL expression that must be true, and the text for the person whose request is refused.

    `pods` stands for pods and for the pod templates of workloads, `priorityclasses` for PriorityClasses.
    """

    expression: Annotated[str, Field("The expression.", Expression(compile_bool))]
    message: Annotated[
        str, Field("What the author is told: what is wrong, what would be right.", Text("a message"))
    ] = ""
    message_expression: Annotated[str, Field("CEL that makes the message.", Expression(compile_text))] = ""
    resources: Annotated[
        tuple[str, ...],
        Field("What the expression is about.", _RESOURCES),
    ] = ("pods",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It reads fields that there are, and has words for the author."""
        about = values.get("resources", ("pods",))
        for field, compiled in (("expression", compile_bool), ("message_expression", compile_text)):
            if values.get(field):
                warn_of_unknown_fields(compiled(values[field]), nodes[field], reader, about)
        if "expression" in values and "message" not in nodes and "message_expression" not in nodes:
            reader.warn(
                nodes["expression"], 'without "message" the author is told the expression; say what would be right'
            )

    @property
    def declaration(self) -> Declaration:
        """It looks at what its expression reads."""
        return Declaration(
            about=frozenset(self.resources),
            fields=frozenset(),
            expressions=(self.expression,),
            asks_who=reads_user(self.expression),
            rights=(),
        )


def _rule(values: Values, source: SourcePosition) -> Values:
    """The rule's values; the policy, which knows the enforcement, makes the rule of them."""
    return {**values, "source": source}


@mapping("rule", build=_rule)
class PriorityRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a name, and exactly one body."""

    name: Annotated[str, Field("The rule's name in messages, logs and tests.", NAME)]
    source: SourcePosition
    enforcement: Annotated[Enforcement, Field("Instead of the policy's enforcement.", ENFORCEMENT, required=False)]
    default_priority_class: Annotated[
        str | None, Field("The class of new pods that name none.", CLASS_NAME, alternative=True)
    ] = None
    priority_classes: Annotated[
        PriorityClasses | None, Field("Which PriorityClasses may be used.", alternative=True)
    ] = None
    reserve: Annotated[Reserve | None, Field("A range of values for some only.", alternative=True)] = None
    copy_annotations: Annotated[
        tuple[str, ...] | None,
        Field(
            "Annotations that a new pod takes over from its PriorityClass if it has none.",
            ListOf(ANNOTATION, least=1),
            alternative=True,
        ),
    ] = None
    protect_annotations: Annotated[
        ProtectAnnotations | None, Field("Annotations that not everyone may change.", alternative=True)
    ] = None
    validate: Annotated[Validate | None, Field("A CEL expression that must be true.", alternative=True)] = None

    @property
    def declaration(self) -> Declaration:
        """What the rule's body says of itself; one that says nothing is UNDECLARED."""
        if self.default_priority_class is not None:
            return _FILLS_IN
        if self.copy_annotations is not None:
            return msgspec.structs.replace(
                _FILLS_IN, fields=frozenset(("metadata", "annotations", key) for key in self.copy_annotations)
            )
        declaration: Declaration = getattr(self.body[1], "declaration", UNDECLARED)
        return declaration

    @property
    def body(self) -> tuple[str, Any]:
        """The field that holds the rule's body, and the body; an empty name without one."""
        names = [field.attribute for field in shape_of(type(self)).fields if field.alternative]
        return next(((name, getattr(self, name)) for name in names if getattr(self, name) is not None), ("", None))

    @property
    def refuses(self) -> bool:
        """Whether the rule can refuse anything; the others fill in, and there is nothing to except from."""
        return self.default_priority_class is None and self.copy_annotations is None


def _by_subjects(rights: Iterable[RequestMatch]) -> bool:
    return any(right.subjects is not None for right in rights)
