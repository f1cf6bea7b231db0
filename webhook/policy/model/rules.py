"""The rules of a PriorityPolicy: one struct for each body, with what it declares of itself.

A new kind of rule is a struct here and its field in `PriorityRule`, a row in `evaluation.rules.KINDS`, which says how
it judges, and what of it the API server can judge by itself in `native.rules`. Who reads, lists, compiles and tries
rules goes by the declaration, without understanding the body: what a body leaves out nobody hands it.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from webhook.policy.cel.program import VARIABLES, compile_bool, compile_text
from webhook.policy.model.match import Operations, RequestMatch, Rights, Subjects, check_rights
from webhook.policy.model.values import Annotation, ClassGlob, ClassName, Name, NewClassGlobs, expression, warn_of
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import FILLED, MAY_BE_ABSENT, Choice, Nodes, Values, mapping, shape_of
from webhook.policy.shapes.shapes import ListOf, integer, one_of, string
from webhook.policy.shapes.yaml_nodes import SourcePosition

FieldPath = tuple[str, ...]
"""Where a field of an object stands, such as `("spec", "priority")`. The key of an annotation is one step."""

FIELDS_OF_PRIORITY = frozenset({("spec", "priorityClassName"), ("spec", "priority")})
"""What of a pod says its priority."""
DEFINE = "define"
"""The right to define a class, which is no matter of pods."""
_PRIORITY = integer("a priority", -(2**31), 2**31 - 1)
_PODS = ("pods",)
_RESOURCE = one_of(
    "a resource", {"pods": "pods and the pod templates of workloads", "priorityclasses": "PriorityClasses"}
)
_Resources = Annotated[tuple[Annotated[str, _RESOURCE], ...], FILLED]


def reads_user(expression: str) -> bool:
    """Whether a CEL expression may read who asks."""
    return "userInfo" in expression


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one body of a rule says of itself: what it reads, and what rights it gives.

    `about` are the resources that it judges, `operations` when. `fields` are the fields of the object that it looks at
    besides what its expressions read. `expressions` are the CEL expressions that decide. `always_asked` says that it is
    asked about every request for a resource in `about`; others are found by the priority, or by an annotation that
    changes. `refuses` is false of what fills something in. `range` are the values that it reserves, both ends included,
    `classes` the names and globs of PriorityClasses that it lists, `keys` the annotations that it protects. `rights`
    has the alternatives of each right, by the field of the body that says who has it, and `title` says to what.
    """

    about: tuple[str, ...] = ("pods", "priorityclasses")
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    fields: frozenset[FieldPath] = frozenset()
    expressions: tuple[str, ...] = ()
    always_asked: bool = True
    refuses: bool = True
    range: tuple[int, int] | None = None
    classes: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    rights: Mapping[str, tuple[RequestMatch, ...]] = {}
    title: str = ""

    @property
    def asks_who(self) -> bool:
        """Whether who asks makes a difference to what the body says of pods."""
        for field, rights in self.rights.items():
            if field != DEFINE and any(right.subjects is not None for right in rights):
                return True
        return any(map(reads_user, self.expressions))

    @property
    def judges_groups(self) -> bool:
        """Whether it judges PodGroups, too, of which nothing but a priority is known."""
        return "pods" in self.about and not self.expressions and self.fields <= FIELDS_OF_PRIORITY


_FILLS_IN = Declaration(about=_PODS, fields=FIELDS_OF_PRIORITY, always_asked=False, refuses=False)
"""What fills something in where a pod is made, and refuses nothing."""


def _annotations(keys: Iterable[str]) -> frozenset[FieldPath]:
    return frozenset(("metadata", "annotations", key) for key in keys)


class Enforcement(Choice, what="an enforcement"):
    """What a violated rule does."""

    ENFORCE = "enforce", "a violation refuses the request"
    WARN = "warn", "a violation is told to the author as a warning"
    AUDIT = "audit", "a violation is left in the audit log"


STRICTNESS = (Enforcement.AUDIT, Enforcement.WARN, Enforcement.ENFORCE)


@mapping("priorityClasses rule")
class PriorityClasses(msgspec.Struct, frozen=True, kw_only=True):
    """Which PriorityClasses pods may name. Pods without one are not meant: their value is what `reserve` looks at."""

    allow: Annotated[tuple[ClassGlob, ...] | None, "Names or globs that may be used; all if absent."] = None
    deny: Annotated[tuple[ClassGlob, ...], "Names or globs that may not be used; deny wins over allow."] = ()

    @property
    def declaration(self) -> Declaration:
        """It looks at the class that a pod names."""
        return Declaration(about=_PODS, fields=FIELDS_OF_PRIORITY, classes=(*(self.allow or ()), *self.deny))


@mapping("definers", build=lambda values, _: RequestMatch(**values))
class _Definers(msgspec.Struct, frozen=True, kw_only=True):
    """Who may define PriorityClasses in a range: everything named must hold. A list gives alternatives."""

    names: Annotated[NewClassGlobs | None, "The class's name is one of these; * is a wildcard."] = None
    subjects: Annotated[Subjects | None, "Who asks is one of these."] = None


@mapping("reserve rule")
class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """Reserves a range of priority values, both ends included. What counts is a pod's value, however it got there.

    Each right is a list of alternatives: one that holds suffices, and without any nobody has it (docs/semantics.md B).
    """

    from_: Annotated[int, _PRIORITY, "The lowest value reserved."]
    to: Annotated[int, _PRIORITY, "The highest value reserved."]
    define: Annotated[
        tuple[RequestMatch, ...],
        ListOf(shape_of(_Definers), or_one=True),
        "Who may create, change or delete PriorityClasses in it; else nobody.",
    ] = ()
    use: Annotated[Rights, "Which pods may have a priority in it; else none."] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """The range begins before it ends, and its rights mean whom they name."""
        start, end = values.get("from_"), values.get("to")
        if start is not None and end is not None and start > end:
            reader.error(nodes["from_"], f"the range ends at {end}, before it begins; swap from and to")
        if values.get("use"):
            check_rights(values["use"], nodes["use"], reader)

    @property
    def declaration(self) -> Declaration:
        """It looks at the value, and asks who uses it and who defines a class of it."""
        return Declaration(
            fields=FIELDS_OF_PRIORITY,
            always_asked=False,
            range=(self.from_, self.to),
            rights={"use": self.use, DEFINE: self.define},
            title=f"{self.from_} to {self.to}",
        )


@mapping("protectAnnotations rule")
class ProtectAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """Who may set, change or remove annotations. Rules that enforce add up: one that allows suffices.

    No PriorityClass lies in a namespace, so a right by namespaces gives nothing there.
    """

    keys: Annotated[tuple[Annotation, ...], FILLED, "The annotations."]
    allow: Annotated[Rights, "Who may; nobody if absent."] = ()
    operations: Annotated[Operations, "When the rule holds."] = ("UPDATE",)
    resources: Annotated[_Resources, "Whose annotations they are."] = ("pods",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Its rights mean whom they name."""
        if values.get("allow") and "CREATE" in values.get("operations", ()):
            check_rights(values["allow"], nodes["allow"], reader)

    @property
    def declaration(self) -> Declaration:
        """It looks at its annotations, and asks who changes them."""
        return Declaration(
            about=self.resources,
            operations=self.operations,
            fields=_annotations(self.keys),
            always_asked=False,
            keys=self.keys,
            rights={"allow": self.allow},
            title=f"{', '.join(self.keys)} at {' and '.join(self.operations)}",
        )


@mapping("validate rule", f"A CEL expression that must be true, over {', '.join(VARIABLES)}.")
class Validate(msgspec.Struct, frozen=True, kw_only=True):
    """A CEL expression that must be true, and the text for the person whose request is refused."""

    expression: Annotated[str, expression(compile_bool), "The expression."]
    message: Annotated[str, string("a message"), "What the author is told: what is wrong, what would be right."] = ""
    message_expression: Annotated[str, expression(compile_text), "CEL that makes the message."] = ""
    resources: Annotated[_Resources, "What the expression is about."] = ("pods",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It reads fields that there are, and has words for the author."""
        about = values.get("resources", ("pods",))
        for field, compiled in (("expression", compile_bool), ("message_expression", compile_text)):
            if values.get(field):
                warn_of(compiled(values[field]), nodes[field], reader, about)
        if "expression" in values and not {"message", "message_expression"} & nodes.keys():
            text = 'without "message" the author is told the expression; say what would be right'
            reader.warn(nodes["expression"], text)

    @property
    def declaration(self) -> Declaration:
        """It looks at what its expression reads."""
        return Declaration(about=self.resources, expressions=(self.expression,))


@mapping("rule", build=lambda values, source: {**values, "source": source}, alternatives=True)
class PriorityRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a name, and exactly one body.

    Of a file its values are read, of which the policy, which knows the enforcement, makes the rule.
    """

    name: Annotated[Name, "The rule's name in messages, logs and tests."]
    policy: str = ""
    """The name of its policy."""
    source: SourcePosition
    enforcement: Annotated[Enforcement, MAY_BE_ABSENT, "Instead of the policy's enforcement."]
    default_priority_class: Annotated[ClassName | None, "The class of new pods that name none."] = None
    priority_classes: Annotated[PriorityClasses | None, "Which PriorityClasses may be used."] = None
    reserve: Annotated[Reserve | None, "A range of values for some only."] = None
    copy_annotations: Annotated[
        tuple[Annotation, ...] | None,
        FILLED,
        "Annotations that a new pod takes over from its PriorityClass if it has none.",
    ] = None
    protect_annotations: Annotated[ProtectAnnotations | None, "Annotations that not everyone may change."] = None
    validate: Annotated[Validate | None, "A CEL expression that must be true."] = None

    @property
    def id(self) -> str:
        """`policy/rule`, as texts, logs and metrics name it."""
        return f"{self.policy}/{self.name}"

    @property
    def declaration(self) -> Declaration:
        """What the rule's body says of itself; all that one may if it was not readable."""
        if self.default_priority_class is not None:
            return _FILLS_IN
        if self.copy_annotations is not None:
            return msgspec.structs.replace(_FILLS_IN, fields=_annotations(self.copy_annotations))
        body: PriorityClasses | Reserve | ProtectAnnotations | Validate | None = self.body[1]
        return Declaration() if body is None else body.declaration

    @property
    def body(self) -> tuple[str, Any]:
        """The field that holds the rule's body, and the body; an empty name without one."""
        shape = shape_of(type(self))
        for field in shape.fields:
            body = getattr(self, field.attribute)
            if field.name in shape.alternatives and body is not None:
                return field.attribute, body
        return "", None
