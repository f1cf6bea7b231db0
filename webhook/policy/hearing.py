"""One request before the engine: which policies concern it, asked once each, and the verdicts so far."""

from __future__ import annotations

from webhook.policy.compiling import CompiledPolicy, Standing
from webhook.policy.facts import Facts
from webhook.policy.rules import Compiled
from webhook.policy.verdict import Ruling, Verdict

__all__ = ["Hearing"]


class Hearing:
    """The course of judging one request."""

    __slots__ = ("facts", "rulings", "standings", "verdicts")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.verdicts: list[Verdict] = []
        self.standings: dict[str, Standing] = {}
        self.rulings: dict[str, Ruling] = {}

    def concerns(self, policy: CompiledPolicy) -> bool:
        """Whether the policy applies; a condition that cannot be evaluated becomes a verdict, once."""
        if policy.name not in self.standings:
            standing = policy.standing(self.facts)
            self.standings[policy.name] = standing
            if isinstance(standing, Verdict):
                self.verdicts.append(standing)
        return self.standings[policy.name] is None

    def run(self, rule: Compiled) -> None:
        """Run a rule of a policy that applies."""
        ruling = rule.run(self.facts)
        self.rulings[rule.id] = ruling
        verdict = rule.verdict(ruling, self.facts)
        if verdict is not None:
            self.verdicts.append(verdict)
