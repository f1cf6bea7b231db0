"""One PriorityPolicy, compiled: when it applies, and its rules sorted by the question they answer."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from webhook.policy.cel.program import CelRuntimeError, compile_bool
from webhook.policy.evaluation.attributes import CLASSES, PODS, RequestAttributes
from webhook.policy.evaluation.describing import excepted_text
from webhook.policy.evaluation.matching import excluder, matcher
from webhook.policy.evaluation.requester import asks_who
from webhook.policy.evaluation.rules import CompiledRule, Twins, compile_define, compile_rule, compile_use, on_error
from webhook.policy.evaluation.shield import Shield, compile_shield
from webhook.policy.evaluation.verdict import Verdict
from webhook.policy.model import Enforcement, PriorityPolicy

__all__ = ["Applicability", "CompiledPolicy", "Kinds"]

Kinds = Literal["pods", "priorityclasses", "shield", "default", "copy"]
"""The questions: what of this pod, of this class, of these annotations; which default class, what to copy."""

Applicability = str | Verdict | None
"""None: the policy applies. Else why it does not, or the verdict on a condition that could not be evaluated."""

_STRICTNESS = (Enforcement.AUDIT, Enforcement.WARN, Enforcement.ENFORCE)


class CompiledPolicy:
    """A policy ready to run. Raises CelError for expressions that loading would have refused."""

    def __init__(self, policy: PriorityPolicy, twins: Twins) -> None:
        self.policy = policy
        self.name = policy.name
        self._match = matcher(policy.match)
        self._gives = matcher(policy.match, gives=True)
        self._exclude = excluder(policy.exclude)
        self._strictest = max(
            (rule.enforcement for rule in policy.rules), key=_STRICTNESS.index, default=Enforcement.WARN
        )
        self._exceptions = [(one, excluder(one.match)) for one in policy.exceptions]
        self._conditions = [(row.name, compile_bool(row.expression)) for row in policy.conditions]
        self.defaults: list[tuple[str, str]] = []
        self.copies: list[tuple[str, str]] = []
        self.shields: list[Shield] = []
        self.uses: list[tuple[int, int, tuple[CompiledPolicy, CompiledRule]]] = []
        self.defines: list[tuple[int, int, tuple[CompiledPolicy, CompiledRule]]] = []
        self.rules: dict[str, list[CompiledRule]] = {PODS: [], CLASSES: []}
        for rule in policy.rules:
            rule_id = f"{self.name}/{rule.name}"
            if rule.default_priority_class is not None:
                self.defaults.append((rule.default_priority_class, rule_id))
            self.copies += [(key, rule_id) for key in rule.copy_annotations or ()]
            if rule.protect_annotations is not None:
                self.shields.append(compile_shield(policy, rule, rule.protect_annotations))
            if rule.reserve is not None:
                start, end = rule.reserve.from_, rule.reserve.to
                self.uses.append((start, end, (self, compile_use(policy, rule, rule.reserve))))
                self.defines.append((start, end, (self, compile_define(policy, rule, rule.reserve))))
            for compiled in compile_rule(policy, rule, twins):
                self.rules[compiled.kind].append(compiled)

    @property
    def kinds(self) -> list[Kinds]:
        """The questions on which the policy has something to say; reserved ranges are found by value instead."""
        kinds: list[Kinds] = []
        if self.rules[PODS]:
            kinds.append("pods")
        if self.rules[CLASSES]:
            kinds.append("priorityclasses")
        if self.shields:
            kinds.append("shield")
        if self.defaults:
            kinds.append("default")
        if self.copies:
            kinds.append("copy")
        return kinds

    @property
    def asks_who(self) -> bool:
        """Whether who asks makes a difference to what the policy says of a pod: by `subjects` or by an expression."""
        return asks_who(self.policy)

    def after_exceptions(self, verdict: Verdict, attributes: RequestAttributes) -> Verdict:
        """The verdict of one of the policy's rules, or what becomes of it by an exception that has not ended."""
        if not verdict.violated:
            return verdict
        for exception, holds in self._exceptions:
            if (
                verdict.rule in exception.rules
                and attributes.request.now < exception.until
                and holds(attributes) is not None
            ):
                return replace(
                    verdict, outcome="excepted", message=excepted_text(verdict.id, exception, verdict.message)
                )
        return verdict

    def applicability(self, attributes: RequestAttributes) -> Applicability:
        """Whether the policy applies to the request."""
        return self._match(attributes) or self._exclude(attributes) or self._unmet(attributes)

    def gives(self, attributes: RequestAttributes) -> bool:
        """Whether the pod gets what the policy fills in; a condition that cannot be evaluated counts as not met.

        What gives is part of what applies, so `match` need not be asked as well.
        """
        return (self._gives(attributes) or self._exclude(attributes) or self._unmet(attributes)) is None

    def _unmet(self, attributes: RequestAttributes) -> Applicability:
        """The first condition that does not hold, or a verdict on one that could not be evaluated; None if all hold."""
        for name, program in self._conditions:
            try:
                if not program.holds(attributes.inputs):
                    return f"condition {name} is false"
            except CelRuntimeError as error:
                text = f"expression {program.text!r}: {error}"
                return Verdict(
                    policy=self.name,
                    rule=name,
                    enforcement=on_error(self._strictest, attributes),
                    outcome="error",
                    message=f"condition {name} of policy {self.name} could not be evaluated: {text}",
                )
        return None
