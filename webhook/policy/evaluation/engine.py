"""The engine: policies compiled once, immutable, asked for every request. It has no clock and no memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from webhook.kube.bounded import bounded_cache
from webhook.policy.cel.program import CelRuntimeError, compile_bool
from webhook.policy.evaluation import rules
from webhook.policy.evaluation.managed_classes import ManagedClasses, originals, scale_up_delay, shielded
from webhook.policy.evaluation.matching import exclusion, parts_of
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS, PolicyRequest, RequestAttributes, observe
from webhook.policy.evaluation.rules import CompiledRule, Shield, Twins, Verdict
from webhook.policy.model.creation import creation_record, labels_recorded
from webhook.policy.model.globs import WILDCARD, name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import STRICTNESS, Enforcement
from webhook.policy.model.values import POD_SCALE_UP_DELAY

Applicability = str | Verdict | None
"""None: the policy applies. Else why it does not, or the verdict on a condition that could not be evaluated."""

_KEPT = 1024
"""Namespaces and values asked about last, of which it is known what concerns them, so that it costs one look-up."""


class CompiledPolicy:
    """One PriorityPolicy ready to run: when it applies, and its rules sorted by the question they answer.

    Raises CelError for expressions that loading would have refused.
    """

    def __init__(self, policy: PriorityPolicy, twins: Twins) -> None:
        self.policy = policy
        self.name = policy.name
        self.named = name_matcher(policy.match.namespaces or (WILDCARD,))
        """Whether `match` names a namespace."""
        exclude = exclusion(policy.exclude)
        self._restricts = parts_of(policy.match) + exclude
        self._gives = parts_of(policy.match, gives=True) + exclude
        self._strictest = max(
            (rule.enforcement for rule in policy.rules), key=STRICTNESS.index, default=Enforcement.WARN
        )
        self.exceptions = [(exception, exclusion(exception.match)) for exception in policy.exceptions]
        self._conditions = [(row.name, compile_bool(row.expression)) for row in policy.conditions]
        self.rows: dict[str, list[Any]] = defaultdict(list)
        """What it has to say on each question: compiled rules, or what is given."""
        for rule in policy.rules:
            kind, body = rule.body
            for question, compiled in rules.KINDS[kind](policy, rule, body, twins):
                self.rows[question].append(compiled)
                if question == PODS and rule.declaration.judges_groups:
                    self.rows[GROUPS].append(compiled)

    def matches(self, attributes: RequestAttributes, *, gives: bool = False) -> str | None:
        """None if `match` and `exclude` hold; else the first reason why not."""
        tests = self._gives if gives else self._restricts
        return next((reason for test in tests if (reason := test(attributes)) is not None), None)

    def applicability(self, attributes: RequestAttributes, *, gives: bool = False) -> Applicability:
        """Whether the policy applies to the request: the first test or condition that does not hold says why not.

        A condition that is false decides before one that cannot be
        evaluated (`matchconditions/matcher.go`).
        """
        reason = self.matches(attributes, gives=gives)
        if reason is not None:
            return reason
        failed: Verdict | None = None
        for name, program in self._conditions:
            try:
                if not program.holds(attributes.inputs):
                    return f"condition {name} is false"
            except CelRuntimeError as error:
                text = f"condition {name} of policy {self.name} {rules.failed_text(program, error)}"
                failed = failed or Verdict(self.name, name, rules.on_error(self._strictest, attributes), "error", text)
        return failed


class RuleEvaluation:
    """The course of judging one request: which policies concern it, asked once each, and the verdicts so far."""

    __slots__ = ("_applicabilities", "attributes", "verdicts")

    def __init__(self, attributes: RequestAttributes) -> None:
        self.attributes = attributes
        self.verdicts: list[Verdict] = []
        """Those of rules that were run and have nothing to say included."""
        self._applicabilities: dict[str, Applicability] = {}

    def concerns(self, policy: CompiledPolicy) -> bool:
        """Whether the policy applies; a condition that cannot be evaluated is a verdict, once."""
        if policy.name not in self._applicabilities:
            applicability = policy.applicability(self.attributes)
            self._applicabilities[policy.name] = applicability
            if isinstance(applicability, Verdict):
                self.verdicts.append(applicability)
        return self._applicabilities[policy.name] is None

    def explain(self, policies: Iterable[CompiledPolicy]) -> Iterator[Verdict]:
        """What every rule says, in the order of the files, or why it was not asked; the built-in one last.

        For `--explain`, not for speed.
        """
        said, attributes = {verdict.id: verdict for verdict in self.verdicts}, self.attributes
        makes_pod = attributes.kind == PODS and not attributes.template and attributes.operation == "CREATE"
        for policy in policies:
            applicability = policy.applicability(attributes)
            if isinstance(applicability, Verdict):
                yield applicability
                applicability = applicability.message
            for rule in policy.policy.rules:
                had_part, why = False, applicability or "it says nothing of this request"
                default, own = rule.default_priority_class, attributes.class_name
                if not applicability and rule.declaration.range is not None:
                    why = f"{attributes.value} does not lie in {rule.declaration.title}"
                elif not applicability and makes_pod and default is not None:
                    had_part, why = (
                        default == own,
                        f"the pod has PriorityClass {own or 'none'}; the default is {default}",
                    )
                elif not applicability and makes_pod and rule.copy_annotations:
                    had_part, why = (
                        True,
                        f"a new pod takes over {', '.join(rule.copy_annotations)} from its PriorityClass",
                    )
                unheard = Verdict(policy.name, rule.name, rule.enforcement, "allow" if had_part else "skip", why)
                yield said.get(unheard.id, unheard)
        nobody = "no protected annotation changes without the right to it"
        yield said.get(
            f"{rules.BUILTIN}/{rules.SHIELD}", Verdict(rules.BUILTIN, rules.SHIELD, Enforcement.ENFORCE, "skip", nobody)
        )


class Engine:
    """Every rule of a set of policies, ready to judge.

    Policies apply in the order of files and documents. Cost grows with the policies, but for those that are for other
    namespaces by name, and with the rules of those that apply.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        twins = originals(policies.preemption)
        self._compiled = [CompiledPolicy(policy, twins) for policy in policies.priority]
        self._asked = bounded_cache(_KEPT, 256)(partial(_of_namespace, self._compiled))
        self._ranges = bounded_cache(_KEPT, 256)(partial(_holding, self._compiled))
        self.shielded = shielded(policies.preemption)
        """The annotations that nobody may change on an existing pod without a right by a policy."""
        shields = [shield for compiled in self._compiled for shield in compiled.rows[rules.PROTECT]]
        self._protected = {
            kind: builtin.union(*(shield.keys for shield in shields if shield.kind == kind))
            for kind, builtin in ((PODS, self.shielded), (CLASSES, frozenset[str]()))
        }
        self.asks_who = any(policy.asks_who for policy in policies.priority)
        """Whether any policy may judge a workload's author and the controller that makes its pods differently."""
        waits = any(scale_up_delay(policy.preemptors) for policy in policies.preemption)
        self.copied = frozenset(key for compiled in self._compiled for key, _ in compiled.rows[rules.COPY])
        self.copied |= {POD_SCALE_UP_DELAY} if waits else set()
        """The annotation keys that some policy gives new pods: copies from their classes, or how long nodes wait."""
        self._labels_recorded = labels_recorded(policies.preemption)
        classes = ManagedClasses(policies.preemption)
        self.managed = classes.managed
        self.managed_if_generated = classes.managed_if_generated
        self._exceptions = {compiled.name: compiled.exceptions for compiled in self._compiled if compiled.exceptions}

    def creation_record(self, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> str | None:
        """The record of what a new pod says (`webhook.policy.model.creation`), if a policy needs it."""
        keys = self._labels_recorded
        return None if keys is None else creation_record(labels or {}, annotations or {}, keys)

    def default_priority_class(self, request: PolicyRequest) -> tuple[str, str] | None:
        """The class for a new pod, or one that a template describes, that names none, and the id of the rule.

        The first rule wins.
        """
        return next(self._given(rules.DEFAULT, request), None)

    def annotations_to_copy(self, request: PolicyRequest) -> list[tuple[str, str]]:
        """The annotations a new pod takes over from its PriorityClass if it has none, each with its rule's id.

        What the pod itself says is left to the caller, as is whether the class has the annotation.
        """
        copied: dict[str, str] = {}
        for key, rule in self._given(rules.COPY, request):
            copied.setdefault(key, rule)
        return list(copied.items())

    def _given(self, question: str, request: PolicyRequest) -> Iterator[tuple[str, str]]:
        """What policies fill in for a new pod; a condition that cannot be evaluated counts as not met.

        What gives is part of what applies, so `match` need not be asked as well.
        """
        attributes = observe(request)
        if isinstance(attributes, str) or attributes.kind != PODS or attributes.operation != "CREATE":
            return
        if attributes.names_class if question == rules.DEFAULT else attributes.template:
            return
        for policy in self._asked(question, attributes.namespace):
            if policy.applicability(attributes, gives=True) is None:
                yield from policy.rows[question]

    def judge(self, request: PolicyRequest, trace: list[Verdict] | None = None) -> list[Verdict]:
        """What every rule that applies says of the request; `trace` takes all rules with why and why not.

        Raises AllowanceError if the expressions may take longer than the request allows.
        """
        attributes = observe(request)
        if isinstance(attributes, str):
            if trace is not None:
                trace.append(Verdict("", "", Enforcement.AUDIT, "skip", attributes))
            return []
        evaluation = RuleEvaluation(attributes)
        for policy in self._asked(attributes.question, attributes.namespace):
            if evaluation.concerns(policy):
                evaluation.verdicts += [rule.evaluate(attributes) for rule in policy.rows[attributes.question]]
        if attributes.value is not None:
            for policy, rule in self._ranges(rules.USE if attributes.kind == PODS else rules.DEFINE, attributes.value):
                # An owner is as good as a deletion, of which conditions are not asked
                if evaluation.concerns(policy) or (attributes.gains_owner and policy.matches(attributes) is None):
                    evaluation.verdicts.append(rule.evaluate(attributes))
        if attributes.question in self._protected:
            self._judge_annotations(evaluation)
        verdicts = self._after_exceptions(evaluation)
        if trace is not None:
            trace += evaluation.explain(self._compiled)
        return verdicts

    def judge_annotations(self, request: PolicyRequest) -> list[Verdict]:
        """What the rules about protected annotations, and no others, say of an update, of a pod that goes as well."""
        attributes = observe(request, until_gone=True)
        if isinstance(attributes, str):
            return []
        evaluation = RuleEvaluation(attributes)
        self._judge_annotations(evaluation)
        return self._after_exceptions(evaluation)

    def judge_going(self, request: PolicyRequest) -> list[Verdict]:
        """What the rules about who may define and annotate classes, and no expression, say of one that is to go."""
        evaluation = RuleEvaluation(
            RequestAttributes(request, CLASSES, request.object, request.old_object),
        )
        attributes = evaluation.attributes
        for policy, rule in self._ranges(rules.DEFINE, attributes.value) if attributes.value is not None else ():
            if policy.matches(attributes) is None:
                evaluation.verdicts.append(rule.evaluate(attributes))
        if request.operation == "UPDATE":
            self._judge_annotations(evaluation)
        return self._after_exceptions(evaluation)

    def _judge_annotations(self, evaluation: RuleEvaluation) -> None:
        attributes = evaluation.attributes
        changed = attributes.annotation_changes(self._protected[attributes.kind])
        if changed:
            shields = [
                shield
                for policy in self._asked(rules.PROTECT, attributes.namespace)
                for shield in policy.rows[rules.PROTECT]
                if shield.kind == attributes.kind and any(shield.speaks(key, attributes.operation) for key in changed)
                if evaluation.concerns(policy)
            ]
            builtin = self.shielded if attributes.kind == PODS else frozenset[str]()
            elsewhere = partial(self._shields_elsewhere, attributes)
            evaluation.verdicts += rules.shield_verdicts(attributes, changed, shields, builtin, elsewhere)

    def _shields_elsewhere(self, attributes: RequestAttributes) -> Iterator[tuple[Shield, str]]:
        """The shields of policies that do not apply, with why not."""
        for policy in self._compiled:
            if policy.rows[rules.PROTECT] and isinstance(why := policy.applicability(attributes), str):
                yield from ((shield, why) for shield in policy.rows[rules.PROTECT])

    def _after_exceptions(self, evaluation: RuleEvaluation) -> list[Verdict]:
        """What the rules say that have something to say, after letting in whom an exception names.

        A condition that failed has no rule, so no exception is about it.
        """
        for place, verdict in enumerate(evaluation.verdicts if self._exceptions else ()):
            for exception, tests in self._exceptions.get(verdict.policy, ()) if verdict.violated else ():
                open_ = verdict.rule in exception.rules and evaluation.attributes.request.now < exception.until
                if open_ and any(test(evaluation.attributes) for test in tests):
                    text = rules.excepted_text(verdict.id, exception, verdict.message)
                    evaluation.verdicts[place] = replace(verdict, outcome="excepted", message=text)
                    break
        return [verdict for verdict in evaluation.verdicts if verdict.outcome != "skip"]


def _of_namespace(policies: list[CompiledPolicy], question: str, namespace: str | None) -> list[CompiledPolicy]:
    """The policies that a question about a namespace concerns, or about a class, which is in none."""
    rows = [policy for policy in policies if policy.rows[question]]
    return rows if namespace is None else [policy for policy in rows if policy.named(namespace)]


def _holding(policies: list[CompiledPolicy], question: str, value: int) -> list[tuple[CompiledPolicy, CompiledRule]]:
    """The rules about the use or definition of a value, each with its policy, by their ranges."""
    ranges = [(rule.range, policy, rule) for policy in policies for rule in policy.rows[question]]
    return [row[1:] for row in sorted(ranges, key=lambda row: row[0]) if row[0][0] <= value <= row[0][1]]
