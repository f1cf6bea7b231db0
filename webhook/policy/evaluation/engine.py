"""The engine: policies compiled once, immutable, asked for every request. It has no clock and no memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from webhook.policy.evaluation.attributes import CLASSES, PODS, RequestAttributes, observe
from webhook.policy.evaluation.compiled_policy import Applicability, CompiledPolicy, Kinds
from webhook.policy.evaluation.index import MatchIndex, RangeIndex
from webhook.policy.evaluation.managed_classes import Managed, ManagedClasses
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.rules import CompiledRule
from webhook.policy.evaluation.shield import changes, shield_verdicts
from webhook.policy.evaluation.tracing import explain
from webhook.policy.evaluation.verdict import RuleResult, RuleTrace, Verdict
from webhook.policy.model import CAN_BE_PREEMPTED, PROTECTION_DURATION, Policies, PreemptionPolicy

__all__ = ["Engine", "Managed", "RuleTrace", "Verdict", "originals", "shielded"]


_KINDS: tuple[Kinds, ...] = ("pods", "priorityclasses", "shield", "default", "copy")


class RuleEvaluation:
    """The course of judging one request: which policies concern it, asked once each, and the verdicts so far."""

    __slots__ = ("_applicabilities", "_run", "attributes", "verdicts")

    def __init__(self, attributes: RequestAttributes) -> None:
        self.attributes = attributes
        self.verdicts: list[Verdict] = []
        self._applicabilities: dict[str, Applicability] = {}
        self._run: list[tuple[CompiledRule, RuleResult]] = []

    def concerns(self, policy: CompiledPolicy) -> bool:
        """Whether the policy applies; a condition that cannot be evaluated becomes a verdict, once."""
        if policy.name not in self._applicabilities:
            applicability = policy.applicability(self.attributes)
            self._applicabilities[policy.name] = applicability
            if isinstance(applicability, Verdict):
                self.verdicts.append(applicability)
        return self._applicabilities[policy.name] is None

    def run(self, rule: CompiledRule) -> None:
        """Run a rule of a policy that applies."""
        result, verdict = rule.evaluate(self.attributes)
        self._run.append((rule, result))
        if verdict is not None:
            self.verdicts.append(verdict)

    def results(self) -> dict[str, RuleResult]:
        """What the rules said that were run, by `policy/rule`."""
        return {f"{rule.policy}/{rule.rule}": result for rule, result in self._run}


class Engine:
    """Every rule of a set of policies, ready to judge.

    Policies apply in the order of files and documents. Cost grows with the rules that could match a request,
    hardly with those that could not.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self._twins = originals(policies.preemption)
        self._compiled = [CompiledPolicy(policy, self._twins) for policy in policies.priority]
        self._indexes = _index(self._compiled)
        self._ranges: dict[str, RangeIndex[tuple[CompiledPolicy, CompiledRule]]] = {
            PODS: RangeIndex(row for one in self._compiled for row in one.uses),
            CLASSES: RangeIndex(row for one in self._compiled for row in one.defines),
        }
        self.shielded = shielded(policies.preemption)
        """The annotation keys that nobody may change on an existing pod unless a policy gives the right."""
        self._protected = self.shielded.union(*(shield.keys for one in self._compiled for shield in one.shields))
        self.asks_who = any(one.asks_who for one in self._compiled)
        """Whether any policy may judge a workload's author and the controller that makes its pods differently."""
        self.copied = frozenset(key for one in self._compiled for key, _ in one.copies)
        """The annotation keys that some policy copies from classes to pods."""
        classes = ManagedClasses(policies.preemption)
        self.managed = classes.managed
        self.managed_if_generated = classes.managed_if_generated
        self._excepting = {one.name: one for one in self._compiled if one.policy.exceptions}

    def default_priority_class(self, request: PolicyRequest) -> tuple[str, str] | None:
        """The class for a new pod, or one that a template describes, that names none, and the id of the rule.

        The first rule wins.
        """
        attributes = observe(request)
        if isinstance(attributes, str) or not _new_pod(attributes) or attributes.names_class:
            return None
        for policy in self._indexes["default"].candidates(attributes):
            if policy.defaults and policy.gives(attributes):
                name, rule = policy.defaults[0]
                return name, rule
        return None

    def annotations_to_copy(self, request: PolicyRequest) -> list[tuple[str, str]]:
        """The annotations a new pod takes over from its PriorityClass if it has none, each with its rule's id.

        What the pod itself says is left to the caller, as is whether the class has the annotation.
        """
        attributes = observe(request)
        if isinstance(attributes, str) or not _new_pod(attributes) or attributes.template:
            return []
        copied: dict[str, str] = {}
        for policy in self._indexes["copy"].candidates(attributes):
            if policy.gives(attributes):
                for key, rule in policy.copies:
                    copied.setdefault(key, rule)
        return list(copied.items())

    def judge(self, request: PolicyRequest, trace: list[RuleTrace] | None = None) -> list[Verdict]:
        """What every rule that applies says of the request; `trace` takes all rules with why and why not.

        Raises AllowanceError if the expressions may take longer than the request allows.
        """
        attributes = observe(request)
        if isinstance(attributes, str):
            if trace is not None:
                trace.append(RuleTrace("", "", applied=False, outcome="skip", why=attributes))
            return []
        evaluation = RuleEvaluation(attributes)
        self._by_match(evaluation)
        self._by_value(evaluation)
        if attributes.kind == PODS:
            self._by_annotation(evaluation)
        self._except(evaluation)
        if trace is not None:
            trace += explain(attributes, evaluation.verdicts, evaluation.results(), self._compiled)
        return evaluation.verdicts

    def judge_annotations(self, request: PolicyRequest) -> list[Verdict]:
        """What the rules about protected annotations, and no others, say of an update."""
        attributes = observe(request)
        if isinstance(attributes, str):
            return []
        evaluation = RuleEvaluation(attributes)
        self._by_annotation(evaluation)
        self._except(evaluation)
        return evaluation.verdicts

    def _except(self, evaluation: RuleEvaluation) -> None:
        """Let in whom an exception names. A condition that failed has no rule, so no exception is about it."""
        for place, verdict in enumerate(evaluation.verdicts):
            if verdict.policy in self._excepting:
                policy = self._excepting[verdict.policy]
                evaluation.verdicts[place] = policy.after_exceptions(verdict, evaluation.attributes)

    def _by_match(self, evaluation: RuleEvaluation) -> None:
        kind = evaluation.attributes.kind
        for policy in self._indexes[kind].candidates(evaluation.attributes):
            if policy.rules[kind] and evaluation.concerns(policy):
                for rule in policy.rules[kind]:
                    evaluation.run(rule)

    def _by_value(self, evaluation: RuleEvaluation) -> None:
        value = evaluation.attributes.value
        if value is not None:
            for policy, rule in self._ranges[evaluation.attributes.kind].holding(value):
                if evaluation.concerns(policy):
                    evaluation.run(rule)

    def _by_annotation(self, evaluation: RuleEvaluation) -> None:
        attributes = evaluation.attributes
        changed = changes(attributes, self._protected)
        if changed:
            concerned = filter(evaluation.concerns, self._indexes["shield"].candidates(attributes))
            shields = [shield for policy in concerned for shield in policy.shields]
            evaluation.verdicts += shield_verdicts(attributes, changed, shields, self.shielded)


def _new_pod(attributes: RequestAttributes) -> bool:
    return attributes.kind == PODS and attributes.operation == "CREATE"


def _index(policies: list[CompiledPolicy]) -> dict[str, MatchIndex[CompiledPolicy]]:
    """One index for each question; a policy stands only if it has something to say."""
    indexes: dict[str, MatchIndex[CompiledPolicy]] = {name: MatchIndex() for name in _KINDS}
    for policy in policies:
        for name in policy.kinds:
            indexes[name].add(policy.policy.match, policy)
    return indexes


def originals(policies: Iterable[PreemptionPolicy]) -> dict[str, tuple[str, ...]]:
    """The classes whose pods are moved to a twin, by the twin's name."""
    originals: dict[str, list[str]] = defaultdict(list)
    for policy in policies:
        for original, twin in policy.preemptors.twins.items():
            originals[twin].append(original)
    return {twin: tuple(names) for twin, names in originals.items()}


def shielded(policies: Iterable[PreemptionPolicy]) -> frozenset[str]:
    """The annotation keys by which the reconciler judges whether a pod may be evicted."""
    keys = {CAN_BE_PREEMPTED, PROTECTION_DURATION}
    for policy in policies:
        keys.update(policy.victims.annotations.preemptible, policy.victims.annotations.protection)
    return frozenset(keys)
