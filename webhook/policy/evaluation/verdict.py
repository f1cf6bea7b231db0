"""What the engine says of a request: verdicts for everyone, and a trace for whoever asks why."""

from __future__ import annotations

from typing import Literal

import msgspec

from webhook.policy.model import Enforcement

__all__ = ["Outcome", "RuleResult", "RuleTrace", "Verdict"]

Outcome = Literal["allow", "deny", "error", "excepted", "skip"]
"""`error`: an expression failed, which denies under `enforce` and warns otherwise. `excepted`: the rule is violated,
and an exception of its policy lets the request in. `skip` appears in traces alone."""


class RuleResult(msgspec.Struct, frozen=True):
    """What one rule says of one request; `message` gives the reason unless the outcome is `allow`."""

    outcome: Outcome
    message: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What one rule said, and what follows from it by its enforcement."""

    policy: str
    rule: str
    enforcement: Enforcement
    outcome: Literal["allow", "deny", "error", "excepted"]
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
        """Whether the author is warned: of a violation under `warn`, an error under `warn` or `audit`, an exception."""
        if self.outcome == "excepted":
            return self.enforcement is not Enforcement.AUDIT
        if self.outcome == "deny":
            return self.enforcement is Enforcement.WARN
        return self.outcome == "error" and self.enforcement is not Enforcement.ENFORCE

    @property
    def silent(self) -> bool:
        """Whether the rule is violated and neither the author nor the API server hears of it: under `audit`."""
        return self.violated and not (self.denies or self.warns)


class RuleTrace(msgspec.Struct, frozen=True):
    """One line of a trace: a rule, whether it applied, and why or why not."""

    policy: str
    rule: str
    applied: bool
    outcome: Outcome
    why: str
