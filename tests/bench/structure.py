"""How the program is divided, and how far a reader goes: figures of its files and functions, and the ways through it.

A way is what happens from the first call to the last for one review, one decision, one plan and one adoption by a new
leader, as the interpreter sees it. Per way: the files and functions, and which calls go from a lower layer to a higher
one by the import contracts in pyproject.toml. The ways of a plan and of an adoption are those inside
`webhook.reconciler`: the decision in them has a line of its own.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
from prometheus_client import CollectorRegistry

from tests.admission import builders as admission
from tests.preemption import building
from tests.reconciler import builders
from tests.reconciler.builders import ClassesOfPods
from tests.reconciler.harness.api_server import ApiClient
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.virtual_time import SimulatedClock, run
from webhook.clusters.simulated.clock import VirtualLoop
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import PriorityClasses
from webhook.policy.model.values import PLAN
from webhook.preemption.decision import decide
from webhook.preemption.victims.rules import Rules, kubernetes_rules
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import sealed
from webhook.reconciler.state.state import State

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


@dataclass
class Package:
    """A folder's lines per file, lines per function, and its public classes."""

    files: dict[str, int] = field(default_factory=dict)
    functions: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Count one module."""
        text = path.read_text()
        if path.name != "__init__.py":
            self.files[str(path.relative_to(ROOT))] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.classes.append(node.name)


def packages() -> dict[str, Package]:
    """The packages of the program by name, and `certs`."""
    found: dict[str, Package] = {}
    for path in sorted([*(ROOT / "webhook").rglob("*.py"), *(ROOT / "certs").rglob("*.py")]):
        parts = path.relative_to(ROOT).parts
        found.setdefault("/".join(parts[: min(2, len(parts) - 1)]), Package()).add(path)
    return found


def _places() -> list[dict[str, int]]:
    """The contracts about layers: for each, the place of a module from above."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [
        {
            f"{container}.{module}".lstrip("."): place
            for place, layer in enumerate(contract["layers"])
            for module in re.split(r"\s*[|:]\s*", layer)
        }
        for contract in contracts
        if contract["type"] == "layers"
        for container in contract.get("containers", [""])
    ]


@dataclass
class Way:
    """What was called, in order; `within` is the package whose functions count."""

    name: str
    within: str = "webhook"
    until: str = ""
    """The way ends before the first function of this package."""
    read: dict[tuple[str, str], None] = field(default_factory=dict)
    """File and function, in the order of their first call."""
    upward: set[str] = field(default_factory=set)
    _layers: list[dict[str, int]] = field(default_factory=_places)

    @property
    def files(self) -> set[str]:
        """The files that were entered."""
        return {file for file, _ in self.read}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call, as `sys.setprofile` tells it."""
        module = _module(frame)
        if event != "call" or not _counts(frame, module):
            return
        if self.until and module.startswith(self.until):
            sys.setprofile(None)
            return
        caller = _caller(frame)
        if caller is not None and self._is_upward(_module(caller), module):
            self.upward.add(f"{_module(caller)}.{caller.f_code.co_qualname} → {module}.{frame.f_code.co_qualname}")
        if f"{module}.".startswith(f"{self.within}."):
            self.read.setdefault((module, frame.f_code.co_qualname))

    def _is_upward(self, caller: str, called: str) -> bool:
        """Whether a call from one module to the other goes from a lower layer to a higher one."""

        def place(places: dict[str, int], module: str) -> int | None:
            return next((at for name, at in places.items() if f"{module}.".startswith(f"{name}.")), None)

        pairs = ((place(places, caller), place(places, called)) for places in self._layers)
        return any(below is not None and above is not None and below > above for below, above in pairs)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _counts(frame: FrameType, module: str) -> bool:
    """Whether the program is called: no comprehension, dataclass's method, coroutine that goes on, or tests' clock."""
    code = frame.f_code
    goes_on = code.co_flags & 0x2A0 and frame.f_lasti > 0
    return (
        module.startswith("webhook.")
        and module != VirtualLoop.__module__
        and code.co_name[0] != "<"
        and "__create_fn__" not in code.co_qualname
        and not goes_on
    )


def _caller(frame: FrameType) -> FrameType | None:
    """The nearest function of the program above; none if a test called."""
    above = frame.f_back
    while above is not None and not (_module(above).startswith("webhook.") and above.f_code.co_name[0] != "<"):
        if _module(above).startswith("tests.") and not _module(above).startswith(__name__):
            return None
        above = above.f_back
    return above


def follow(name: str) -> Way:
    """Follow a way of WAYS."""
    way = Way(name)
    WAYS[name](way)
    return way


def _called_twice(work: Callable[[], None], way: Way) -> None:
    work()  # what is compiled or interned once is not the way
    sys.setprofile(way)
    work()
    sys.setprofile(None)


def _review(phase: Literal["mutate", "validate"]) -> Callable[[], None]:
    policy = admission.make_policy(
        "classes", admission.make_rule("only", priority_classes=PriorityClasses(allow=("low*",)))
    )
    context = admission.make_context(admission.make_class("low", 10), policies=(policy, admission.manage("low*")))
    pod = admission.make_pod(priorityClassName="low", priority=10, preemptionPolicy="PreemptLowerPriority")
    body = json.dumps(admission.make_review(pod)).encode()

    def work() -> None:
        assert admission.ask(context, phase, body).code == 200

    return work


def _decision(rules: Rules) -> Callable[[], None]:
    nodes = [building.node(f"n{number}") for number in range(3)]
    pods = [building.pod(f"p{number}", on=f"n{number % 3}", cpu="2", priority=number) for number in range(6)]
    preemptor = building.pod("preemptor", priority=100, cpu="3")
    data = building.cluster(nodes, pods, preemptor, podDisruptionBudgets=[building.budget("one", {"app": "p1"}, 1)])
    snapshot, pod = building.snapshot_of(data, rules), building.as_pod(data["preemptor"])

    def work() -> None:
        assert decide(snapshot, pod, rules, building.NOW).selected

    return work


class _First:
    """Dice that always show the first side."""

    def choice(self, sides: Any) -> Any:
        return sides[0]


def _cluster() -> Cluster:
    made = Cluster(builders.policy(), [building.node("n1", "8")], [], _First())  # type: ignore[arg-type]
    made.publish()
    return made


async def _lead(cluster: Cluster) -> None:
    """A reconciler at work without its service, and the scheduler."""
    client: Any = ApiClient(cluster)
    policy_set = PolicySet(Policies(preemption=(cluster.policy,)))
    state = State(client, policy_set.annotations())
    state.snapshot.classes.__class__ = ClassesOfPods
    reporter = Reporter(ReconcilerMetrics(CollectorRegistry()), cluster.tell, None)
    reconciler = Reconciler(client, state, policy_set, reporter, SimulatedClock(), fence=lambda: 1000.0)
    await asyncio.gather(state.run(), reconciler.lead(), cluster.scheduler.work())


def _victims(cluster: Cluster) -> None:
    for number in range(2):
        cluster.put(victim(f"v{number}", "n1", priority=10 + number, grace=1))


async def _bound(cluster: Cluster, way: Way) -> None:
    await asyncio.sleep(5)
    sys.setprofile(None)
    assert cluster.seen["p"]["spec"]["nodeName"] == "n1", way
    assert sorted(cluster.evicted) == ["v0", "v1"], way


async def _plan(way: Way) -> None:
    cluster = _cluster()
    life = asyncio.create_task(_lead(cluster))
    await asyncio.sleep(0.5)
    _victims(cluster)
    await asyncio.sleep(1.0)
    sys.setprofile(way)
    cluster.put(preemptor(cpu="8"))
    await _bound(cluster, way)
    life.cancel()


async def _adoption(way: Way) -> None:
    record = {
        "id": "abc",
        "node": "n1",
        "policy": "test",
        "attempt": 1,
        "version": 1,
        "deadline": rfc3339(builders.START + 300),
        "victims": [{"namespace": "default", "name": f"v{number}", "uid": f"uid-v{number}"} for number in range(2)],
    }
    cluster = _cluster()
    _victims(cluster)
    pod = preemptor(cpu="8")
    made = msgspec.convert(pod, Pod)
    pod["metadata"]["annotations"] = {PLAN: sealed(json.dumps(record), made, "", "")}
    pod["status"]["nominatedNodeName"] = "n1"
    cluster.put(pod)
    await asyncio.sleep(1.0)
    sys.setprofile(way)
    life = asyncio.create_task(_lead(cluster))
    await _bound(cluster, way)
    life.cancel()


def _in_reconciler(way: Way, live: Callable[[Way], Coroutine[Any, Any, None]], until: str = "") -> None:
    way.within, way.until = "webhook.reconciler", until
    run(live(way))


WAYS: dict[str, Callable[[Way], None]] = {
    "review, mutate": partial(_called_twice, _review("mutate")),
    "review, validate": partial(_called_twice, _review("validate")),
    "decision, Kubernetes' rules": partial(_called_twice, _decision(kubernetes_rules())),
    "decision, a policy": partial(_called_twice, _decision(building.rules())),
    "plan, from event to binding": partial(_in_reconciler, live=_plan),
    "adoption, until its executor begins": partial(_in_reconciler, live=_adoption, until="webhook.reconciler.evict"),
    "adoption, to the last eviction": partial(_in_reconciler, live=_adoption),
}


def main() -> None:
    """Print the table and the ways."""
    total = Package()
    rows = packages() | {"all": total}
    for package in packages().values():
        total.files |= package.files
        total.functions += package.functions
    print(f"{'package':24} files  lines  median/p90/max  functions  median/p90/max")
    for name, row in rows.items():
        lines = list(row.files.values()) or [0]
        functions = row.functions or [0]
        print(
            f"{name:24} {len(row.files):5}  {sum(lines):5}  {_spread(lines):>14}  {len(row.functions):9}"
            f"  {_spread(functions):>14}"
        )
    print(f"\n{'way':42} files  functions  calls upward")
    for way in map(follow, WAYS):
        print(f"{way.name:42} {len(way.files):5}  {len(way.read):9}  {len(way.upward):12}")
        for call in sorted(way.upward):
            print(f"    {call}")
        if "--calls" in sys.argv:
            for file, function in way.read:
                print(f"    {file}  {function}")


def _spread(numbers: list[int]) -> str:
    ordered = sorted(numbers)
    return f"{statistics.median_low(ordered)}/{ordered[int(len(ordered) * 0.9)]}/{ordered[-1]}"
