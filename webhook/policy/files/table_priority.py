"""The table of PriorityPolicy: who may run and define what."""

from __future__ import annotations

from webhook.policy.cel.program import VARIABLES, compile_bool, compile_text
from webhook.policy.files.findings import nearest
from webhook.policy.files.object_shape import Field, ObjectShape, Values
from webhook.policy.files.reader import Reader
from webhook.policy.files.shapes import Choice, Instant, ListOf, OneOrMore, Text, Whole
from webhook.policy.files.table_match import (
    ANNOTATION,
    CLASS_GLOB,
    CLASS_NAME,
    MATCH,
    MATCH_FIELDS,
    NAME,
    OPERATIONS,
    Expression,
)
from webhook.policy.files.table_rights import RIGHT, check_requesters, check_rights
from webhook.policy.files.yamltree import YamlNode
from webhook.policy.model import (
    Definers,
    Enforcement,
    MatchCondition,
    PolicyException,
    PriorityClasses,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
    RequestMatch,
    Reserve,
    SourcePosition,
    Validate,
)

__all__ = ["BODIES", "PRIORITY_SPEC"]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
_VARIABLES = ", ".join(VARIABLES)

ENFORCEMENT = Choice(
    "an enforcement",
    {
        "enforce": "a violation refuses the request",
        "warn": "a violation is told to the author as a warning",
        "audit": "a violation is left in the audit log",
    },
    Enforcement,
)


def _some_class_rule(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    for name in sorted(set(values.get("allow") or ()) & set(values.get("deny", ()))):
        reader.warn(nodes["deny"], f'"{name}" is in allow and in deny; deny wins')
    if not nodes.get("allow") and not nodes.get("deny"):
        return
    if values.get("allow") == () and "allow" in nodes:
        reader.warn(nodes["allow"], "an empty allow refuses every PriorityClass")


_CLASSES = ObjectShape(
    "priorityClasses rule",
    "Which PriorityClasses pods may name. Pods without one are not meant: their value is what `reserve` looks at.",
    (
        Field("allow", "allow", ListOf(CLASS_GLOB), "Names or globs that may be used; all if absent."),
        Field("deny", "deny", ListOf(CLASS_GLOB), "Names or globs that may not be used; deny wins over allow."),
    ),
    model=PriorityClasses,
    check=_some_class_rule,
)

_DEFINERS = ObjectShape(
    "definers",
    "Who may define PriorityClasses in a range: everything named must hold. A list gives alternatives.",
    (
        Field("names", "names", ListOf(CLASS_GLOB, least=1), "The class's name is one of these; * is a wildcard."),
        MATCH_FIELDS["subjects"],
    ),
    model=Definers,
)


def _range_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "from_" in values and "to" in values and values["from_"] > values["to"]:
        reader.error(nodes["from_"], f"the range ends at {values['to']}, before it begins; swap from and to")
    if values.get("use"):
        check_rights(values["use"], nodes["use"], reader, at_create=True)


_RESERVE = ObjectShape(
    "reserve rule",
    "Reserves a range of priority values, both ends included. What counts is a pod's value, however it got there.",
    (
        Field("from", "from_", Whole("a priority", INT32_MIN, INT32_MAX), "The lowest value reserved.", required=True),
        Field("to", "to", Whole("a priority", INT32_MIN, INT32_MAX), "The highest value reserved.", required=True),
        Field("define", "define", OneOrMore(_DEFINERS), "Who may create or change PriorityClasses in it; else nobody."),
        Field("use", "use", OneOrMore(RIGHT), "Which pods may have a priority in it; else none."),
    ),
    model=Reserve,
    check=_range_check,
)


def _protect_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if values.get("allow"):
        at_create = "CREATE" in values.get("operations", ())
        check_rights(values["allow"], nodes["allow"], reader, at_create=at_create)


_PROTECT = ObjectShape(
    "protectAnnotations rule",
    "Who may set, change or remove annotations of pods. Rules that enforce add up: one that allows suffices.",
    (
        Field("keys", "keys", ListOf(ANNOTATION, least=1), "The annotations.", required=True),
        Field("allow", "allow", OneOrMore(RIGHT), "Who may; nobody if absent."),
        Field("operations", "operations", OPERATIONS, "When the rule holds."),
    ),
    model=ProtectAnnotations,
    check=_protect_check,
)


def _validate_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "expression" in values and "message" not in nodes and "message_expression" not in nodes:
        reader.warn(nodes["expression"], 'without "message" the author is told the expression; say what would be right')


_VALIDATE = ObjectShape(
    "validate rule",
    f"A CEL expression that must be true, over {_VARIABLES}.",
    (
        Field("expression", "expression", Expression(compile_bool), "The expression.", required=True),
        Field("message", "message", Text("a message"), "What the author is told: what is wrong, what would be right."),
        Field("messageExpression", "message_expression", Expression(compile_text), "CEL that makes the message."),
        Field(
            "resources",
            "resources",
            ListOf(
                Choice(
                    "a resource",
                    {"pods": "pods and the pod templates of workloads", "priorityclasses": "PriorityClasses"},
                ),
                least=1,
            ),
            "What the expression is about.",
        ),
    ),
    model=Validate,
    check=_validate_check,
)

_BODY_FIELDS = (
    Field("defaultPriorityClass", "default_priority_class", CLASS_NAME, "The class of new pods that name none."),
    Field("priorityClasses", "priority_classes", _CLASSES, "Which PriorityClasses may be used."),
    Field("reserve", "reserve", _RESERVE, "A range of values for some only."),
    Field(
        "copyAnnotations",
        "copy_annotations",
        ListOf(ANNOTATION, least=1),
        "Annotations that a new pod takes over from its PriorityClass if it has none.",
    ),
    Field("protectAnnotations", "protect_annotations", _PROTECT, "Annotations that not everyone may change."),
    Field("validate", "validate", _VALIDATE, "A CEL expression that must be true."),
)
BODIES = tuple(field.name for field in _BODY_FIELDS)


def _rule(values: Values, source: SourcePosition) -> Values:
    """The rule's values; the policy, which knows the enforcement, makes the rule of them."""
    return {**values, "source": source}


_RULE = ObjectShape(
    "rule",
    "One rule: a name, and exactly one body.",
    (
        Field("name", "name", NAME, "The rule's name in messages, logs and tests.", required=True),
        Field("enforcement", "enforcement", ENFORCEMENT, "Instead of the policy's enforcement."),
        *_BODY_FIELDS,
    ),
    model=PriorityRule,
    build=_rule,
    one_of=BODIES,
)


_CONDITION = ObjectShape(
    "condition",
    f"A CEL expression that must be true for the policy to apply, over {_VARIABLES}.",
    (
        Field("name", "name", NAME, "The condition's name in messages.", required=True),
        Field("expression", "expression", Expression(compile_bool), "The expression.", required=True),
    ),
    model=MatchCondition,
)


def _exception_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if values.get("match") == RequestMatch():
        reader.error(nodes["match"], "this excepts everybody: name who is meant, or turn the rules to warn")
    elif "match" in values:
        check_rights((values["match"],), nodes["match"], reader, at_create=True)


_EXCEPTION = ObjectShape(
    "exception",
    "Whom some rules of the policy let in all the same for a while, with a warning that says until when.",
    (
        Field("match", "match", RIGHT, "Who is let in: everything named must hold, as in a right.", required=True),
        Field("rules", "rules", ListOf(NAME, least=1), "The rules of this policy that let them in.", required=True),
        Field("reason", "reason", Text("a reason"), "Why; the author of the request reads it.", required=True),
        Field("owner", "owner", Text("an owner"), "Who answers for it.", required=True),
        Field("until", "until", Instant(), "When it ends: an instant, or the last day (UTC).", required=True),
    ),
    model=PolicyException,
    check=_exception_check,
)


def _exceptions_check(values: Values, reader: Reader) -> None:
    """An exception names rules of its own policy, and such as can refuse something."""
    refusing = {
        rule["name"]: PriorityRule(**{"enforcement": Enforcement.ENFORCE, **rule}).refuses for rule in values["rules"]
    }
    for exception in values.get("exceptions", ()):
        node = YamlNode(exception.source.line, exception.source.column, 1)
        for name in exception.rules:
            if name not in refusing:
                reader.error(
                    node, f'the exception names a rule "{name}" that this policy does not have{nearest(name, refusing)}'
                )
            elif not refusing[name]:
                reader.error(node, f'rule "{name}" refuses nothing, so there is nothing to except from; use "exclude"')


def _policy(values: Values, source: SourcePosition) -> PriorityPolicy:
    enforcement = values.get("enforcement", Enforcement.ENFORCE)
    rules = tuple(PriorityRule(**{"enforcement": enforcement, **rule}) for rule in values.pop("rules"))
    return PriorityPolicy(name="", source=source, rules=rules, **values)


def _names_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    """Rules and conditions share the names by which `policy/name` is found in messages, so no two may be alike."""
    seen: dict[str, int] = {}
    rows = [(rule["name"], rule["source"]) for rule in values.get("rules", ())]
    rows += [(one.name, one.source) for one in values.get("conditions", ())]
    for name, source in rows:
        if name in seen:
            node = YamlNode(source.line, source.column, 1)
            reader.error(node, f'name "{name}" is there twice in this policy; the other one is on line {seen[name]}')
        seen.setdefault(name, source.line)
    if "exclude" in nodes and values.get("exclude") is not None and values["exclude"] == RequestMatch():
        reader.warn(nodes["exclude"], "an empty exclude excludes nothing; leave it out or name something")


def _policy_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    _names_check(values, nodes, reader)
    check_requesters(values, nodes, reader)
    if "rules" in values:
        _exceptions_check(values, reader)


PRIORITY_SPEC = ObjectShape(
    "PriorityPolicy spec",
    "Who may run and define what: when the policy applies, and its rules.",
    (
        Field("enforcement", "enforcement", ENFORCEMENT, "What a violated rule does."),
        Field("match", "match", MATCH, "Which requests the policy is about; all if absent."),
        Field("exclude", "exclude", MATCH, "Which of those it is not about after all; exclude wins over match."),
        Field("conditions", "conditions", ListOf(_CONDITION), "CEL expressions that must all be true besides."),
        Field("rules", "rules", ListOf(_RULE, least=1), "The rules.", required=True),
        Field(
            "exceptions", "exceptions", ListOf(_EXCEPTION), "Whom some of the rules let in all the same for a while."
        ),
    ),
    model=PriorityPolicy,
    build=_policy,
    check=_policy_check,
)
