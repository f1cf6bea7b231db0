"""Rule bodies, compiled: each becomes a function from the facts of a request to a ruling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.policy.cel import CelRuntimeError, Program, compile_bool, compile_text
from webhook.policy.describing import classes_text, definers_text, quoted, rights_text
from webhook.policy.facts import CLASSES, PODS, Facts
from webhook.policy.globs import name_matcher
from webhook.policy.matching import anyone_of, definers
from webhook.policy.model import Enforcement, PriorityClasses, PriorityPolicy, Reserve, Rule, Validate
from webhook.policy.verdict import Ruling, Verdict

__all__ = ["Compiled", "Twins", "compile_define", "compile_rule", "compile_use", "on_error"]

Twins = Mapping[str, tuple[str, ...]]
"""The name of a twin to the classes whose pods the webhook moves to it."""

_ALLOW = Ruling("allow")
_REGARDLESS = " (pods that service accounts and controllers make have a right by namespace, whoever wrote the workload)"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One rule ready to run on requests of one kind."""

    policy: str
    rule: str
    enforcement: Enforcement
    kind: str
    run: Callable[[Facts], Ruling]

    @property
    def id(self) -> str:
        """`policy/rule`."""
        return f"{self.policy}/{self.rule}"

    def verdict(self, ruling: Ruling, facts: Facts) -> Verdict | None:
        """The ruling as a verdict; None if the rule had nothing to say."""
        if ruling.outcome == "skip":
            return None
        enforcement = on_error(self.enforcement, facts) if ruling.outcome == "error" else self.enforcement
        return Verdict(self.policy, self.rule, enforcement, ruling.outcome, ruling.message)


def on_error(enforcement: Enforcement, facts: Facts) -> Enforcement:
    """What an expression that fails leads to: a template lacks what defaulting gives its pods, so it is not refused.

    The pods themselves are judged again when they are created.
    """
    return Enforcement.WARN if facts.template else enforcement


def compile_rule(policy: PriorityPolicy, rule: Rule, twins: Twins) -> list[Compiled]:
    """Compile `priorityClasses` and `validate`; the other bodies are not for validation or are compiled apart.

    Raises CelError for an expression that does not compile, which loading has found before.
    """
    if rule.priority_classes is not None:
        return [_compiled(policy, rule, PODS, _classes(rule.priority_classes, f"{policy.name}/{rule.name}", twins))]
    if rule.validate is not None:
        run = _validate(rule.validate, f"{policy.name}/{rule.name}")
        return [_compiled(policy, rule, kind, run) for kind in rule.validate.resources]
    return []


def compile_use(policy: PriorityPolicy, rule: Rule, reserve: Reserve) -> Compiled:
    """Compile who may use a reserved range, to be run on pods whose priority lies in it."""
    may, who = anyone_of(reserve.use), rights_text(reserve.use)
    by_subject = any(right.subjects for right in reserve.use)

    def run(facts: Facts) -> Ruling:
        if not facts.priority_changed:
            return Ruling("skip", "the priority does not change")
        if may(facts):
            return _ALLOW
        hint = _REGARDLESS if by_subject and facts.by_service_account else ""
        by = f" (PriorityClass {quoted(facts.class_name)})" if facts.class_name else ""
        return Ruling(
            "deny",
            f"priority {facts.value}{by} lies in the range {reserve.from_} to {reserve.to}, which rule"
            f" {policy.name}/{rule.name} reserves for {who}{hint};"
            " choose a PriorityClass with a value outside that range",
        )

    return _compiled(policy, rule, PODS, run)


def compile_define(policy: PriorityPolicy, rule: Rule, reserve: Reserve) -> Compiled:
    """Compile who may define classes in a reserved range, to be run on PriorityClasses whose value lies in it."""
    may, who = definers(reserve.define), definers_text(reserve.define)

    def run(facts: Facts) -> Ruling:
        if not facts.definition_changed:
            return Ruling("skip", "the class does not change")
        if may(facts):
            return _ALLOW
        return Ruling(
            "deny",
            f"value {facts.value} of PriorityClass {quoted(facts.name)} lies in the range {reserve.from_} to"
            f" {reserve.to}, which rule {policy.name}/{rule.name} reserves: classes there may be defined by {who};"
            f" choose a value outside that range",
        )

    return _compiled(policy, rule, CLASSES, run)


def _compiled(policy: PriorityPolicy, rule: Rule, kind: str, run: Callable[[Facts], Ruling]) -> Compiled:
    return Compiled(policy.name, rule.name, rule.enforcement, kind, run)


def _classes(body: PriorityClasses, rule_id: str, twins: Twins) -> Callable[[Facts], Ruling]:
    """A twin counts as the class whose pods it takes: the webhook moved the pod, not its author."""
    denied = name_matcher(body.deny)
    allowed = name_matcher(body.allow) if body.allow is not None else None
    what = classes_text(body)

    def run(facts: Facts) -> Ruling:
        if not facts.priority_changed:
            return Ruling("skip", "the PriorityClass does not change")
        name = facts.class_name
        if not name:
            return Ruling("skip", "the pod has no PriorityClass")
        names = (name, *twins.get(name, ()))
        if not any(map(denied, names)) and (allowed is None or any(map(allowed, names))):
            return _ALLOW
        where = f" in namespace {facts.request.namespace}" if facts.request.namespace else ""
        return Ruling("deny", f"PriorityClass {quoted(name)} may not be used{where}: rule {rule_id} {what}")

    return run


def _validate(body: Validate, rule_id: str) -> Callable[[Facts], Ruling]:
    expression = compile_bool(body.expression)
    words = compile_text(body.message_expression) if body.message_expression else None

    def run(facts: Facts) -> Ruling:
        try:
            if expression.holds(facts.inputs):
                return _ALLOW
        except CelRuntimeError as error:
            return Ruling("error", f"rule {rule_id} could not be evaluated: expression {expression.text!r}: {error}")
        return Ruling("deny", f"{_message(body, words, facts)} (rule {rule_id})")

    return run


def _message(body: Validate, words: Program | None, facts: Facts) -> str:
    """What the author is told; a messageExpression that fails must not hide that the rule is violated."""
    if words is not None:
        try:
            return words.words(facts.inputs)
        except CelRuntimeError:
            pass
    return body.message or f"the expression {body.expression!r} is false"
