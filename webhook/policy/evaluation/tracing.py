"""Every rule of every policy, and why it did or did not apply to a request: for `--explain`, not for speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from webhook.policy.evaluation.attributes import CLASSES, PODS, RequestAttributes
from webhook.policy.evaluation.compiled_policy import Applicability, CompiledPolicy
from webhook.policy.evaluation.shield import BUILTIN, SHIELD
from webhook.policy.evaluation.verdict import Outcome, RuleResult, RuleTrace, Verdict
from webhook.policy.model import PriorityRule

__all__ = ["explain"]


def explain(
    attributes: RequestAttributes,
    verdicts: Iterable[Verdict],
    results: Mapping[str, RuleResult],
    policies: Iterable[CompiledPolicy],
) -> Iterator[RuleTrace]:
    """One row for each rule, in the order of the files; the built-in shield last. `results` are by `policy/rule`."""
    said = {verdict.id: verdict for verdict in verdicts}
    for policy in policies:
        applicability = policy.applicability(attributes)
        for rule in policy.policy.rules:
            rule_id = f"{policy.name}/{rule.name}"
            applied, outcome, why = _row(attributes, rule, applicability, said.get(rule_id), results.get(rule_id))
            yield RuleTrace(policy.name, rule.name, applied, outcome, why)
    shield = said.get(f"{BUILTIN}/{SHIELD}")
    why = shield.message if shield else "no protected annotation changes without the right to it"
    yield RuleTrace(BUILTIN, SHIELD, shield is not None, shield.outcome if shield else "skip", why)


def _row(
    attributes: RequestAttributes,
    rule: PriorityRule,
    applicability: Applicability,
    verdict: Verdict | None,
    result: RuleResult | None,
) -> tuple[bool, Outcome, str]:
    """Whether a rule applied, with what outcome, and why or why not."""
    if verdict is not None:
        return True, verdict.outcome, verdict.message or "it allows the request"
    if isinstance(applicability, Verdict):
        return False, "error", applicability.message
    if applicability is not None:
        return False, "skip", applicability
    if result is not None:
        return False, "skip", result.message
    applied, why = _unasked(rule, attributes)
    return applied, "allow" if applied else "skip", why


def _unasked(rule: PriorityRule, attributes: RequestAttributes) -> tuple[bool, str]:
    """Whether a rule that gives no verdict had a part in the request, and why."""
    if rule.reserve is not None:
        what = "priority" if attributes.kind == PODS else "value"
        return False, f"{what} {attributes.value} does not lie in {rule.reserve.from_} to {rule.reserve.to}"
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
