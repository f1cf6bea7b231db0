"""What a policy set lets happen that its author would be surprised by, each thing with a request that shows it.

The whole set is asked by the engine that judges requests, so a rule that is safe only beside another one is safe.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from webhook.policy.cel.fields import Path
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import CLASSES, CONTROLLER, PODS, UserInfo
from webhook.policy.evaluation.rules import Verdict
from webhook.policy.example_requests.example import (
    ANYBODY,
    CHANGE,
    NAME,
    NAMESPACE,
    OPERATION,
    USER,
    VALUE,
    Example,
    Settings,
)
from webhook.policy.example_requests.questions import SYSTEM, UNNAMED, RuleQuestion, near, questions, samples
from webhook.policy.model.match import MEND
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityRule
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.policy.model.victims import VictimMode
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.object_shape import yaml_name
from webhook.policy.shapes.yaml_nodes import SourcePosition

_CRITICAL = next(((NAME, name), (VALUE, value)) for value, name in SYSTEM.items())
_API_SERVER = UserInfo("system:apiserver", ("system:masters",))
_OF_KUBERNETES = (
    Example(PODS, ((NAMESPACE, "kube-system"), (USER, CONTROLLER), *_CRITICAL)),
    Example(PODS, ((NAMESPACE, "kube-system"), (USER, CONTROLLER))),
    Example(CLASSES, ((USER, _API_SERVER), *_CRITICAL, (("object", "description"), "Used for system critical pods"))),
)
"""What every cluster asks for by itself."""
_OPENED = ((*CHANGE, CAN_BE_PREEMPTED), "true")
_NOTHING = {"use": "refuses no pod", "define": "refuses no PriorityClass"}
_OPTIONAL = ("exclude", "namespaces", "namespace_selector", "object_selector")
_LISTS = ("conditions", "exceptions", "use", "define", "allow", "deny")
"""Parts that a policy could do without."""
_NESTED = ("match", "reserve", "priority_classes")
_UNRESERVED = 'no range with "define" holds its value'
_UNRECORDED = (
    "counts as the pod was made; of a pod that giveway did not see then, or by older policies, it counts as it is now,"
    " and whoever may patch the pod or its status writes it: `giveway doctor` names such pods (not-recorded)"
)
_APART = f"the author of a workload and the controller that makes its pods are judged differently; {MEND}"
_MOST_TRIED, _MOST_FIXED, _MOST_FREE, _MOST_COMPARED = 600, 80, 16, 5000
Told = Iterator[tuple[Severity, SourcePosition, str]]
_Less = Iterator[tuple[SourcePosition, str, Any]]
"""Where a part stands that is left out, its name, and what is left."""


class _Answer(NamedTuple):
    """A request, and what rules say of it, by their ids; one that fills something in counts as violated under audit."""

    example: Example
    said: dict[str, Verdict]

    def meets(self, rule_id: str) -> bool:
        """Whether this rule is violated, or fills something in."""
        return rule_id in self.said and self.said[rule_id].violated

    def refusal(self, rules: Collection[str] = ()) -> str | None:
        """Why a rule, if any of these are named one of them, refuses it; None if none does."""
        for verdict in self.said.values():
            if verdict.denies and (not rules or verdict.id in rules):
                return verdict.message
        return None

    def outcomes(self) -> dict[str, str]:
        """What rules make of it."""
        return {rule: verdict.outcome for rule, verdict in self.said.items()}


def example_findings(policies: Policies, now: float, path: str) -> list[Finding]:
    """What example requests made at `now` (seconds since the epoch) show of a policy set without errors.

    Warnings are about rules, notices about what no rule of the set, which lies at `path`, is about.
    """
    priority = []
    for policy in policies.priority:
        open_ = tuple(exception for exception in policy.exceptions if exception.until > now)
        priority.append(replace(policy, exceptions=open_))
    asked = _Asked(replace(policies, priority=tuple(priority)), now)
    rows = [*chain.from_iterable(map(asked.of_policy, priority)), *asked.unguarded(path)]
    return [Finding(severity=row[0], source=row[1], message=row[2]) for row in dict.fromkeys(rows)]


class _Asked:
    """The engine of a policy set, asked about examples as of `now`."""

    def __init__(self, policies: Policies, now: float) -> None:
        self._policies, self._now, self._engine = policies, now, Engine(policies)
        self.lists: dict[str, tuple[str, ...]] = {}
        """The rules that say which classes may be named, with these."""
        for rule_id, _, rule in policies.rules:
            classes = rule.declaration.classes
            if classes is not None and rule.enforcement is Enforcement.ENFORCE:
                self.lists[rule_id] = classes

    def ask(self, resource: str, settings: Iterable[tuple[Path, Any]]) -> _Answer:
        """A request with these settings, and its answer."""
        example = Example(resource, tuple(settings))
        request = example.request(self._now)
        given = [*self._engine.annotations_to_copy(request), self._engine.default_priority_class(request) or ("", "")]
        said = {rule: Verdict("", rule, Enforcement.AUDIT, "deny") for _, rule in given if rule}
        return _Answer(example, said | {verdict.id: verdict for verdict in self._engine.judge(request)})

    def of_policy(self, policy: PriorityPolicy) -> Told:
        """What surprises in its rules; if nothing, which part makes no difference."""
        surprised, answers = False, [self.ask(*example) for example in _OF_KUBERNETES]
        own, listed = answers[:], [*chain.from_iterable(self.lists.values())]
        for rule in policy.rules:
            for question in questions(policy, rule, listed):
                case = _Case(self, policy, rule, question)
                answers += case.answers
                for severity, text in _told(case):
                    surprised |= severity is Severity.WARNING
                    yield severity, rule.source, text
            for answer in () if surprised else own:
                refusal = answer.refusal([f"{policy.name}/{rule.name}"])
                if refusal is not None:
                    yield Severity.WARNING, rule.source, f"{answer.example}, is refused: {refusal}"
        if not surprised and len(answers) <= _MOST_COMPARED:
            yield from self._needless(policy, answers)

    def _needless(self, policy: PriorityPolicy, answers: list[_Answer]) -> Told:
        """The parts of a policy without which all these requests are answered alike."""
        such = f"without it {len(answers)} example requests are answered alike, such as {answers[-1].example}"
        for source, name, less in _without(policy, policy.source):
            priority = tuple(less if each is policy else each for each in self._policies.priority)
            other = _Asked(replace(self._policies, priority=priority), self._now)
            if all(other.ask(*answer.example).outcomes() == answer.outcomes() for answer in answers):
                yield Severity.WARNING, source, f"{name} of policy {policy.name} makes no difference: {such}"

    def unguarded(self, path: str) -> Told:
        """What no rule is about, and anybody may do who may make pods, or change classes."""
        critical = self.ask(PODS, ((NAMESPACE, UNNAMED), *_CRITICAL))
        if critical.refusal() is None:
            gets = f"{critical.example}, gets {critical.example.get(VALUE)}"
            yield Severity.NOTICE, SourcePosition(path), f"nothing reserves the range above one billion: {gets}"
        for policy in self._policies.preemption:
            for text in self._of_preemption(policy):
                yield Severity.NOTICE, policy.source, text

    def _of_preemption(self, policy: PreemptionPolicy) -> Iterator[str]:
        """What anybody may do about a PreemptionPolicy."""
        victims = [name for pair in policy.victims.pairs or () for name in pair.victims.priority_classes or ()]
        opened = self._let_in((OPERATION, "UPDATE"), (NAME, samples([*victims, "batch"])[0]), _OPENED)
        if policy.victims.mode is VictimMode.OPT_IN and opened is not None:
            opens = f"which opens its running pods to eviction: {_UNRESERVED}"
            yield f"{opened} who may patch it, is let in, {opens}"
        for glob in policy.class_globs:
            names = samples([glob])
            defined = self._let_in((NAME, names[0])) if names else None
            if defined is not None:
                meant = f"and the policy means its pods, too, by a glob: {_UNRESERVED}"
                yield f"{defined} who may create classes, is let in, {meant}"
        read = [f"label {key}" for key in sorted(policy.labels_read)] + ["group"] * policy.reads_groups
        if read:
            yield f"a pod's {' and '.join(read)} {_UNRECORDED}"

    def _let_in(self, *settings: tuple[Path, Any]) -> Example | None:
        """The first of requests about a PriorityClass, by its values, that is let in."""
        for value in (1000, 0, 10**9, -1):
            answer = self.ask(CLASSES, (*settings, (VALUE, value)))
            if answer.refusal() is None:
                return answer.example
        return None


class _Case:
    """One thing that a rule decides, with requests about it and their answers.

    A row has one request, and the same with what its author may choose for nothing:
    a little of everything, and what takes one that is met out of the rule.
    """

    def __init__(self, asked: _Asked, policy: PriorityPolicy, rule: PriorityRule, question: RuleQuestion) -> None:
        self.asked, self.policy, self.rule, self.question = asked, policy, rule, question
        self.about, self.id = question.about, f"{policy.name}/{rule.name}"
        self.rows = self._answered() if question.fixed[0] else []
        self.answers = [*chain.from_iterable(self.rows)]
        self.tried = f"({len(self.answers)} requests were tried)"

    def _ask(self, parts: list[Settings]) -> _Answer:
        return self.asked.ask(self.question.resource, chain.from_iterable(parts))

    def _answered(self) -> list[list[_Answer]]:
        """Requests near the plain one and near one that the rule is about, with their answers."""
        fixed, free = self.question.fixed, self.question.free
        parts, about = [*fixed, *free], len(fixed)
        plain = [settings[0] for settings in parts]
        tried = islice(near(parts, plain), _MOST_TRIED)
        base = next((row for row in tried if self._ask(row).meets(self.id)), plain)
        asking = [[*row[: about - 1], user] for row in (plain, base) for user in fixed[-1]]
        for row in (plain, base):
            asking += islice(near(fixed, row[:about]), _MOST_FIXED)
        chosen = [*islice(near(free, plain[about:]), _MOST_FREE)]
        tried = islice(near(free, base[about:]), _MOST_TRIED)
        out = (row for row in tried if not self._ask(base[:about] + row).meets(self.id))
        chosen += islice(out, 1)
        return [[self._ask(row + more) for more in chosen] for row in asking]

    def told(self, example: Example) -> str:
        """The request and what becomes of it."""
        if self.asked.ask(*example).refusal() is not None:
            return f"{example}, is refused by another rule"
        gets = {"use": f"gets {example.get(VALUE)}", "priority_classes": f"gets PriorityClass {example.get(NAME)}"}
        return f"{example}, {gets.get(self.about, 'is let in')}"


def _told(case: _Case) -> Iterator[tuple[Severity, str]]:
    """What is surprising about it: the worst, and whom the rule treats differently."""
    if not case.rows:
        if case.about == "use":
            text = f"reserves values that no class can have; above one billion there are only {[*SYSTEM]}"
            yield Severity.WARNING, f"{case.id} {text}"
        return
    worst = _worst(case)
    if worst is not None:
        yield Severity.WARNING, worst
    pods = _apart(case) if case.question.resource == PODS else []
    if pods:
        yield Severity.WARNING, f"{case.id} is about {pods[0]}, and not about {pods[1]}: {_APART}"
    enforced = case.rule.enforcement is Enforcement.ENFORCE
    trusting = _by_label(case) if case.about == "use" and enforced else None
    if trusting is not None:
        text = f"{case.told(trusting)}: see that nobody else labels namespaces"
        yield Severity.NOTICE, f"{case.id} goes by a label: {text}"


def _worst(case: _Case) -> str | None:
    """The worst of what is surprising."""
    default = case.rule.default_priority_class
    for (example, said), *_ in case.rows:
        for verdict in said.values():
            if verdict.outcome == "error" and verdict.policy == case.policy.name and verdict.id != case.id:
                return f"{example}, is refused: {verdict.message}"
    met = next((answer.example for answer in case.answers if answer.meets(case.id)), None)
    if met is None:
        spaces = samples(case.policy.match.namespaces or (), dots=False) or [UNNAMED]
        inside = (row.example for row in case.answers if row.example.get(NAMESPACE, spaces[0]) == spaces[0])
        return f"{case.id} {_NOTHING.get(case.about, 'does nothing')}: {case.told(next(inside))} {case.tried}"
    if default is not None:
        refusal = case.asked.ask(PODS, (*met.settings, (NAME, default), (VALUE, 1000))).refusal()
        return None if refusal is None else f"{met}, gets {default} by {case.id} and is refused: {refusal}"
    if case.rule.enforcement is not Enforcement.ENFORCE or not case.rule.declaration.refuses:
        return None
    through = _let_out(case)
    if through is not None:
        return f"{case.id} can be got round: {case.told(through)}"
    return _refuses_everything(case) if case.about in ("validate", "priority_classes") else None


def _refuses_everything(case: _Case) -> str | None:
    """That no request gets by, of those that make something or of those that change it."""
    for operation in (None, "UPDATE"):
        judged = [row for row in case.answers if case.id in row.said and row.example.get(OPERATION) == operation]
        refusals = [answer.refusal({case.id, *case.asked.lists}) for answer in judged]
        if judged and None not in refusals:
            alone = all(answer.meets(case.id) for answer in judged)
            text = "refuses everything" if alone else "and other rules together refuse everything"
            return f"{case.id} {text}: {judged[0].example}, is refused: {refusals[0]} {case.tried}"
    return None


def _by_label(case: _Case) -> Example | None:
    """What anybody asks for and is refused, but not in a namespace with certain labels."""
    first = case.rows[0][0]
    for answer, *_ in case.rows if first.meets(case.id) else ():
        example = answer.example
        added = {path[0] for path, value in example.settings if (path, value) not in first.example.settings}
        if added == {"namespaceObject"} and example.get(NAMESPACE) == UNNAMED and answer.refusal() is None:
            return example
    return None


def _apart(case: _Case) -> list[Example]:
    """Two requests, by somebody and by a controller and else alike: one that meets the rule, and one not.

    Whoever changes a pod asks for the change, so changes count for expressions only.
    """
    askers: dict[str, dict[str, tuple[bool, Example]]] = {}
    for answer, *_ in case.rows:
        example = answer.example
        if example.get(OPERATION) is None or case.about == "validate":
            rest = repr([setting for setting in example.settings if setting[0] != USER])
            asked = askers.setdefault(rest, {})
            asked[example.get(USER).username] = answer.meets(case.id), example
    for asked in askers.values():
        if CONTROLLER.username not in asked:
            continue
        met_by_controller, by_controller = asked[CONTROLLER.username]
        # Who lacks a right and is refused may make the workload all
        # the same where its pods have one
        lacking = ANYBODY.username in asked and asked[ANYBODY.username][0]
        for met, example in asked.values():
            if met != met_by_controller and not (met and lacking):
                return [example, by_controller] if met else [by_controller, example]
    return []


def _let_out(case: _Case) -> Example | None:
    """A request by somebody without any right that gets through, by what its author chooses.

    The first request counts as well if it is about a range, or excluded by labels of namespaces, in a namespace
    that no policy means: a range is reserved there, too, and nobody means to exclude it. Who defines a class
    chooses its name.
    """
    exclude, everywhere = case.policy.exclude, case.about == "use"
    if exclude is not None and not case.policy.match.by_namespace:
        everywhere |= exclude.namespace_selector is not None and not exclude.by_namespace
    for plain, *others in case.rows:
        example = plain.example
        if example.get(USER) is not ANYBODY:
            continue
        if plain.refusal() is not None:
            through = (answer.example for answer in others if plain.meets(case.id) and answer.refusal() is None)
            if (past := next(through, None)) is not None:
                return past
            continue
        if case.about == "define" or (everywhere and example is case.rows[0][0].example):
            return example
        unasked = case.id not in plain.said and case.about != "validate"
        if unasked and any(answer.meets(case.id) for answer in others):
            return example
    return None


def _without(part: Any, source: SourcePosition) -> _Less:
    """A policy or rule without each part that it could do without."""
    source = getattr(part, "source", source)
    for field in part.__struct_fields__:
        value = getattr(part, field)
        for place, name, less in () if value is None else _shorter(field, value, source):
            yield place, name, replace(part, **{field: less})


def _shorter(field: str, value: Any, source: SourcePosition) -> _Less:
    """The value of a field without each part that it could do without."""
    if field in _OPTIONAL:
        yield source, yaml_name(field), None
    elif field in _NESTED:
        for place, name, less in _without(value, source):
            yield place, f"{yaml_name(field)}.{name}", less
    for number, element in enumerate(value if field in ("rules", *_LISTS) else ()):
        before, after = value[:number], value[number + 1 :]
        if field in _LISTS:
            yield getattr(element, "source", source), f"{field}[{number}]", before + after
        for place, name, less in _without(element, source) if field == "rules" else ():
            yield place, name, (*before, less, *after)
