"""What a policy set lets happen that its author would be surprised by, each thing with a request that shows it.

The whole set is asked by the engine that judges requests, so a rule that is safe only beside another one is safe.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

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
from webhook.policy.model.match import MEND, RequestMatch
from webhook.policy.model.policies import Policies
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
_NOTHING = {"use": "refuses no pod", "define": "refuses no PriorityClass", "": "does nothing"}
_OPTIONAL = ("exclude", "namespaces", "namespace_selector", "object_selector")
_LISTS = ("conditions", "exceptions", "use", "define", "allow", "deny")
"""Parts that a policy could do without."""
_UNRECORDED = (
    "counts as the pod was made; of a pod that giveway did not see then, or by older policies, it counts as it is now,"
    " and whoever may patch the pod or its status writes it: `giveway doctor` names such pods (not-recorded)"
)
_APART = f"the author of a workload and the controller that makes its pods are judged differently; {MEND}"
_MOST_TRIED, _MOST_FIXED, _MOST_FREE, _MOST_COMPARED = 600, 80, 16, 5000
Told = Iterator[tuple[Severity, SourcePosition, str]]
Said = dict[str, Verdict]
"""What rules say of a request, by their ids; one that fills something in counts as violated under audit."""
_Answered = tuple[Example, Said]


def example_findings(policies: Policies, now: float, path: str) -> list[Finding]:
    """What example requests made at `now` (seconds since the epoch) show of a policy set without errors.

    Warnings are about rules, notices about what no rule of the set, which lies at `path`, is about.
    """
    priority = [
        replace(policy, exceptions=tuple(exception for exception in policy.exceptions if exception.until > now))
        for policy in policies.priority
    ]
    asked = _Asked(replace(policies, priority=tuple(priority)), now)
    rows = [*chain.from_iterable(map(asked.of_policy, priority)), *asked.unguarded(path)]
    return [Finding(severity=row[0], source=row[1], message=row[2]) for row in dict.fromkeys(rows)]


class _Asked:
    """The engine of a policy set, asked about examples as of `now`."""

    def __init__(self, policies: Policies, now: float) -> None:
        self._policies, self._now, self._engine = policies, now, Engine(policies)
        self._lists = {
            f"{policy.name}/{rule.name}": rule.declaration.classes
            for policy in policies.priority
            for rule in policy.rules
            if rule.declaration.classes is not None and rule.enforcement is Enforcement.ENFORCE
        }
        """The rules that say which classes may be named, with these."""

    def _said(self, example: Example) -> Said:
        request = example.request(self._now)
        given = (*self._engine.annotations_to_copy(request), self._engine.default_priority_class(request) or ("", ""))
        said = {rule: Verdict("", rule, Enforcement.AUDIT, "deny") for _, rule in given if rule}
        return said | {verdict.id: verdict for verdict in self._engine.judge(request)}

    def of_policy(self, policy: PriorityPolicy) -> Told:
        """What is surprising about the rules of a policy; if nothing is, which part of it makes no difference."""
        surprised, answered = False, [(example, self._said(example)) for example in _OF_KUBERNETES]
        own = answered[:]
        for rule in policy.rules:
            rule_id = f"{policy.name}/{rule.name}"
            for question in questions(policy, rule, chain.from_iterable(self._lists.values())):
                rows = self._rows(rule_id, question) if question.fixed[0] else []
                answered += chain.from_iterable(rows)
                for severity, text in self._of_question(policy, rule, question, rows):
                    surprised |= severity is Severity.WARNING
                    yield severity, rule.source, text
            for example, said in () if surprised else own:
                if rule_id in said and said[rule_id].denies:
                    yield Severity.WARNING, rule.source, f"{example}, is refused: {said[rule_id].message}"
        for source, name, less in (
            () if surprised or len(answered) > _MOST_COMPARED else _without(policy, policy.source)
        ):
            priority = tuple(less if each is policy else each for each in self._policies.priority)
            other = _Asked(replace(self._policies, priority=priority), self._now)
            if all(_outcomes(other._said(example)) == _outcomes(said) for example, said in answered):
                text = f"without it {len(answered)} example requests are answered alike, such as {answered[-1][0]}"
                yield Severity.WARNING, source, f"{name} of policy {policy.name} makes no difference: {text}"

    def _rows(self, rule_id: str, question: RuleQuestion) -> list[list[_Answered]]:
        """Requests with their answers, near the plain one and near one that the rule is about.

        A row has one request, and the same with what its author may choose for
        nothing: a little of everything, and what takes the near one out of the rule.
        """
        parts, about = [*question.fixed, *question.free], len(question.fixed)
        plain = [settings[0] for settings in parts]
        met = (row for row in islice(near(parts, plain), _MOST_TRIED) if _meets(self._ask(question, row)[1], rule_id))
        bases = (plain, next(met, plain))
        fixed = [[*base[: about - 1], user] for base in bases for user in question.fixed[-1]]
        fixed += [row for base in bases for row in islice(near(question.fixed, base[:about]), _MOST_FIXED)]
        out = (
            chosen
            for chosen in islice(near(question.free, bases[1][about:]), _MOST_TRIED)
            if not _meets(self._ask(question, bases[1][:about] + chosen)[1], rule_id)
        )
        free = [*islice(near(question.free, plain[about:]), _MOST_FREE), *islice(out, 1)]
        return [[self._ask(question, row + chosen) for chosen in free] for row in fixed]

    def _ask(self, question: RuleQuestion, parts: list[Settings]) -> _Answered:
        example = Example(question.resource, tuple(chain.from_iterable(parts)))
        return example, self._said(example)

    def _of_question(
        self, policy: PriorityPolicy, rule: PriorityRule, question: RuleQuestion, rows: list[list[_Answered]]
    ) -> Iterator[tuple[Severity, str]]:
        """What is surprising about one thing that a rule decides: the worst, and whom it treats differently."""
        rule_id, about = f"{policy.name}/{rule.name}", question.about
        if not rows:
            text = f"reserves values that no class can have; above one billion there are only {[*SYSTEM]}"
            yield from [(Severity.WARNING, f"{rule_id} {text}")] if about == "use" else []
            return
        yield from ((Severity.WARNING, text) for text in islice(self._of_rule(policy, rule, about, rows), 1))
        if pods := _apart(rule_id, about, rows) if question.resource == PODS else []:
            yield Severity.WARNING, f"{rule_id} is about {pods[0]}, and not about {pods[1]}: {_APART}"
        trusting = _by_label(rule_id, rows) if about == "use" and rule.enforcement is Enforcement.ENFORCE else None
        if trusting is not None:
            text = f"{self._told(trusting, about)}: see that nobody else labels namespaces"
            yield Severity.NOTICE, f"{rule_id} goes by a label: {text}"

    def _of_rule(
        self, policy: PriorityPolicy, rule: PriorityRule, about: str, rows: list[list[_Answered]]
    ) -> Iterator[str]:
        rule_id, answered = f"{policy.name}/{rule.name}", list(chain.from_iterable(rows))
        tried = f"({len(answered)} requests were tried)"
        for (example, said), *_ in rows:
            for verdict in said.values():
                if verdict.outcome == "error" and verdict.policy == policy.name and verdict.id != rule_id:
                    yield f"{example}, is refused: {verdict.message}"
        if not any(_meets(said, rule_id) for _, said in answered):
            spaces = samples(policy.match.namespaces or (), dots=False) or [UNNAMED]
            example = next(row for row, _ in answered if row.get(NAMESPACE, spaces[0]) == spaces[0])
            yield f"{rule_id} {_NOTHING.get(about, 'does nothing')}: {self._told(example, about)} {tried}"
        elif rule.default_priority_class is not None:
            given = next(example for example, said in answered if _meets(said, rule_id))
            named = Example(PODS, (*given.settings, (NAME, rule.default_priority_class), (VALUE, 1000)))
            refusals = [verdict.message for verdict in self._said(named).values() if verdict.denies]
            if refusals:
                yield f"{given}, gets {rule.default_priority_class} by {rule_id} and is refused: {refusals[0]}"
        elif rule.enforcement is Enforcement.ENFORCE and rule.declaration.refuses:
            exclude = RequestMatch() if policy.exclude is None or policy.match.by_namespace else policy.exclude
            everywhere = about == "use" or (exclude.namespace_selector is not None and not exclude.by_namespace)
            through = _let_out(rule_id, about, rows, everywhere=everywhere)
            if through is not None:
                yield f"{rule_id} can be got round: {self._told(through, about)}"
            for operation in (None, "UPDATE") if through is None and about in ("validate", "priority_classes") else ():
                judged = [(row, said) for row, said in answered if rule_id in said and row.get(OPERATION) == operation]
                refusing = {rule_id, *self._lists}
                refused = [[row for row in said.values() if row.violated and row.id in refusing] for _, said in judged]
                if refused and all(refused):
                    alone = all(said[rule_id].violated for _, said in judged)
                    text = "refuses everything" if alone else "and other rules together refuse everything"
                    yield f"{rule_id} {text}: {judged[0][0]}, is refused: {refused[0][0].message} {tried}"

    def _told(self, example: Example, about: str) -> str:
        """The request and what becomes of it."""
        if _refused(self._said(example)):
            return f"{example}, is refused by another rule"
        gets = {"use": f"gets {example.get(VALUE)}", "priority_classes": f"gets PriorityClass {example.get(NAME)}"}
        return f"{example}, {gets.get(about, 'is let in')}"

    def unguarded(self, path: str) -> Told:
        """What no rule is about, and anybody may do who may make pods, or change classes."""
        critical = Example(PODS, ((NAMESPACE, UNNAMED), *_CRITICAL))
        if not _refused(self._said(critical)):
            text = f"nothing reserves the range above one billion: {self._told(critical, 'use')}"
            yield Severity.NOTICE, SourcePosition(path), text
        for policy in self._policies.preemption:
            victims = [name for pair in policy.victims.pairs or () for name in pair.victims.priority_classes or ()]
            opened = self._let_in((OPERATION, "UPDATE"), (NAME, samples([*victims, "batch"])[0]), _OPENED)
            if policy.victims.mode is VictimMode.OPT_IN and opened is not None:
                opens = 'which opens its running pods to eviction: no range with "define" holds its value'
                yield Severity.NOTICE, policy.source, f"{opened} who may patch it, is let in, {opens}"
            for name in (name for glob in policy.class_globs for name in samples([glob])[:1]):
                if (defined := self._let_in((NAME, name))) is not None:
                    meant = 'and the policy means its pods, too, by a glob: no range with "define" holds its value'
                    yield Severity.NOTICE, policy.source, f"{defined} who may create classes, is let in, {meant}"
            read = [f"label {key}" for key in sorted(policy.labels_read)] + ["group"] * policy.reads_groups
            if read:
                yield Severity.NOTICE, policy.source, f"a pod's {' and '.join(read)} {_UNRECORDED}"

    def _let_in(self, *settings: tuple[Path, Any]) -> Example | None:
        """The first of requests about a PriorityClass, by its values, that is let in."""
        examples = (Example(CLASSES, (*settings, (VALUE, value))) for value in (1000, 0, 10**9, -1))
        return next((example for example in examples if not _refused(self._said(example))), None)


def _refused(said: Said) -> bool:
    return any(verdict.denies for verdict in said.values())


def _meets(said: Said, rule_id: str) -> bool:
    return rule_id in said and said[rule_id].violated


def _outcomes(said: Said) -> dict[str, str]:
    return {rule: verdict.outcome for rule, verdict in said.items()}


def _by_label(rule_id: str, rows: list[list[_Answered]]) -> Example | None:
    """What anybody asks for and is refused, but not in a namespace with certain labels."""
    for (example, said), *_ in rows if _meets(rows[0][0][1], rule_id) else ():
        added = {path[0] for path, value in example.settings if (path, value) not in rows[0][0][0].settings}
        if added == {"namespaceObject"} and example.get(NAMESPACE) == UNNAMED and not _refused(said):
            return example
    return None


def _apart(rule_id: str, about: str, rows: list[list[_Answered]]) -> list[Example]:
    """Two requests that differ only in whether somebody or a controller asks: one that meets the rule, and one not.

    Whoever changes a pod asks for the change, so changes count for expressions only.
    """
    askers: dict[str, dict[str, tuple[bool, Example]]] = {}
    for (example, said), *_ in rows:
        if example.get(OPERATION) is None or about == "validate":
            rest = repr([setting for setting in example.settings if setting[0] != USER])
            askers.setdefault(rest, {})[example.get(USER).username] = (_meets(said, rule_id), example)
    for asked in askers.values():
        met_by_controller, by_controller = asked.get(CONTROLLER.username, (None, None))
        unlike = (row for row in asked.values() if row[0] != met_by_controller)
        # Who lacks a right and is refused may make the workload all
        # the same where its pods have one
        lacking = asked.get(ANYBODY.username, (False, None))[0]
        other = next((example for met, example in unlike if not (met and lacking)), None)
        if by_controller is not None and other is not None:
            return [by_controller, other] if met_by_controller else [other, by_controller]
    return []


def _let_out(rule_id: str, about: str, rows: list[list[_Answered]], *, everywhere: bool) -> Example | None:
    """A request by somebody without any right that gets through all the same, by what its author chooses.

    `everywhere`: the first request counts as well, in a namespace that no policy means: a range
    is reserved there, too, and nobody means to exclude it. Who defines a class chooses its name.
    """
    for (plain, said), *others in (row for row in rows if row[0][0].get(USER) is ANYBODY):
        if not _refused(said):
            if about == "define" or (everywhere and plain is rows[0][0][0]):
                return plain
            if rule_id not in said and about != "validate" and any(_meets(row, rule_id) for _, row in others):
                return plain
        elif _meets(said, rule_id):
            through = next((example for example, row in others if not _refused(row)), None)
            if through is not None:
                return through
    return None


def _without(part: Any, source: SourcePosition) -> Iterator[tuple[SourcePosition, str, Any]]:
    """A policy or rule without each part that it could do without, with the part's place and name."""
    source = getattr(part, "source", source)
    for field in getattr(part, "__struct_fields__", ()):
        value = getattr(part, field)
        if value is not None and field in _OPTIONAL:
            yield source, yaml_name(field), replace(part, **{field: None})
        for number, element in enumerate(value if isinstance(value, tuple) else ()):
            before, after = value[:number], value[number + 1 :]
            if field in _LISTS:
                yield getattr(element, "source", source), f"{field}[{number}]", replace(part, **{field: before + after})
            for place, name, less in _without(element, source) if field == "rules" else ():
                yield place, name, replace(part, **{field: (*before, less, *after)})
        for place, name, less in _without(value, source) if field in ("match", "reserve", "priority_classes") else ():
            yield place, f"{yaml_name(field)}.{name}", replace(part, **{field: less})
