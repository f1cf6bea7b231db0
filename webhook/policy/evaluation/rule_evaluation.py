"""One request before the engine: which policies concern it, asked once each, and the verdicts so far."""

from __future__ import annotations

from webhook.policy.evaluation.attributes import RequestAttributes
from webhook.policy.evaluation.compiled_policy import Applicability, CompiledPolicy
from webhook.policy.evaluation.rules import Compiled
from webhook.policy.evaluation.verdict import RuleResult, Verdict

__all__ = ["RuleEvaluation"]


class RuleEvaluation:
    """The course of judging one request."""

    __slots__ = ("applicabilities", "attributes", "results", "verdicts")

    def __init__(self, attributes: RequestAttributes) -> None:
        self.attributes = attributes
        self.verdicts: list[Verdict] = []
        self.applicabilities: dict[str, Applicability] = {}
        self.results: dict[str, RuleResult] = {}

    def concerns(self, policy: CompiledPolicy) -> bool:
        """Whether the policy applies; a condition that cannot be evaluated becomes a verdict, once."""
        if policy.name not in self.applicabilities:
            applicability = policy.applicability(self.attributes)
            self.applicabilities[policy.name] = applicability
            if isinstance(applicability, Verdict):
                self.verdicts.append(applicability)
        return self.applicabilities[policy.name] is None

    def run(self, rule: Compiled) -> None:
        """Run a rule of a policy that applies."""
        result = rule.run(self.attributes)
        self.results[rule.id] = result
        verdict = rule.verdict(result, self.attributes)
        if verdict is not None:
            self.verdicts.append(verdict)
