"""What PreemptionPolicies let happen that would surprise their authors, with pods that show it.

Pods are made of what a policy and its pairs name. The decision's rules say who is a victim, those of the
whole set who may make such a pod (`webhook.policy.example_requests`): what is safe beside a rule is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, product
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.pod import Pod
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import PODS, PolicyRequest
from webhook.policy.example_requests.example import NAME, NAMESPACE, VALUE, Example, Settings
from webhook.policy.example_requests.questions import UNNAMED, Parts, label_settings, near, samples
from webhook.policy.model.globs import name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.victims import ANY, PodsMatch, PreemptionPair, VictimMode
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.object_shape import yaml_name
from webhook.preemption.snapshot.pod_view import Profile, profile_of
from webhook.preemption.victims.rules import PairMatcher, PodsMatcher, compile_rules

_SCHEDULER = ("object", "spec", "schedulerName")
_ANNOTATIONS = ("metadata", "annotations")
_SOME_CLASS = "some-class"
_LONG = 10**9
"""Seconds of protection as good as no end."""
_SIDES = ("preemptors", "victims")
_MOST_PAIRS, _MOST_NAMES, _MOST_PLACES = 50, 3, 150
_BY_CHOICE = "the author of a pod choose to be a preemptor"
_BY_NAMESPACE = "pods of a namespace that it does not name be preemptors"
Told = Iterator[tuple[Severity, str]]
Needless = Iterator[tuple[str, str]]


class _ExamplePod(NamedTuple):
    """A pod; `may` says whether it is a preemptor or a victim if no pair is asked."""

    example: Example
    request: PolicyRequest
    may: bool

    @property
    def name(self) -> str:
        """Its PriorityClass."""
        return str(self.example.get(NAME))

    @property
    def unnamed(self) -> bool:
        """Whether only policies for all namespaces mean its namespace, which has no labels."""
        space = self.request.namespace_object
        return self.example.get(NAMESPACE) == UNNAMED and not (space and space.metadata.labels)

    def meets(self, side: PodsMatcher) -> bool:
        """Whether a side of a pair means the pod."""
        namespace, space = self.request.namespace, self.request.namespace_object
        labels = {**((space and space.metadata.labels) or {}), "kubernetes.io/metadata.name": namespace}
        own = self.request.object["metadata"].get("labels", {})
        class_matches = side.class_matches(self.name, self.request.priority, _classes(self.request))
        return class_matches and side.pod_matches(namespace, own, labels)

    def __str__(self) -> str:
        return str(self.example).replace("a pod", f"a pod of PriorityClass {self.name}", 1)


Rows = list[list[_ExamplePod]]
"""A row's first pod is as a side wants it; others differ in one thing that authors choose."""


def example_pod_findings(policies: Policies, now: float) -> list[Finding]:
    """What pods made at `now` (seconds since the epoch) show of the set's PreemptionPolicies."""
    engine = Engine(policies)
    return [
        Finding(severity=severity, source=policy.source, message=text)
        for policy in policies.preemption
        for severity, text in dict.fromkeys(_Asked(policy, engine, now).told())
    ]


class _Asked:
    """The rules of one policy, asked about pods as of `now`."""

    def __init__(self, policy: PreemptionPolicy, engine: Engine, now: float) -> None:
        self._policy, self._engine, self._now, self._rules = policy, engine, now, compile_rules(policy)
        self._pairs = (policy.victims.pairs or (PreemptionPair(),))[:_MOST_PAIRS]
        self._matchers = self._compiled(*self._pairs)
        preemptors = policy.preemptors
        classes = samples((*preemptors.priority_classes, *preemptors.twins, *preemptors.twins.values()))
        self._managed = list(filter(self._manages, classes))

    def _compiled(self, *pairs: PreemptionPair) -> tuple[PairMatcher, ...]:
        victims = replace(self._policy.victims, pairs=pairs)
        return compile_rules(replace(self._policy, victims=victims)).pairs or ()

    def _manages(self, name: str) -> bool:
        managed = self._engine.managed(name)
        return managed is not None and managed.policy is self._policy

    def told(self) -> Told:
        """What is surprising about the policy, pair by pair, and what of it says nothing."""
        name = self._policy.name
        if not self._managed:
            yield Severity.WARNING, f"{name} manages no pod; name priorityClasses or twins"
            return
        sides = [(self._preemptors(pair.preemptors), self._victims(pair.victims)) for pair in self._pairs]
        for number, (preemptors, victims) in enumerate(sides):
            evicts = self._evicts(preemptors, victims, self._matchers[number])
            if evicts is None:
                place = f"victims.pairs[{number}] of PreemptionPolicy " if self._policy.victims.pairs else ""
                text = f"{preemptors[0][0]}, does not evict {victims[0][0]}, nor do others that were tried"
                yield Severity.WARNING, f"{place}{name} lets nobody evict anybody: {text}"
                continue
            for who, pod in self._joining(preemptors, number):
                yield Severity.WARNING, f"{name} lets {who}: {pod}, evicts {evicts[1]}"
            for severity, pod in self._staying(victims).items():
                text = f"{pod}, is not evicted for {evicts[0]}"
                yield severity, f"{name} lets the author of a pod choose to be no victim: {text}"
        for part, text in chain(self._needless_names(), self._needless_pairs(sides)):
            yield Severity.WARNING, f"{part} of PreemptionPolicy {name} makes no difference: {text}"

    def _evicts(self, preemptors: Rows, victims: Rows, pair: PairMatcher) -> tuple[_ExamplePod, _ExamplePod] | None:
        """A preemptor and a victim of a pair; a class and its twin never evict each other."""
        evicting = [pod for pod in chain(*preemptors) if pod.may and pod.meets(pair.preemptors)]
        evicted = [pod for pod in chain(*victims) if pod.may and pod.meets(pair.victims)]
        pairs = product(evicting, evicted)
        return next((pods for pods in pairs if self._value(pods[0]) != self._value(pods[1])), None)

    def _value(self, pod: _ExamplePod) -> str:
        return self._policy.preemptors.twins.get(pod.name, pod.name)

    def _preemptors(self, side: PodsMatch) -> Rows:
        """Pods of a side's classes, and of others that the policy manages."""
        schedulers = self._policy.preemptors.scheduler_names
        named: Settings = () if "default-scheduler" in schedulers else ((_SCHEDULER, schedulers[0]),)

        def may(request: PolicyRequest) -> bool:
            spec = request.object["spec"]
            return self._manages(spec["priorityClassName"]) and spec["schedulerName"] in {*schedulers} - {ANY}

        return self._rows(side, self._managed, [[named]], [], may)

    def _victims(self, side: PodsMatch) -> Rows:
        """Pods of a side's classes and others; authors choose scheduler and annotations."""
        victims = self._policy.victims
        preemptible, windows = victims.annotations.preemptible, victims.annotations.protection
        named = next((name for name in victims.schedulers if name != ANY), "default-scheduler")
        schedulers: list[Settings] = [((_SCHEDULER, named),) if named != "default-scheduler" else ()]
        schedulers += [((_SCHEDULER, "x"),)] if victims.scheduler_names else []
        keeping = [*product(preemptible, ["false"]), *product(windows, [str(_LONG)])]
        keeping += [(row.annotation, value.replace(ANY, "x")) for row in victims.signals for value in row.protects]
        annotations: list[Settings] = [((("object", *_ANNOTATIONS, key), text),) for key, text in keeping]
        says: Settings = ((("priorityClass", *_ANNOTATIONS, preemptible[0]), "true"),)
        opt_in = victims.mode is VictimMode.OPT_IN

        def may(request: PolicyRequest) -> bool:
            profile = profile_of(msgspec.convert(request.object, Pod), self._rules.annotations)
            reason = self._rules.reason(profile, _classes(request))
            return reason.may_go and self._rules.protection(profile) < _LONG

        chosen = [schedulers, [(), *([] if opt_in else annotations)]]
        return self._rows(side, (), [[says if opt_in else ()]], chosen, may)

    def _rows(
        self, side: PodsMatch, classes: Sequence[str], fixed: Parts, free: Parts, may: Callable[[PolicyRequest], bool]
    ) -> Rows:
        """Pods by what a side reads, those that it means first."""
        meant = name_matcher(side.priority_classes or ())
        own = sorted(samples(side.priority_classes or ()), key=lambda name: not self._manages(name))
        names = [*filter(meant, classes), *own][:_MOST_NAMES] + [*classes][:_MOST_NAMES] + [_SOME_CLASS]
        spaces = [UNNAMED, *samples(side.namespaces or (), dots=False)[:_MOST_NAMES]]
        classed: list[Settings] = [((NAME, name), (VALUE, 1000)) for name in dict.fromkeys(names)]
        in_space: list[Settings] = [((NAMESPACE, name),) for name in spaces]
        of_space = label_settings(side.namespace_selector, "namespaceObject")
        chosen = [[rows[1], rows[0], *rows[2:]] for rows in label_settings(side.labels, "object")] + free
        plain, others = [part[0] for part in chosen], sum(len(part) - 1 for part in chosen)
        ways = [tuple(chain(*way)) for way in islice(near(chosen, plain), 1 + others)]

        def pod(settings: Settings) -> _ExamplePod:
            example = Example(PODS, settings)
            request = example.request(self._now)
            return _ExamplePod(example, request, may(request))

        places = islice(product(classed, in_space, *of_space, *fixed), _MOST_PLACES)
        return [[pod((*chain(*place), *way)) for way in ways] for place in places]

    def _joining(self, preemptors: Rows, number: int) -> Iterator[tuple[str, _ExamplePod]]:
        """Who should not preempt by a pair: by choice, or in another namespace."""
        match, side = self._pairs[number].preemptors, self._matchers[number].preemptors
        by_namespace = match.namespaces is not None or match.namespace_selector is not None
        chosen, unnamed = list[_ExamplePod](), list[_ExamplePod]()
        for row in preemptors:
            joining = [pod for pod in row if pod.may and pod.meets(side)]
            chosen += joining if len(joining) < len(row) else []
            if by_namespace and row[0].unnamed and row[0] in joining:
                unnamed.append(row[0])
        for who, pods in ((_BY_CHOICE, chosen), (_BY_NAMESPACE, unnamed)):
            yield from ((who, pod) for pod in islice(filter(self._let_in, pods), 1))

    def _staying(self, victims: Rows) -> dict[Severity, _ExamplePod]:
        """Who is no victim by choice: an annotation for that, or something else."""
        staying: dict[Severity, _ExamplePod] = {}
        for row in victims:
            for pod in row[1:] if self._is_victim(row[0]) else ():
                annotated = "annotations" in pod.request.object["metadata"]
                severity = Severity.NOTICE if annotated else Severity.WARNING
                if severity not in staying and not self._is_victim(pod) and self._let_in(pod):
                    staying[severity] = pod
        return staying

    def _is_victim(self, pod: _ExamplePod) -> bool:
        return pod.may and any(pod.meets(pair.victims) for pair in self._matchers)

    def _let_in(self, pod: _ExamplePod) -> bool:
        """Whether anybody may make the pod, with some value of its class."""
        for value in (1000, 0, 10**9):
            request = Example(PODS, (*pod.example.settings, (VALUE, value))).request(self._now)
            if not any(row.denies for row in self._engine.judge(request)):
                return True
        return False

    def _needless_names(self) -> Needless:
        """Classes that are managed anyway or cannot be, and signals' values that permit nothing."""
        preemptors, victims = self._policy.preemptors, self._policy.victims
        twins = (*preemptors.twins, *preemptors.twins.values())
        for place, text in _needless_elements(preemptors.priority_classes, name_matcher(twins)):
            yield f"preemptors.priorityClasses{place}", text
        opt_in = compile_rules(replace(self._policy, victims=replace(victims, mode=VictimMode.OPT_IN)))
        scheduler = "default-scheduler" if ANY in victims.schedulers else victims.schedulers[0]
        for number, signal in enumerate(victims.signals):
            for at, value in enumerate(signal.permits):
                profile = Profile(_SOME_CLASS, 0, scheduler, ((signal.annotation, value.replace(ANY, "x")),))
                if not (reason := opt_in.reason(profile, {})).may_go:
                    yield f"victims.signals[{number}].permits[{at}]", f"a pod with that value stays: {reason.text}"

    def _needless_pairs(self, sides: Sequence[tuple[Rows, Rows]]) -> Needless:
        """Pairs within others, and parts of pairs that mean everybody or nobody."""
        for number, pair in enumerate(self._pairs if self._policy.victims.pairs else ()):
            place = f"victims.pairs[{number}]"
            others = {*range(len(self._pairs))} - {number}
            pods = [(side, [*chain(*rows)]) for side, rows in zip(_SIDES, sides[number], strict=True)]
            met = [self._met(side, of_side, number) for side, of_side in pods]
            within = all(met) and all(pairs & also & others for pairs, also in product(*met))
            if pair == PreemptionPair() or within:
                yield place, f"without it {sides[number][0][0][0]}, evicts the same pods"
                continue
            for side, of_side in pods:
                for name, text in self._needless_parts(side, getattr(pair, side), of_side):
                    yield f"{place}.{side}.{name}", text

    def _met(self, side: str, pods: Sequence[_ExamplePod], number: int) -> set[frozenset[int]]:
        """The pairs that mean the pods of a side of a pair, by pod."""
        sides = [getattr(pair, side) for pair in self._matchers]
        meant = (pod for pod in pods if pod.may and pod.meets(sides[number]))
        return {frozenset(at for at, other in enumerate(sides) if pod.meets(other)) for pod in meant}

    def _needless_parts(self, side: str, match: PodsMatch, pods: Sequence[_ExamplePod]) -> Needless:
        def met(by: PodsMatch) -> list[bool]:
            (pair,) = self._compiled(PreemptionPair(**{side: by}))
            return [pod.meets(getattr(pair, side)) for pod in pods]

        for field in match.__struct_fields__:
            if getattr(match, field) is not None and met(replace(match, **{field: None})) == met(match):
                yield yaml_name(field), f"without it the same holds of {pods[0]}"
        nobody = name_matcher(())
        unmanaged = (lambda name: not self._manages(name)) if side == "preemptors" else nobody
        for place, text in _needless_elements(match.priority_classes or (), unmanaged):
            yield f"priorityClasses{place}", text
        for place, text in _needless_elements(match.namespaces or (), nobody, dots=False):
            yield f"namespaces{place}", text


def _classes(request: PolicyRequest) -> dict[str, PriorityClass]:
    return {class_.metadata.name: class_} if (class_ := request.priority_class) else {}


def _needless_elements(names: Sequence[str], besides: Callable[[str], bool], *, dots: bool = True) -> Needless:
    """Places of names that mean none, or only what others mean or goes `besides`; `dots` as for samples."""
    for place, name in enumerate(names):
        meant, others = samples([name], dots=dots), name_matcher((*names[:place], *names[place + 1 :]))
        if all(others(each) or besides(each) for each in meant):
            same = f"without it the same holds of {' and '.join(meant)}"
            yield f"[{place}]", same if meant else "there can be no such name"
