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
from webhook.policy.example_requests.example import ANYBODY, NAME, NAMESPACE, OPERATION, USER, VALUE, Example, Settings
from webhook.policy.example_requests.questions import OPENED, SYSTEM, UNNAMED, RuleQuestion, near, questions, samples
from webhook.policy.model.match import MEND
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityRule
from webhook.policy.model.victims import VictimMode
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.object_shape import yaml_name
from webhook.policy.shapes.yaml_nodes import SourcePosition

_CRITICAL = next(((NAME, name), (VALUE, value)) for value, name in SYSTEM.items())
_VALUES = {name: value for value, name in SYSTEM.items()}
_API_SERVER = UserInfo("system:apiserver", ("system:masters",))
_OF_KUBERNETES = (
    Example(PODS, ((NAMESPACE, "kube-system"), (USER, CONTROLLER), *_CRITICAL)),
    Example(PODS, ((NAMESPACE, "kube-system"), (USER, CONTROLLER))),
    Example(CLASSES, ((USER, _API_SERVER), *_CRITICAL, (("object", "description"), "Used for system critical pods"))),
)
"""What every cluster asks for by itself."""
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


class _Answer(NamedTuple):
    """A request, and what rules say of it, by their ids; one that fills something in counts as violated under audit."""

    example: Example
    said: dict[str, Verdict]

    def meets(self, rule_id: str) -> bool:
        """Whether this rule is violated, or fills something in."""
        return rule_id in self.said and self.said[rule_id].violated

    def refusal(self, rules: Collection[str] = ()) -> str | None:
        """Why a rule refuses it, one of these if any are named; None if none does."""
        for verdict in self.said.values():
            if verdict.denies and (not rules or verdict.id in rules):
                return verdict.message
        return None

    def outcomes(self) -> dict[str, str]:
        """What rules make of it."""
        return {rule: verdict.outcome for rule, verdict in self.said.items()}


class _Asked:
    """The engine of a policy set, asked about examples as of `now`."""

    def __init__(self, policies: Policies, now: float) -> None:
        self.policies, self.now, self.engine = policies, now, Engine(policies)
        self.lists: dict[str, tuple[str, ...]] = {}
        """The rules that say which classes may be named, with these."""
        for _, rule in policies.rules:
            classes = rule.declaration.classes
            if classes is not None and rule.enforcement is Enforcement.ENFORCE:
                self.lists[rule.id] = classes

    def ask(self, resource: str, settings: Iterable[tuple[Path, Any]]) -> _Answer:
        """A request with these settings, and its answer."""
        example = Example(resource, tuple(settings))
        request = example.request(self.now)
        given = self.engine.annotations_to_copy(request)
        default = self.engine.default_priority_class(request)
        if default is not None:
            given.append(default)
        said = {rule_id: Verdict("", rule_id, Enforcement.AUDIT, "deny") for _, rule_id in given}
        said |= {verdict.id: verdict for verdict in self.engine.judge(request)}
        return _Answer(example, said)


class _Case(NamedTuple):
    """One thing that a rule decides, with requests about it and their answers.

    A row has one request, and the same with what its author may choose for nothing:
    a little of everything, and what takes one that is met out of the rule.
    """

    asked: _Asked
    policy: PriorityPolicy
    rule: PriorityRule
    about: str
    rows: list[list[_Answer]]
    answers: list[_Answer]

    def told(self, example: Example) -> str:
        """The request and what becomes of it."""
        if self.asked.ask(*example).refusal() is not None:
            return f"{example}, is refused by another rule"
        if self.about == "use":
            return f"{example}, gets {example.get(VALUE)}"
        if self.about == "priority_classes":
            return f"{example}, gets PriorityClass {example.get(NAME)}"
        return f"{example}, is let in"


def example_findings(policies: Policies, now: float, path: str) -> list[Finding]:
    """What example requests at `now` (seconds since the epoch) show of a set without errors.

    Warnings are about rules, notices about what no rule of the set at `path` is about.
    """
    priority = []
    for policy in policies.priority:
        open_ = tuple(exception for exception in policy.exceptions if exception.until > now)
        priority.append(replace(policy, exceptions=open_))
    asked = _Asked(replace(policies, priority=tuple(priority)), now)
    told = [*chain.from_iterable(_of_policy(asked, policy) for policy in priority)]
    told += _unguarded(asked, path)
    return list(dict.fromkeys(told))


def _of_policy(asked: _Asked, policy: PriorityPolicy) -> Iterator[Finding]:
    """What surprises in its rules; if nothing, which part makes no difference."""
    own = [asked.ask(*example) for example in _OF_KUBERNETES]
    listed = [*chain.from_iterable(asked.lists.values())]
    surprised, answers = False, [*own]
    for rule in policy.rules:
        for question in questions(policy, rule, listed):
            rows = _answered(asked, rule.id, question)
            case = _Case(asked, policy, rule, question.about, rows, [*chain.from_iterable(rows)])
            answers += case.answers
            for severity, text in _told(case, question.resource):
                surprised |= severity is Severity.WARNING
                yield Finding(severity, rule.source, text)
        if surprised:
            continue
        for answer in own:
            refusal = answer.refusal([rule.id])
            if refusal is not None:
                text = f"{answer.example}, is refused: {refusal}"
                yield Finding(Severity.WARNING, rule.source, text)
    if not surprised and len(answers) <= _MOST_COMPARED:
        yield from _needless(asked, policy, answers)


def _needless(asked: _Asked, policy: PriorityPolicy, answers: list[_Answer]) -> Iterator[Finding]:
    """The parts of a policy without which all these requests are answered alike."""
    such = f"{len(answers)} example requests are answered alike, such as {answers[-1].example}"
    for source, name, less in _without(policy, policy.source):
        priority = tuple(less if each is policy else each for each in asked.policies.priority)
        other = _Asked(replace(asked.policies, priority=priority), asked.now)
        if all(other.ask(*answer.example).outcomes() == answer.outcomes() for answer in answers):
            text = f"{name} of policy {policy.name} makes no difference: without it {such}"
            yield Finding(Severity.WARNING, source, text)


def _unguarded(asked: _Asked, path: str) -> Iterator[Finding]:
    """What no rule is about, and anybody may do who may make pods, or change classes."""
    critical = asked.ask(PODS, ((NAMESPACE, UNNAMED), *_CRITICAL))
    if critical.refusal() is None:
        gets = f"{critical.example}, gets {critical.example.get(VALUE)}"
        text = f"nothing reserves the range above one billion: {gets}"
        yield Finding(Severity.NOTICE, SourcePosition(path), text)
    for policy in asked.policies.preemption:
        for text in _of_preemption(asked, policy):
            yield Finding(Severity.NOTICE, policy.source, text)


def _of_preemption(asked: _Asked, policy: PreemptionPolicy) -> Iterator[str]:
    """What anybody may do about a PreemptionPolicy."""
    victims: list[str] = []
    for pair in policy.victims.pairs or ():
        victims += pair.victims.priority_classes or ()
    name = samples([*victims, "batch"])[0]
    opened = _let_in(asked, (OPERATION, "UPDATE"), (NAME, name), OPENED)
    if policy.victims.mode is VictimMode.OPT_IN and opened is not None:
        opens = f"which opens its running pods to eviction: {_UNRESERVED}"
        yield f"{opened} who may patch it, is let in, {opens}"
    for glob in policy.class_globs:
        for name in samples([glob])[:1]:
            defined = _let_in(asked, (NAME, name))
            if defined is not None:
                meant = f"and the policy means its pods, too, by a glob: {_UNRESERVED}"
                yield f"{defined} who may create classes, is let in, {meant}"
    read = [f"label {key}" for key in sorted(policy.labels_read)]
    read += ["group"] if policy.reads_groups else []
    if read:
        yield f"a pod's {' and '.join(read)} {_UNRECORDED}"


def _let_in(asked: _Asked, *settings: tuple[Path, Any]) -> Example | None:
    """The first of requests about a PriorityClass, by its values, that is let in."""
    for value in (1000, 0, 10**9, -1):
        answer = asked.ask(CLASSES, (*settings, (VALUE, value)))
        if answer.refusal() is None:
            return answer.example
    return None


def _answered(asked: _Asked, rule_id: str, question: RuleQuestion) -> list[list[_Answer]]:
    """Requests near the plain one and near one that meets the rule, with their answers."""

    def ask(parts: list[Settings]) -> _Answer:
        return asked.ask(question.resource, chain.from_iterable(parts))

    fixed, free = question.fixed, question.free
    if not fixed[0]:
        return []
    about, parts = len(fixed), [*fixed, *free]
    plain = base = [settings[0] for settings in parts]
    for row in islice(near(parts, plain), _MOST_TRIED):
        if ask(row).meets(rule_id):
            base = row
            break
    asking: list[list[Settings]] = []
    for row in (plain, base):
        asking += ([*row[: about - 1], user] for user in fixed[-1])
    for row in (plain, base):
        asking += islice(near(fixed, row[:about]), _MOST_FIXED)
    chosen = [*islice(near(free, plain[about:]), _MOST_FREE)]
    for row in islice(near(free, base[about:]), _MOST_TRIED):
        if not ask(base[:about] + row).meets(rule_id):
            chosen.append(row)
            break
    return [[ask(row + more) for more in chosen] for row in asking]


def _told(case: _Case, resource: str) -> Iterator[tuple[Severity, str]]:
    """What is surprising about it: the worst, and whom the rule treats differently."""
    if not case.rows:
        if case.about == "use":
            text = f"{case.rule.id} reserves values that no class can have"
            yield Severity.WARNING, f"{text}; above one billion there are only {[*SYSTEM]}"
        return
    worst = _worst(case)
    if worst is not None:
        yield Severity.WARNING, worst
    pods = _apart(case) if resource == PODS else []
    if pods:
        yield Severity.WARNING, f"{case.rule.id} is about {pods[0]}, and not about {pods[1]}: {_APART}"
    if case.about == "use" and case.rule.enforcement is Enforcement.ENFORCE:
        trusting = _by_label(case)
        if trusting is not None:
            text = f"{case.told(trusting)}: see that nobody else labels namespaces"
            yield Severity.NOTICE, f"{case.rule.id} goes by a label: {text}"


def _worst(case: _Case) -> str | None:
    """The worst of what is surprising."""
    for (example, said), *_ in case.rows:
        for verdict in said.values():
            if verdict.outcome == "error" and verdict.policy == case.policy.name and verdict.id != case.rule.id:
                return f"{example}, is refused: {verdict.message}"
    met = next((answer.example for answer in case.answers if answer.meets(case.rule.id)), None)
    if met is None:
        spaces = samples(case.policy.match.namespaces or (), dots=False) or [UNNAMED]
        examples = (answer.example for answer in case.answers)
        inside = (example for example in examples if example.get(NAMESPACE, spaces[0]) == spaces[0])
        nothing = f"{case.rule.id} {_NOTHING.get(case.about, 'does nothing')}"
        return f"{nothing}: {case.told(next(inside))} ({len(case.answers)} requests were tried)"
    default = case.rule.default_priority_class
    if default is not None:
        answer = case.asked.ask(PODS, (*met.settings, (NAME, default), (VALUE, _VALUES.get(default, 1000))))
        refusal = answer.refusal()
        return None if refusal is None else f"{met}, gets {default} by {case.rule.id} and is refused: {refusal}"
    if case.rule.enforcement is not Enforcement.ENFORCE or not case.rule.declaration.refuses:
        return None
    through = _let_out(case)
    if through is not None:
        return f"{case.rule.id} can be got round: {case.told(through)}"
    if case.about in ("validate", "priority_classes"):
        return _refuses_everything(case)
    return None


def _refuses_everything(case: _Case) -> str | None:
    """That no request gets by: none that makes something, or none that changes it."""
    for operation in (None, "UPDATE"):
        judged = [answer for answer in case.answers if case.rule.id in answer.said]
        judged = [answer for answer in judged if answer.example.get(OPERATION) == operation]
        refusals = [answer.refusal({case.rule.id, *case.asked.lists}) for answer in judged]
        if judged and None not in refusals:
            text = "and other rules together refuse everything"
            if all(answer.meets(case.rule.id) for answer in judged):
                text = "refuses everything"
            refused = f"{judged[0].example}, is refused: {refusals[0]}"
            return f"{case.rule.id} {text}: {refused} ({len(case.answers)} requests were tried)"
    return None


def _by_label(case: _Case) -> Example | None:
    """What anybody asks for and is refused, but not in a namespace with certain labels."""
    first = case.rows[0][0]
    if not first.meets(case.rule.id):
        return None
    for answer, *_ in case.rows:
        example = answer.example
        if example.get(NAMESPACE) != UNNAMED or answer.refusal() is not None:
            continue
        added = [setting for setting in example.settings if setting not in first.example.settings]
        if {path[0] for path, _ in added} == {"namespaceObject"}:
            return example
    return None


def _apart(case: _Case) -> list[Example]:
    """Two requests that differ in who asks, one a controller: one meets the rule, and one does not.

    Whoever changes a pod asks for the change, so changes count for expressions only.
    """
    askers: dict[str, dict[str, _Answer]] = {}
    for answer, *_ in case.rows:
        example = answer.example
        if example.get(OPERATION) is None or case.about == "validate":
            rest = repr([setting for setting in example.settings if setting[0] != USER])
            askers.setdefault(rest, {})[example.get(USER).username] = answer
    for asked in askers.values():
        controller = asked.get(CONTROLLER.username)
        if controller is None:
            continue
        # Who lacks a right and is refused may make the workload all
        # the same where its pods have one
        anybody = asked.get(ANYBODY.username)
        lacking = anybody is not None and anybody.meets(case.rule.id)
        for answer in asked.values():
            met = answer.meets(case.rule.id)
            if met != controller.meets(case.rule.id) and not (met and lacking):
                pods = [answer.example, controller.example]
                return pods if met else pods[::-1]
    return []


def _let_out(case: _Case) -> Example | None:
    """A request by somebody without a right that gets through by what its author chooses.

    The first request counts as well if it is about a range, or excluded by labels of namespaces,
    in a namespace that no policy means: a range is reserved there, too, and nobody means to exclude
    it. Who defines a class chooses its name.
    """
    exclude, everywhere = case.policy.exclude, case.about == "use"
    if exclude is not None and not case.policy.match.by_namespace:
        everywhere |= exclude.namespace_selector is not None and not exclude.by_namespace
    for plain, *others in case.rows:
        example = plain.example
        if example.get(USER) is not ANYBODY:
            continue
        if plain.refusal() is None:
            if case.about == "define" or (everywhere and plain is case.rows[0][0]):
                return example
            unasked = case.rule.id not in plain.said and case.about != "validate"
            if unasked and any(answer.meets(case.rule.id) for answer in others):
                return example
        elif plain.meets(case.rule.id):
            for answer in others:
                if answer.refusal() is None:
                    return answer.example
    return None


def _without(part: Any, source: SourcePosition) -> Iterator[tuple[SourcePosition, str, Any]]:
    """A policy or a part of it without each thing that it could do without, with where that stands, and its name."""
    source = getattr(part, "source", source)
    for field in part.__struct_fields__:
        value = getattr(part, field)
        shorter: list[tuple[SourcePosition, str, Any]] = []
        if field in _OPTIONAL and value is not None:
            shorter.append((source, yaml_name(field), None))
        elif field in _NESTED and value is not None:
            for place, name, less in _without(value, source):
                shorter.append((place, f"{yaml_name(field)}.{name}", less))
        elif field == "rules":
            for number, rule in enumerate(value):
                for place, name, less in _without(rule, source):
                    shorter.append((place, name, (*value[:number], less, *value[number + 1 :])))
        elif field in _LISTS:
            for number, element in enumerate(value or ()):
                place = getattr(element, "source", source)
                less = value[:number] + value[number + 1 :]
                shorter.append((place, f"{field}[{number}]", less))
        for place, name, less in shorter:
            yield place, name, replace(part, **{field: less})
