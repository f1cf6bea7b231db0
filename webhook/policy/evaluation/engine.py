"""The engine: policies compiled once, immutable, asked for every request. It has no clock and no memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from webhook.kube.bounded import bounded_cache
from webhook.policy.cel.program import CelRuntimeError, compile_bool
from webhook.policy.evaluation import rules
from webhook.policy.evaluation.matching import Test, exclusion, parts_of
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS, PolicyRequest, RequestAttributes, observe
from webhook.policy.evaluation.rules import CompiledRule, Said, Shield, Twins, Verdict
from webhook.policy.model.creation import creation_record, labels_recorded
from webhook.policy.model.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.priority import PolicyException, PriorityPolicy
from webhook.policy.model.rules import STRICTNESS, Enforcement, PriorityRule
from webhook.policy.model.values import CAN_BE_PREEMPTED, POD_SCALE_UP_DELAY, PROTECTION_DURATION

_VALUE = {PODS: rules.USE, CLASSES: rules.DEFINE}
"""What rules about ranges are asked, by what has a value."""
_KEPT = 1024
"""Namespaces and values asked about last, of which it is known what concerns them, so that it costs one look-up."""


class CompiledPolicy:
    """A PriorityPolicy ready to run, its rules by question. Raises CelError for what loading would have refused."""

    def __init__(self, policy: PriorityPolicy, twins: Twins) -> None:
        self.policy = policy
        self.name = policy.name
        self.named = name_matcher(policy.match.namespaces or (WILDCARD,))
        """Whether `match` names a namespace."""
        exclude = exclusion(policy.exclude)
        self._restricts = parts_of(policy.match) + exclude
        self._gives = parts_of(policy.match, gives=True) + exclude
        enforcements = [rule.enforcement for rule in policy.rules]
        self._strictest = max(enforcements, key=STRICTNESS.index, default=Enforcement.WARN)
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
        for test in self._gives if gives else self._restricts:
            reason = test(attributes)
            if reason is not None:
                return reason
        return None

    def applicability(self, attributes: RequestAttributes, *, gives: bool = False) -> str | Verdict | None:
        """None if the policy applies; else why not, or the verdict on a condition that fails.

        One that is false decides before one that fails (`matchconditions/matcher.go`).
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
                enforcement = rules.on_error(self._strictest, attributes)
                failed = failed or Verdict(self.name, name, enforcement, "error", text)
        return failed


class RuleEvaluation:
    """The course of judging one request: which policies concern it, asked once each, and the verdicts so far."""

    def __init__(self, attributes: RequestAttributes) -> None:
        self.attributes = attributes
        self.verdicts: list[Verdict] = []
        """Those of rules that were run and have nothing to say included."""
        self._applicabilities: dict[str, str | Verdict | None] = {}

    def ask(self, rows: list[CompiledRule]) -> None:
        """Take what these rules say."""
        self.verdicts += [rule.evaluate(self.attributes) for rule in rows]

    def concerns(self, policy: CompiledPolicy) -> bool:
        """Whether the policy applies; a condition that fails is a verdict, once."""
        if policy.name not in self._applicabilities:
            applicability = policy.applicability(self.attributes)
            self._applicabilities[policy.name] = applicability
            if isinstance(applicability, Verdict):
                self.verdicts.append(applicability)
        return self._applicabilities[policy.name] is None


def _explained(evaluation: RuleEvaluation, policies: Iterable[CompiledPolicy]) -> Iterator[Verdict]:
    """What each rule says, or why it was not asked, for `--explain`; the built-in one last."""
    said = {verdict.id: verdict for verdict in evaluation.verdicts}
    for policy in policies:
        why = policy.applicability(evaluation.attributes)
        if isinstance(why, Verdict):
            yield why
            why = why.message
        for rule in policy.policy.rules:
            if rule.id in said:
                yield said[rule.id]
                continue
            answer: Said = ("skip", why) if why else _unheard(rule, evaluation.attributes)
            yield Verdict(policy.name, rule.name, rule.enforcement, *answer)
    nobody = "no protected annotation changes without the right to it"
    builtin = Verdict(rules.BUILTIN, rules.SHIELD, Enforcement.ENFORCE, "skip", nobody)
    yield said.get(builtin.id, builtin)


def _unheard(rule: PriorityRule, attributes: RequestAttributes) -> Said:
    """What a rule without a verdict has to do with the request, and why it has none."""
    if rule.declaration.range is not None:
        return "skip", f"{attributes.value} does not lie in {rule.declaration.title}"
    if attributes.kind == PODS and attributes.operation == "CREATE" and not attributes.template:
        default, own = rule.default_priority_class, attributes.class_name
        if default is not None:
            why = f"the pod has PriorityClass {own or 'none'}; the default is {default}"
            return "allow" if own == default else "skip", why
        if rule.copy_annotations:
            keys = ", ".join(rule.copy_annotations)
            return "allow", f"a new pod takes over {keys} from its PriorityClass"
    return "skip", "it says nothing of this request"


class Engine:
    """Every rule of a set of policies, ready to judge.

    Policies apply in the order of files and documents. Cost grows with the policies, but for those that are for other
    namespaces by name, and with the rules of those that apply.
    """

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        twins = originals(policies.preemption)
        self._compiled = [CompiledPolicy(policy, twins) for policy in policies.priority]
        self._asked = bounded_cache(_KEPT, 256)(self._concerning)
        self.shielded = shielded(policies.preemption)
        """The annotations of pods that change only by a right that a policy gives."""
        self._protected = {PODS: self.shielded, CLASSES: frozenset[str]()}
        for _, shields in self._asked(rules.PROTECT, None):
            for shield in shields:
                self._protected[shield.kind] |= shield.keys
        self.asks_who = any(policy.asks_who for policy in policies.priority)
        """Whether a policy may judge a workload's author and its controller differently."""
        self.copied = {key for _, rows in self._asked(rules.COPY, None) for key, _ in rows}
        """The annotations given to new pods: copies from their classes, or how long nodes wait."""
        if any(scale_up_delay(policy.preemptors) for policy in policies.preemption):
            self.copied.add(POD_SCALE_UP_DELAY)
        self._labels_recorded = labels_recorded(policies.preemption)
        classes = ManagedClasses(policies.preemption)
        self.managed = classes.managed
        self.managed_if_generated = classes.managed_if_generated
        self._exceptions: dict[str, list[tuple[PolicyException, list[Test]]]] = defaultdict(list)
        """Whom each rule lets in, by its id."""
        for policy, exception in policies.exceptions:
            tests = exclusion(exception.match)
            for rule in exception.rules:
                self._exceptions[f"{policy.name}/{rule}"].append((exception, tests))

    def _concerning(
        self, question: str, namespace: str | None, value: int | None = None
    ) -> list[tuple[CompiledPolicy, list[Any]]]:
        """What policies say on a question, without those for other namespaces by name or other values."""
        concerned = []
        for policy in self._compiled:
            rows = policy.rows[question]
            if question in _VALUE.values():
                rows = [] if value is None else [rule for rule in rows if value in rule.values]
            if rows and (namespace is None or policy.named(namespace)):
                concerned.append((policy, rows))
        return concerned

    def creation_record(self, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> str | None:
        """The record of a new pod (`webhook.policy.model.creation`), if a policy needs it."""
        keys = self._labels_recorded
        return None if keys is None else creation_record(labels or {}, annotations or {}, keys)

    def default_priority_class(self, request: PolicyRequest) -> tuple[str, str] | None:
        """The class for a new pod or template that names none, and the id of the rule that gives it."""
        return next(self._given(rules.DEFAULT, request), None)

    def annotations_to_copy(self, request: PolicyRequest) -> list[tuple[str, str]]:
        """The annotations that a new pod takes over if only its class has them; rules' ids."""
        copied: dict[str, str] = {}
        for key, rule in self._given(rules.COPY, request):
            copied.setdefault(key, rule)
        return list(copied.items())

    def _given(self, question: str, request: PolicyRequest) -> Iterator[tuple[str, str]]:
        """What policies that apply, as what gives, fill in for a new pod; all conditions hold."""
        attributes = observe(request)
        if isinstance(attributes, str) or attributes.kind != PODS:
            return
        has_it = attributes.names_class if question == rules.DEFAULT else attributes.template
        if attributes.operation != "CREATE" or has_it:
            return
        for policy, rows in self._asked(question, attributes.namespace):
            if policy.applicability(attributes, gives=True) is None:
                yield from rows

    def judge(self, request: PolicyRequest, trace: list[Verdict] | None = None) -> list[Verdict]:
        """What every rule that applies says; `trace` takes all, with why and why not.

        Raises AllowanceError if the expressions may take longer than the request allows.
        """
        attributes = observe(request)
        if isinstance(attributes, str):
            if trace is not None:
                trace.append(Verdict("", "", Enforcement.AUDIT, "skip", attributes))
            return []
        evaluation = RuleEvaluation(attributes)
        for policy, rows in self._asked(attributes.question, attributes.namespace):
            if evaluation.concerns(policy):
                evaluation.ask(rows)
        for policy, rows in self._asked(_VALUE[attributes.kind], None, attributes.value):
            # An owner is as good as a deletion, of which conditions are not asked
            if evaluation.concerns(policy) or (attributes.gains_owner and policy.matches(attributes) is None):
                evaluation.ask(rows)
        if attributes.question in self._protected:
            self._judge_annotations(evaluation)
        verdicts = self._after_exceptions(evaluation)
        if trace is not None:
            trace += _explained(evaluation, self._compiled)
        return verdicts

    def judge_going(self, request: PolicyRequest) -> list[Verdict]:
        """What holds also of a pod or class that is to go: who may annotate it, or define a class."""
        attributes = RequestAttributes(request, request.resource, request.object, request.old_object)
        evaluation = RuleEvaluation(attributes)
        if attributes.kind == CLASSES:
            for policy, rows in self._asked(rules.DEFINE, None, attributes.value):
                if policy.matches(attributes) is None:
                    evaluation.ask(rows)
        if request.operation == "UPDATE":
            self._judge_annotations(evaluation)
        return self._after_exceptions(evaluation)

    def _judge_annotations(self, evaluation: RuleEvaluation) -> None:
        attributes = evaluation.attributes
        changed = attributes.annotation_changes(self._protected[attributes.kind])
        if not changed:
            return
        shields: list[Shield] = []
        for policy, rows in self._asked(rules.PROTECT, attributes.namespace):
            speaking = [shield for shield in rows if shield.speaks(attributes, changed)]
            if speaking and evaluation.concerns(policy):
                shields += speaking
        builtin = self.shielded if attributes.kind == PODS else frozenset[str]()
        said = rules.shield_verdicts(attributes, changed, shields, builtin, self._shields_elsewhere)
        evaluation.verdicts += said

    def _shields_elsewhere(self, attributes: RequestAttributes) -> Iterator[tuple[Shield, str]]:
        """The shields of policies that do not apply, with why not."""
        for policy in self._compiled:
            shields = policy.rows[rules.PROTECT]
            why = policy.applicability(attributes) if shields else None
            if isinstance(why, str):
                yield from ((shield, why) for shield in shields)

    def _after_exceptions(self, evaluation: RuleEvaluation) -> list[Verdict]:
        """What the rules have to say, after exceptions; none is about a condition that failed."""
        verdicts = evaluation.verdicts
        for place, verdict in enumerate(verdicts):
            if verdict.violated:
                verdicts[place] = self._unless_excepted(verdict, evaluation.attributes)
        return [verdict for verdict in verdicts if verdict.outcome != "skip"]

    def _unless_excepted(self, verdict: Verdict, attributes: RequestAttributes) -> Verdict:
        """The verdict on a violation, which an exception may let in for a while."""
        for exception, tests in self._exceptions.get(verdict.id, ()):
            if attributes.request.now < exception.until and any(test(attributes) for test in tests):
                text = rules.excepted_text(verdict.id, exception, verdict.message)
                return replace(verdict, outcome="excepted", message=text)
        return verdict


class Managed(msgspec.Struct, frozen=True):
    """A PriorityClass that a PreemptionPolicy manages; pods of it go to `twin`, if there is one."""

    policy: PreemptionPolicy
    twin: str | None = None


_NODES_WAIT = 5.0
"""Seconds for which cluster-autoscaler leaves a marked pod to giveway by default (docs/how-to/autoscalers.md)."""


def scale_up_delay(preemptors: Preemptors) -> str:
    """The POD_SCALE_UP_DELAY of new pods as Go writes it; empty if there is none."""
    seconds = preemptors.scale_up_delay
    if seconds is None:
        seconds = _NODES_WAIT if preemptors.delay < _NODES_WAIT else 0.0
    if not seconds:
        return ""
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


class ManagedClasses:
    """Which PreemptionPolicy manages a class; the first one that names it."""

    def __init__(self, policies: Iterable[PreemptionPolicy]) -> None:
        self._policies = [(policy, name_matcher(policy.preemptors.priority_classes)) for policy in policies]

    def managed(self, priority_class_name: str) -> Managed | None:
        """The policy of this class's pods, and their twin class; none of Kubernetes' own."""
        if not priority_class_name or priority_class_name.startswith("system-"):
            return None
        for policy, named in self._policies:
            twins = policy.preemptors.twins
            if priority_class_name in twins:
                return Managed(policy, twins[priority_class_name])
            if named(priority_class_name) or priority_class_name in twins.values():
                return Managed(policy)
        return None

    def managed_if_generated(self, prefix: str) -> Managed | None:
        """The policy that may manage a PriorityClass made with this `generateName`.

        Only globs that match names with this prefix count: the API server ends the name at random.
        """
        if not prefix or prefix.startswith("system-"):
            return None
        for policy, _ in self._policies:
            names = policy.preemptors.priority_classes
            if any(WILDCARD in name and intersect(name, f"{prefix}{WILDCARD}") for name in names):
                return Managed(policy)
        return None


def originals(policies: Iterable[PreemptionPolicy]) -> dict[str, tuple[str, ...]]:
    """The classes whose pods are moved to a twin, by the twin's name."""
    originals: dict[str, tuple[str, ...]] = {}
    for policy in policies:
        for original, twin in policy.preemptors.twins.items():
            originals[twin] = (*originals.get(twin, ()), original)
    return originals


def shielded(policies: Iterable[PreemptionPolicy]) -> frozenset[str]:
    """The annotations by which the reconciler judges whether a pod may be evicted."""
    return frozenset((CAN_BE_PREEMPTED, PROTECTION_DURATION)).union(
        *(policy.victims.annotations_read for policy in policies)
    )
