"""Every rule of every policy, and why it did or did not apply to a request: for `--explain`, not for speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.policy.evaluation.attributes import CLASSES, PODS, RequestAttributes
from webhook.policy.evaluation.compiled_policy import CompiledPolicy
from webhook.policy.evaluation.rule_evaluation import RuleEvaluation
from webhook.policy.evaluation.shield import BUILTIN, SHIELD
from webhook.policy.evaluation.verdict import RuleTrace, Verdict
from webhook.policy.model import PriorityRule, Reserve

__all__ = ["explain"]


def explain(evaluation: RuleEvaluation, policies: Iterable[CompiledPolicy]) -> Iterator[RuleTrace]:
    """One row for each rule, in the order of the files; the built-in shield last."""
    said = {verdict.id: verdict for verdict in evaluation.verdicts}
    for policy in policies:
        applicability = policy.applicability(evaluation.attributes)
        for rule in policy.policy.rules:
            yield _row(evaluation, policy, rule, applicability, said.get(f"{policy.name}/{rule.name}"))
    shield = said.get(f"{BUILTIN}/{SHIELD}")
    why = shield.message if shield else "no protected annotation changes without the right to it"
    yield RuleTrace(BUILTIN, SHIELD, shield is not None, shield.outcome if shield else "skip", why)


def _row(
    evaluation: RuleEvaluation,
    policy: CompiledPolicy,
    rule: PriorityRule,
    applicability: str | Verdict | None,
    verdict: Verdict | None,
) -> RuleTrace:
    if verdict is not None:
        return RuleTrace(policy.name, rule.name, True, verdict.outcome, verdict.message or "it allows the request")
    if isinstance(applicability, Verdict):
        return RuleTrace(policy.name, rule.name, False, "error", applicability.message)
    if applicability is not None:
        return RuleTrace(policy.name, rule.name, False, "skip", applicability)
    result = evaluation.results.get(f"{policy.name}/{rule.name}")
    if result is not None:
        return RuleTrace(policy.name, rule.name, False, "skip", result.message)
    applied, why = _unasked(rule, evaluation.attributes)
    return RuleTrace(policy.name, rule.name, applied, "allow" if applied else "skip", why)


def _unasked(rule: PriorityRule, attributes: RequestAttributes) -> tuple[bool, str]:
    """Whether a rule that gives no verdict had a part in the request, and why."""
    if rule.reserve is not None:
        return False, _outside(rule.reserve, attributes)
    if rule.protect_annotations is not None:
        return False, "no annotation it protects changes"
    if rule.validate is not None:
        return False, f"it is about {', '.join(rule.validate.resources)}"
    if attributes.kind == CLASSES:
        return False, "it is about pods"
    if attributes.template or attributes.operation != "CREATE":
        return False, "it acts when a pod is created"
    if rule.default_priority_class is not None:
        given = attributes.class_name == rule.default_priority_class
        own = attributes.class_name or "none"
        return given, f"the pod has PriorityClass {own}; the default is {rule.default_priority_class}"
    return True, f"a new pod takes over {', '.join(rule.copy_annotations or ())} from its PriorityClass"


def _outside(reserve: Reserve, attributes: RequestAttributes) -> str:
    what = "priority" if attributes.kind == PODS else "value"
    return f"{what} {attributes.value} does not lie in {reserve.from_} to {reserve.to}"
