"""Rules, compiled by their kinds: each becomes a function from the attributes of a request to what it says of it.

`KINDS`, at the end, has a row for each kind. The engine asks the rules by questions: about pods, classes or groups,
about the use or the definition of a value, about protected annotations, and for what is filled in.

Rules that enforce `protectAnnotations` give rights, and rights add up: a change is allowed when any of them that
speaks of the key and the operation allows it. If none speaks of a preemptibility key, the built-in rule
`builtin/shield` holds: everyone may at CREATE, nobody at UPDATE. Rules under `warn` and `audit` are on trial: they
report, and give nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from webhook.kube.bounded import bounded
from webhook.kube.instants import rfc3339
from webhook.policy.cel.program import CelRuntimeError, Program, compile_bool, compile_text
from webhook.policy.evaluation.matching import ANYONE, Rights, lacking, parts_of, rights_text
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS, AnnotationChange, RequestAttributes
from webhook.policy.model.globs import name_matcher
from webhook.policy.model.priority import PolicyException, PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityClasses, PriorityRule, ProtectAnnotations, Reserve, Validate

Twins = Mapping[str, tuple[str, ...]]
"""The name of a twin to the classes whose pods the webhook moves to it."""

BUILTIN, SHIELD = "builtin", "shield"
"""Policy and rule name of what holds if no policy speaks."""
USE, DEFINE, PROTECT, DEFAULT, COPY = "use", "define", "protect", "default", "copy"
"""What rules are asked besides what they say of every request for a resource, for which its name stands."""
DEFINE_INSTEAD = {
    "CREATE": "choose a value outside that range",
    "UPDATE": "its value cannot be changed, so leave the class as it is, or ask one of these to change it",
    "DELETE": "leave the class as it is, or ask one of these to delete it",
}
"""What would be right for whoever may not define a PriorityClass of this value, by the operation."""
Outcome = Literal["allow", "deny", "error", "excepted", "skip"]
"""`error`: an expression failed, which denies under `enforce` and warns otherwise. `excepted`: the rule is violated,
and an exception of its policy lets the request in. `skip` appears in traces alone."""
Said = tuple[Outcome, str]
"""What a rule says of a request, and the reason, which is empty if it allows it."""
Rows = Iterable[tuple[str, Any]]
"""What a rule is compiled to, each with the question that it answers."""


class Verdict(msgspec.Struct, frozen=True):
    """What one rule said, and what follows from it by its enforcement.

    `message` gives the reason unless the outcome is `allow`. A rule that has nothing to say skips.
    """

    policy: str
    rule: str
    enforcement: Enforcement
    outcome: Outcome
    message: str = ""

    @property
    def id(self) -> str:
        """`policy/rule`, as texts, logs and metrics name it."""
        return f"{self.policy}/{self.rule}"

    @property
    def denies(self) -> bool:
        """Whether the request must be refused: a violation or an error under `enforce`."""
        return self.violated and self.enforcement is Enforcement.ENFORCE

    @property
    def violated(self) -> bool:
        """Whether the rule is violated, and no exception lets the request in."""
        return self.outcome in ("deny", "error")

    @property
    def warns(self) -> bool:
        """Whether its author is warned: by `warn`, or of an exception or an error that denies nothing."""
        if self.outcome == "excepted":
            return self.enforcement is not Enforcement.AUDIT
        if self.outcome == "deny":
            return self.enforcement is Enforcement.WARN
        return self.outcome == "error" and self.enforcement is not Enforcement.ENFORCE


_ALLOW: Said = "allow", ""
_BY_NAMESPACE = " (pods that service accounts and controllers make have a right by namespace, whoever wrote them)"


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule ready to run on requests of the kinds it is about."""

    rule: PriorityRule
    run: Callable[[RequestAttributes], Said]
    values: range = range(0)
    """Those that a rule about some values is about."""

    def evaluate(self, attributes: RequestAttributes) -> Verdict:
        """What the rule says of the request."""
        outcome, message = self.run(attributes)
        rule, enforcement = self.rule, self.rule.enforcement
        if outcome == "error":
            enforcement = on_error(enforcement, attributes)
        return Verdict(rule.policy, rule.name, enforcement, outcome, message)


def on_error(enforcement: Enforcement, attributes: RequestAttributes) -> Enforcement:
    """What a failing expression leads to: a template lacks what defaulting gives, so it passes.

    The pods themselves are judged again when they are created. A PodGroup is not.
    """
    return Enforcement.WARN if attributes.template and attributes.question != GROUPS else enforcement


def _classes(_: PriorityPolicy, rule: PriorityRule, body: PriorityClasses, twins: Twins) -> Rows:
    """Which PriorityClasses pods may name; a twin counts as those whose pods are moved to it."""
    what = f"rule {rule.id} {classes_text(body)}"
    denied = name_matcher(body.deny)
    allowed = name_matcher(body.allow) if body.allow is not None else None

    def run(attributes: RequestAttributes) -> Said:
        name = attributes.class_name
        if not attributes.priority_changed or not name:
            return "skip", "the PriorityClass does not change" if name else "the pod has no PriorityClass"
        originals = twins.get(name, ())
        names = (name, *originals)
        if not any(map(denied, names)) and (allowed is None or any(map(allowed, names))):
            return _ALLOW
        text = f'PriorityClass "{bounded(name)}"'
        if originals:
            text += f" (the twin of {' or '.join(originals)})"
        text += " may not be used"
        if attributes.request.namespace:
            text += f" in namespace {attributes.request.namespace}"
        return "deny", f"{text}: {what}"

    return [(PODS, CompiledRule(rule, run))]


def _reserved(_: PriorityPolicy, rule: PriorityRule, body: Reserve, __: Twins) -> Rows:
    """Who may use a reserved range, and define classes in it; asked of values in it."""
    users, may_use = rights_text(body.use), Rights(body.use)
    definers, may_define = rights_text(body.define, ANYONE), Rights(body.define)
    lies = f"lies in the range {body.from_} to {body.to}, which rule {rule.id} reserves"
    by_subject = any(right.subjects for right in body.use)

    def use(attributes: RequestAttributes) -> Said:
        if not attributes.priority_changed:
            return "skip", "the priority does not change"
        if may_use(attributes):
            return _ALLOW
        text = f"priority {attributes.value}"
        if attributes.class_name:
            text += f' (PriorityClass "{bounded(attributes.class_name)}")'
        text += f" {lies} for {users}{may_use.missing(attributes)}"
        if by_subject and attributes.by_service_account:
            text += _BY_NAMESPACE
        return "deny", f"{text}; choose a PriorityClass with a value outside that range"

    def define(attributes: RequestAttributes) -> Said:
        if not attributes.definition_changed:
            return "skip", "the class does not change"
        if may_define(attributes):
            return _ALLOW
        what = f'value {attributes.value} of PriorityClass "{bounded(attributes.name)}"'
        who = f"classes there may be defined by {definers}{may_define.missing(attributes)}"
        return "deny", f"{what} {lies}: {who}; {DEFINE_INSTEAD[attributes.request.operation]}"

    reserved = range(body.from_, body.to + 1)
    rows = (USE, use), (DEFINE, define)
    return [(question, CompiledRule(rule, run, reserved)) for question, run in rows]


def _validated(_: PriorityPolicy, rule: PriorityRule, body: Validate, __: Twins) -> Rows:
    """An expression: false refuses, to fail is an error. Raises CelError if it does not compile."""
    expression = compile_bool(body.expression)
    words = compile_text(body.message_expression) if body.message_expression else None

    def run(attributes: RequestAttributes) -> Said:
        try:
            if expression.holds(attributes.inputs):
                return _ALLOW
        except CelRuntimeError as error:
            return "error", f"rule {rule.id} {failed_text(expression, error)}"
        message = body.message or f"the expression {body.expression!r} is false"
        if words is not None:
            # One that fails must not hide that the rule is violated
            with suppress(CelRuntimeError):
                message = words.words(attributes.inputs)
        return "deny", f"{message} (rule {rule.id})"

    return [(kind, CompiledRule(rule, run)) for kind in body.resources]


def failed_text(program: Program, error: CelRuntimeError) -> str:
    """What an author is told of an expression that could not be evaluated."""
    instead = "set what it reads, or tell whoever keeps the policy"
    return f"could not be evaluated: expression {program.text!r}: {error}; {instead}"


class Shield:
    """A compiled `protectAnnotations` rule, for one kind of objects. No PriorityClass lies in a namespace."""

    def __init__(self, kind: str, policy: PriorityPolicy, rule: PriorityRule, body: ProtectAnnotations) -> None:
        allow = [right for right in body.allow if kind == PODS or not right.in_namespaces]
        self.kind, self.rule = kind, rule
        self.keys, self._operations = frozenset(body.keys), body.operations
        self.allowed, self._who = Rights(allow), rights_text(allow)
        self._within = parts_of(policy.match, gives=True)

    def speaks(self, attributes: RequestAttributes, keys: Iterable[str]) -> bool:
        """Whether it is about the request's change of one of these annotations."""
        if attributes.kind != self.kind or attributes.operation not in self._operations:
            return False
        return any(key in self.keys for key in keys)

    def leaves(self, attributes: RequestAttributes) -> str:
        """To whom the rule leaves what this request may not change; `match`, as what gives, is part of the right."""
        outside = lacking(self._within, attributes)
        if not outside and self.allowed(attributes):
            return ""
        text = f"rule {self.rule.id} leaves that to {self._who}{self.allowed.missing(attributes)}"
        if outside:
            text += f" (the policy's own match gives no right: {' and '.join(outside)})"
        return text


def shield_verdicts(
    attributes: RequestAttributes,
    changed: Mapping[str, AnnotationChange],
    shields: list[Shield],
    builtin: frozenset[str],
    elsewhere: Callable[[RequestAttributes], Iterable[tuple[Shield, str]]],
) -> list[Verdict]:
    """What the rules that apply, or else the built-in one, say of these changes.

    `elsewhere` gives the others, with why not: those that would allow the change are told.
    """
    verdicts: list[Verdict] = []
    for key, change in sorted(changed.items()):
        speaking = [(shield, shield.leaves(attributes)) for shield in shields if shield.speaks(attributes, (key,))]
        binding = [row for row in speaking if row[0].rule.enforcement is Enforcement.ENFORCE]
        granting = [row for row in binding if not row[1]][:1]
        on_trial = [row for row in speaking if row not in binding]
        for shield, leaves in (*(granting or binding), *on_trial):
            text = _refusal(attributes, key, change, leaves) if leaves else ""
            outcome: Outcome = "deny" if leaves else "allow"
            rule = shield.rule
            verdicts.append(Verdict(rule.policy, rule.name, rule.enforcement, outcome, text))
        if not binding and key in builtin and attributes.operation == "UPDATE":
            leaves = f"rule {BUILTIN}/{SHIELD} leaves that to nobody once the pod exists"
            for shield, why in elsewhere(attributes):
                enforced = shield.rule.enforcement is Enforcement.ENFORCE
                if enforced and shield.speaks(attributes, (key,)) and shield.allowed(attributes):
                    leaves += f" (rule {shield.rule.id} gives the right, but not here: {why})"
            text = _refusal(attributes, key, change, leaves)
            verdicts.append(Verdict(BUILTIN, SHIELD, Enforcement.ENFORCE, "deny", text))
    return verdicts


def _refusal(attributes: RequestAttributes, key: str, change: AnnotationChange, leaves: str) -> str:
    before, after = (None if value is None else bounded(value).replace("\n", "\\n") for value in change)
    if before is None:
        done = f'set to "{after or ""}"'
    elif after is None:
        done = f'removed (it is "{before}")'
    else:
        done = f'changed from "{before}" to "{after}"'
    if attributes.operation == "CREATE" or not attributes.request.labels_known:
        instead = "leave it out"
    elif attributes.kind == CLASSES:
        instead = "leave it as it is"
    else:
        where = "in the pod template" if attributes.has_controller else "in the manifest of a new pod"
        instead = f"set it {where} or on the PriorityClass, where it holds for new pods"
        if after is None:
            instead = f"take it away {where} and from the PriorityClass, where that holds for new pods"
    return f"annotation {key} may not be {done}: {leaves}; {instead}"


def classes_text(body: PriorityClasses) -> str:
    """`allows a, b and denies c`."""
    parts = []
    if body.allow is not None:
        parts.append(f"allows {', '.join(body.allow) or 'none'}")
    if body.deny:
        parts.append(f"denies {', '.join(body.deny)}")
    return " and ".join(parts)


def excepted_text(rule_id: str, exception: PolicyException, violation: str) -> str:
    """What an excepted author is told, the end first, since long warnings are cut."""
    until = rfc3339(exception.until)
    account = f"{exception.owner}: {exception.reason}"
    text = without_name(rule_id, violation)
    return f"rule {rule_id} lets this in by an exception until {until} ({account}): {text}"


def without_name(rule_id: str, text: str) -> str:
    """A text with `this rule` for the rule's name, for a line that has named it."""
    return re.sub(rf"\brule {re.escape(rule_id)}(?![\w/-])", "this rule", text.removesuffix(f" (rule {rule_id})"))


KINDS: dict[str, Callable[[PriorityPolicy, PriorityRule, Any, Twins], Rows]] = {
    "default_priority_class": lambda _, rule, name, __: [(DEFAULT, (name, rule.id))],
    "priority_classes": _classes,
    "reserve": _reserved,
    "copy_annotations": lambda _, rule, keys, __: [(COPY, (key, rule.id)) for key in keys],
    "protect_annotations": lambda policy, rule, body, _: [
        (PROTECT, Shield(kind, policy, rule, body)) for kind in body.resources
    ],
    "validate": _validated,
}
"""What compiles each kind of rule, by the field of `PriorityRule` that holds its body.

What else there is to know of a rule says its declaration (`webhook.policy.model.rules`).
"""
