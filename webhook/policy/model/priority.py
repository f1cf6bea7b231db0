"""PriorityPolicy: who may run and define what.

`webhook.policy.evaluation` turns these into closures. A new rule body is a struct here, its field in `PriorityRule`,
and its evaluation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from webhook.policy.cel.program import VARIABLES, compile_bool, compile_text
from webhook.policy.model.match import (
    MEND,
    OPERATIONS,
    RIGHT,
    SUBJECTS,
    RequestMatch,
    Subject,
    check_rights,
    reads_user,
)
from webhook.policy.model.values import ANNOTATION, CLASS_GLOB, CLASS_NAME, NAME, Expression
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import Checked, Field, Nodes, Values, mapping, shape_of
from webhook.policy.shapes.shapes import Choice, Instant, ListOf, OneOrMore, Text, Whole
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlNode

__all__ = [
    "Definers",
    "Enforcement",
    "MatchCondition",
    "MatchConditions",
    "PolicyException",
    "PriorityClasses",
    "PriorityPolicy",
    "PriorityRule",
    "ProtectAnnotations",
    "Reserve",
    "Validate",
]

_PRIORITY = Whole("a priority", -(2**31), 2**31 - 1)
_VARIABLES = ", ".join(VARIABLES)


class Enforcement(StrEnum):
    """What a violated rule does: refuse, warn the author, or only leave an audit annotation."""

    ENFORCE = "enforce"
    WARN = "warn"
    AUDIT = "audit"


_ENFORCEMENT = Choice(
    "an enforcement",
    {
        "enforce": "a violation refuses the request",
        "warn": "a violation is told to the author as a warning",
        "audit": "a violation is left in the audit log",
    },
    Enforcement,
)


@mapping("condition", f"A CEL expression that must be true for the policy to apply, over {_VARIABLES}.")
class MatchCondition(msgspec.Struct, frozen=True):
    """A named CEL expression that must hold for the policy to apply."""

    name: Annotated[str, Field("The condition's name in messages.", NAME)]
    expression: Annotated[str, Field("The expression.", Expression(compile_bool))]
    source: SourcePosition


MatchConditions = tuple[MatchCondition, ...]


@mapping("priorityClasses rule")
class PriorityClasses(Checked, frozen=True, kw_only=True):
    """Which PriorityClasses pods may name. Pods without one are not meant: their value is what `reserve` looks at."""

    allow: Annotated[
        tuple[str, ...] | None, Field("Names or globs that may be used; all if absent.", ListOf(CLASS_GLOB))
    ] = None
    deny: Annotated[
        tuple[str, ...], Field("Names or globs that may not be used; deny wins over allow.", ListOf(CLASS_GLOB))
    ] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """No class is allowed and denied, and some is allowed."""
        for name in sorted(set(values.get("allow") or ()) & set(values.get("deny", ()))):
            reader.warn(nodes["deny"], f'"{name}" is in allow and in deny; deny wins')
        if values.get("allow") == ():
            reader.warn(nodes["allow"], "an empty allow refuses every PriorityClass")


@mapping("definers")
class Definers(msgspec.Struct, frozen=True, kw_only=True):
    """Who may define PriorityClasses in a range: everything named must hold. A list gives alternatives."""

    names: Annotated[
        tuple[str, ...] | None,
        Field("The class's name is one of these; * is a wildcard.", ListOf(CLASS_GLOB, least=1)),
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
        Field("Who may create or change PriorityClasses in it; else nobody.", OneOrMore(shape_of(Definers))),
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
            check_rights(values["use"], nodes["use"], reader, at_create=True)


@mapping("protectAnnotations rule")
class ProtectAnnotations(Checked, frozen=True, kw_only=True):
    """Who may set, change or remove annotations of pods. Rules that enforce add up: one that allows suffices."""

    keys: Annotated[tuple[str, ...], Field("The annotations.", ListOf(ANNOTATION, least=1))]
    allow: Annotated[tuple[RequestMatch, ...], Field("Who may; nobody if absent.", OneOrMore(RIGHT))] = ()
    operations: Annotated[tuple[str, ...], Field("When the rule holds.", OPERATIONS)] = ("UPDATE",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Its rights mean whom they name."""
        if values.get("allow"):
            at_create = "CREATE" in values.get("operations", ())
            check_rights(values["allow"], nodes["allow"], reader, at_create=at_create)


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
        Field(
            "What the expression is about.",
            ListOf(
                Choice(
                    "a resource",
                    {"pods": "pods and the pod templates of workloads", "priorityclasses": "PriorityClasses"},
                ),
                least=1,
            ),
        ),
    ] = ("pods",)

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It has words for the author."""
        if "expression" in values and "message" not in nodes and "message_expression" not in nodes:
            reader.warn(
                nodes["expression"], 'without "message" the author is told the expression; say what would be right'
            )


def _rule(values: Values, source: SourcePosition) -> Values:
    """The rule's values; the policy, which knows the enforcement, makes the rule of them."""
    return {**values, "source": source}


@mapping("rule", build=_rule)
class PriorityRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a name, and exactly one body."""

    name: Annotated[str, Field("The rule's name in messages, logs and tests.", NAME)]
    source: SourcePosition
    enforcement: Annotated[Enforcement, Field("Instead of the policy's enforcement.", _ENFORCEMENT, required=False)]
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
    def refuses(self) -> bool:
        """Whether the rule can refuse anything; the others fill in, and there is nothing to except from."""
        return self.default_priority_class is None and self.copy_annotations is None


@mapping("exception")
class PolicyException(Checked, frozen=True, kw_only=True):
    """Whom some rules of the policy let in all the same for a while, with a warning that says until when."""

    match: Annotated[RequestMatch, Field("Who is let in: everything named must hold, as in a right.", RIGHT)]
    rules: Annotated[tuple[str, ...], Field("The rules of this policy that let them in.", ListOf(NAME, least=1))]
    reason: Annotated[str, Field("Why; the author of the request reads it.", Text("a reason"))]
    owner: Annotated[str, Field("Who answers for it.", Text("an owner"))]
    until: Annotated[float, Field("When it ends: an instant, or the last day (UTC).", Instant())]
    """Seconds since the epoch."""
    source: SourcePosition

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It is for somebody, and means whom it names."""
        if values.get("match") == RequestMatch():
            reader.error(nodes["match"], "this excepts everybody: name who is meant, or turn the rules to warn")
        elif "match" in values:
            check_rights((values["match"],), nodes["match"], reader, at_create=True)


def _policy(values: Values, source: SourcePosition) -> PriorityPolicy:
    enforcement = values.get("enforcement", Enforcement.ENFORCE)
    rules = tuple(PriorityRule(**{"enforcement": enforcement, **rule}) for rule in values.pop("rules"))
    return PriorityPolicy(name="", source=source, rules=rules, **values)


@mapping("PriorityPolicy spec", build=_policy)
class PriorityPolicy(Checked, frozen=True, kw_only=True):
    """Who may run and define what: when the policy applies, and its rules."""

    name: str
    source: SourcePosition
    enforcement: Annotated[Enforcement, Field("What a violated rule does.", _ENFORCEMENT)] = Enforcement.ENFORCE
    match: Annotated[RequestMatch, Field("Which requests the policy is about; all if absent.")] = RequestMatch()
    exclude: Annotated[
        RequestMatch | None, Field("Which of those it is not about after all; exclude wins over match.")
    ] = None
    conditions: Annotated[MatchConditions, Field("CEL expressions that must all be true besides.")] = ()
    rules: Annotated[
        tuple[PriorityRule, ...], Field("The rules.", ListOf(shape_of(PriorityRule), least=1), required=True)
    ] = ()
    exceptions: Annotated[
        tuple[PolicyException, ...], Field("Whom some of the rules let in all the same for a while.")
    ] = ()

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Names are there once, an exception is from rules that refuse, and subjects mean whom they name.

        Rules and conditions share the names by which `policy/name` is found in messages.
        """
        rules, seen = values.get("rules", ()), dict[str, int]()
        named = [(rule["name"], rule["source"]) for rule in rules]
        named += [(one.name, one.source) for one in values.get("conditions", ())]
        for name, source in named:
            if name in seen:
                text = f'name "{name}" is there twice in this policy; the other one is on line {seen[name]}'
                reader.error(YamlNode(source.line, source.column, 1), text)
            seen.setdefault(name, source.line)
        if "exclude" in nodes and values.get("exclude") == RequestMatch():
            reader.warn(nodes["exclude"], "an empty exclude excludes nothing; leave it out or name something")
        _check_requesters(values, nodes, reader)
        refusing = {one["name"]: PriorityRule(**{"enforcement": Enforcement.ENFORCE, **one}).refuses for one in rules}
        for exception in values.get("exceptions", ()) if "rules" in values else ():
            node = YamlNode(exception.source.line, exception.source.column, 1)
            for name in exception.rules:
                if name not in refusing:
                    near = reader.nearest(name, refusing)
                    reader.error(node, f'the exception names a rule "{name}" that this policy does not have{near}')
                elif not refusing[name]:
                    text = f'rule "{name}" refuses nothing, so there is nothing to except from; use "exclude"'
                    reader.error(node, text)

    @property
    def asks_who(self) -> bool:
        """Whether who asks makes a difference to what the policy says of a pod: by `subjects` or by an expression."""
        matches = [self.match, self.exclude or RequestMatch(), *(one.match for one in self.exceptions)]
        expressions = [one.expression for one in self.conditions]
        for rule in self.rules:
            matches += rule.reserve.use if rule.reserve else ()
            matches += rule.protect_annotations.allow if rule.protect_annotations else ()
            expressions += [rule.validate.expression] if rule.validate else []
        return any(one.subjects is not None for one in matches) or any(map(reads_user, expressions))


def _check_requesters(values: Values, nodes: Nodes, reader: Reader) -> None:
    """Point out a policy that treats the author of a workload and the controller that makes its pods differently.

    docs/policies.md, "Who asks".
    """
    match, exclude = values.get("match") or RequestMatch(), values.get("exclude") or RequestMatch()
    expressions = [(one.expression, one.source) for one in values.get("conditions", ())]
    about_new_pods = False
    validates = False
    for rule in values.get("rules", ()):
        if "validate" in rule and "pods" in rule["validate"].resources:
            about_new_pods = validates = True
            expressions.append((rule["validate"].expression, rule["source"]))
        elif "validate" not in rule:
            at_create = "protect_annotations" not in rule or "CREATE" in rule["protect_annotations"].operations
            about_new_pods = about_new_pods or at_create
    if not about_new_pods:
        return
    if "CREATE" not in (match.operations or ("CREATE",)):
        if match.subjects is not None and validates:
            reader.warn(
                nodes["match"],
                "the rules also hold for changes that service accounts make, because they may make them for someone"
                " else; leave the subjects out, or let the expression pass what controllers change",
            )
        return
    if match.subjects is not None:
        narrow = match.by_namespace
        reader.warn(
            nodes["match"],
            f"the rules also hold for pods that controllers and service accounts make in"
            f" {'these namespaces' if narrow else 'every namespace'}, whoever the author of the workload is: workloads"
            f" of others are let in and their pods may be refused; {'leave the subjects out' if narrow else MEND}",
        )
    if exclude.subjects is not None and not exclude.by_namespace:
        reader.warn(
            nodes["exclude"],
            "workloads of these subjects are let in and their pods may be refused, because controllers make the pods"
            f" and are excluded by namespace only; {MEND}",
        )
    for expression, source in expressions:
        if reads_user(expression):
            reader.warn(
                YamlNode(source.line, source.column, 1),
                "request.userInfo is a controller when it makes the pods of a workload, so the author is judged in one"
                " way and the pods in another; read namespaceObject instead, or match operations [UPDATE]",
            )
