"""What rules cost: those that do not match, those that do, CEL, and loading."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

from tests.bench.measuring import ROOT
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import LabelSelector, ObjectMeta
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import PolicyRequest, UserInfo
from webhook.policy.files.loading import load
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityClasses, PriorityRule, Reserve, Validate
from webhook.policy.shapes.yaml_nodes import SourcePosition

COUNTS = (10, 100, 1000)
_ROUNDS, _CALLS = 20, 200

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "team-a", "labels": {"app": "web", "tier": "front"}},
    "spec": {
        "priorityClassName": "standard",
        "priority": 1000,
        "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    },
}
REQUEST = PolicyRequest(
    operation="CREATE",
    resource="pods",
    object=POD,
    namespace="team-a",
    name="web",
    user=UserInfo("alice", ("dev", "system:authenticated")),
    namespace_object=Namespace(metadata=ObjectMeta(name="team-a", labels={"stage": "prod"})),
    priority_class=PriorityClass(metadata=ObjectMeta(name="standard"), value=1000),
    priority=1000,
)
_DENY = {"priority_classes": PriorityClasses(deny=("*",))}


def _policy(number: int, match: RequestMatch, body: dict[str, object]) -> PriorityPolicy:
    rule = PriorityRule(name="r", source=SourcePosition(), enforcement=Enforcement.ENFORCE, **body)  # type: ignore[arg-type]  # one of several bodies
    return PriorityPolicy(name=f"p{number}", source=SourcePosition(), match=match, rules=(rule,))


def _labels(number: int) -> LabelSelector:
    return LabelSelector(match_labels={"app": f"other-{number}"})


KINDS: dict[str, Callable[[int], PriorityPolicy]] = {
    "another namespace": lambda n: _policy(n, RequestMatch(namespaces=(f"other-{n}",)), _DENY),
    "another namespace glob": lambda n: _policy(n, RequestMatch(namespaces=(f"other-{n}-*",)), _DENY),
    "another group": lambda n: _policy(n, RequestMatch(subjects=(Subject("Group", f"other-{n}"),)), _DENY),
    "another object label": lambda n: _policy(n, RequestMatch(object_selector=_labels(n)), _DENY),
    "another namespace label": lambda n: _policy(n, RequestMatch(namespace_selector=_labels(n)), _DENY),
    "another range of values": lambda n: _policy(
        n, RequestMatch(), {"reserve": Reserve(from_=10_000 + 2 * n, to=10_001 + 2 * n)}
    ),
    "CEL, another namespace": lambda n: _policy(
        n, RequestMatch(namespaces=(f"other-{n}",)), {"validate": Validate(expression="object.spec.priority < 0")}
    ),
    "nothing to index by": lambda n: _policy(n, RequestMatch(namespaces=(f"*-other-{n}",)), _DENY),
}
"""What the rules ask for that the request is not; the last kind has to be tried one by one."""


def _microseconds(call: Callable[[], object]) -> float:
    """The best of several rounds."""
    return min(timeit.repeat(call, number=_CALLS, repeat=_ROUNDS)) / _CALLS * 1e6


def _judging(policies: list[PriorityPolicy]) -> float:
    engine = Engine(Policies(priority=tuple(policies)))
    return _microseconds(lambda: engine.judge(REQUEST))


def _matching() -> None:
    allowed = {"priority_classes": PriorityClasses(allow=("standard",))}
    cel = {"validate": Validate(expression='object.spec.priority <= 1000 && "app" in object.metadata.labels')}
    for name, body in (("priorityClasses", allowed), ("validate (CEL)", cel)):
        costs = [_judging([_policy(n, RequestMatch(), body) for n in range(count)]) for count in (1, 10)]
        print(f"  {name:<26}{costs[0]:>8.1f} µs for one, {(costs[1] - costs[0]) / 9:.1f} µs for each further one")


def main() -> None:
    """Print the cost of judging one pod."""
    nothing = _judging([])
    print(f"one pod judged by no rule: {nothing:.1f} µs")
    print("\nrules that do not match" + "".join(f"{count:>10}" for count in COUNTS) + "   µs a pod")
    for name, make in KINDS.items():
        costs = [_judging([make(number) for number in range(count)]) for count in COUNTS]
        print(
            f"  {name:<26}"
            + "".join(f"{cost:>8.1f}  " for cost in costs)
            + f"   1000 cost {costs[-1] / costs[0]:.1f}x of 10"
        )
    print("\nrules that match and allow")
    _matching()
    began = time.perf_counter()
    shipped = Engine(load(ROOT / "policies").policies)
    loading = time.perf_counter() - began
    cost = _microseconds(lambda: shipped.judge(REQUEST))
    print(f"\nshipped policies: {cost:.1f} µs a pod; loaded and compiled in {loading * 1e3:.0f} ms")
