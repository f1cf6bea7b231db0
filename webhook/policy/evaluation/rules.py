"""Rule bodies, compiled: each becomes a function from the attributes of a request to a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.policy.cel.program import CelRuntimeError, Program, compile_bool, compile_text
from webhook.policy.evaluation.attributes import CLASSES, PODS, RequestAttributes
from webhook.policy.evaluation.describing import classes_text, definers_text, quoted, rights_text
from webhook.policy.evaluation.globs import name_matcher
from webhook.policy.evaluation.matching import anyone_of, definers
from webhook.policy.evaluation.verdict import RuleResult, Verdict
from webhook.policy.model import Enforcement, PriorityClasses, PriorityPolicy, PriorityRule, Reserve, Validate

__all__ = ["REGARDLESS", "CompiledRule", "Twins", "compile_define", "compile_rule", "compile_use", "on_error"]

Twins = Mapping[str, tuple[str, ...]]
"""The name of a twin to the classes whose pods the webhook moves to it."""

_ALLOW = RuleResult("allow")
REGARDLESS = " (pods that service accounts and controllers make have a right by namespace, whoever wrote the workload)"


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule ready to run on requests of one kind."""

    policy: str
    rule: str
    enforcement: Enforcement
    kind: str
    run: Callable[[RequestAttributes], RuleResult]

    def evaluate(self, attributes: RequestAttributes) -> tuple[RuleResult, Verdict | None]:
        """What the rule says of the request, and as a verdict; None if it has nothing to say."""
        result = self.run(attributes)
        if result.outcome == "skip":
            return result, None
        enforcement = on_error(self.enforcement, attributes) if result.outcome == "error" else self.enforcement
        return result, Verdict(self.policy, self.rule, enforcement, result.outcome, result.message)


def on_error(enforcement: Enforcement, attributes: RequestAttributes) -> Enforcement:
    """What an expression that fails leads to: a template lacks what defaulting gives its pods, so it is not refused.

    The pods themselves are judged again when they are created.
    """
    return Enforcement.WARN if attributes.template else enforcement


def compile_rule(policy: PriorityPolicy, rule: PriorityRule, twins: Twins) -> list[CompiledRule]:
    """Compile `priorityClasses` and `validate`; the other bodies are not for validation or are compiled apart.

    Raises CelError for an expression that does not compile, which loading has found before.
    """
    if rule.priority_classes is not None:
        return [_compiled(policy, rule, PODS, _classes(rule.priority_classes, f"{policy.name}/{rule.name}", twins))]
    if rule.validate is not None:
        run = _validate(rule.validate, f"{policy.name}/{rule.name}")
        return [_compiled(policy, rule, kind, run) for kind in rule.validate.resources]
    return []


def compile_use(policy: PriorityPolicy, rule: PriorityRule, reserve: Reserve) -> CompiledRule:
    """Compile who may use a reserved range, to be run on pods whose priority lies in it."""
    may, who = anyone_of(reserve.use), rights_text(reserve.use)
    by_subject = any(right.subjects for right in reserve.use)

    def run(attributes: RequestAttributes) -> RuleResult:
        if not attributes.priority_changed:
            return RuleResult("skip", "the priority does not change")
        if may(attributes):
            return _ALLOW
        hint = REGARDLESS if by_subject and attributes.by_service_account else ""
        by = f" (PriorityClass {quoted(attributes.class_name)})" if attributes.class_name else ""
        return RuleResult(
            "deny",
            f"priority {attributes.value}{by} lies in the range {reserve.from_} to {reserve.to}, which rule"
            f" {policy.name}/{rule.name} reserves for {who}{hint};"
            " choose a PriorityClass with a value outside that range",
        )

    return _compiled(policy, rule, PODS, run)


def compile_define(policy: PriorityPolicy, rule: PriorityRule, reserve: Reserve) -> CompiledRule:
    """Compile who may define classes in a reserved range, to be run on PriorityClasses whose value lies in it."""
    may, who = definers(reserve.define), definers_text(reserve.define)

    def run(attributes: RequestAttributes) -> RuleResult:
        if not attributes.definition_changed:
            return RuleResult("skip", "the class does not change")
        if may(attributes):
            return _ALLOW
        return RuleResult(
            "deny",
            f"value {attributes.value} of PriorityClass {quoted(attributes.name)} lies in the range {reserve.from_} to"
            f" {reserve.to}, which rule {policy.name}/{rule.name} reserves: classes there may be defined by {who};"
            f" choose a value outside that range",
        )

    return _compiled(policy, rule, CLASSES, run)


def _compiled(
    policy: PriorityPolicy, rule: PriorityRule, kind: str, run: Callable[[RequestAttributes], RuleResult]
) -> CompiledRule:
    return CompiledRule(policy.name, rule.name, rule.enforcement, kind, run)


def _classes(body: PriorityClasses, rule_id: str, twins: Twins) -> Callable[[RequestAttributes], RuleResult]:
    """A twin counts as the class whose pods it takes: the webhook moved the pod, not its author."""
    denied = name_matcher(body.deny)
    allowed = name_matcher(body.allow) if body.allow is not None else None
    what = classes_text(body)

    def run(attributes: RequestAttributes) -> RuleResult:
        if not attributes.priority_changed:
            return RuleResult("skip", "the PriorityClass does not change")
        name = attributes.class_name
        if not name:
            return RuleResult("skip", "the pod has no PriorityClass")
        names = (name, *twins.get(name, ()))
        if not any(map(denied, names)) and (allowed is None or any(map(allowed, names))):
            return _ALLOW
        where = f" in namespace {attributes.request.namespace}" if attributes.request.namespace else ""
        return RuleResult("deny", f"PriorityClass {quoted(name)} may not be used{where}: rule {rule_id} {what}")

    return run


def _validate(body: Validate, rule_id: str) -> Callable[[RequestAttributes], RuleResult]:
    """A `validate` body: an expression that fails is an error, one that is false a refusal."""
    expression = compile_bool(body.expression)
    words = compile_text(body.message_expression) if body.message_expression else None

    def run(attributes: RequestAttributes) -> RuleResult:
        try:
            if expression.holds(attributes.inputs):
                return _ALLOW
        except CelRuntimeError as error:
            return RuleResult(
                "error", f"rule {rule_id} could not be evaluated: expression {expression.text!r}: {error}"
            )
        return RuleResult("deny", f"{_message(body, words, attributes)} (rule {rule_id})")

    return run


def _message(body: Validate, words: Program | None, attributes: RequestAttributes) -> str:
    """What the author is told; a messageExpression that fails must not hide that the rule is violated."""
    if words is not None:
        try:
            return words.words(attributes.inputs)
        except CelRuntimeError:
            pass
    return body.message or f"the expression {body.expression!r} is false"
