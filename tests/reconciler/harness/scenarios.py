"""Small clusters of which every step is known: how they live, and what must be right in the end."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.notice_judge import NoticeJudge
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim
from tests.reconciler.harness.spare_judge import remembered
from tests.reconciler.harness.virtual_time import run
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.victims import Victims


def simulated(*nodes: Json, under: PreemptionPolicy | None = None, budgets: tuple[Json, ...] = ()) -> Cluster:
    """A cluster of these nodes."""
    return Cluster(under or policy(), list(nodes), list(budgets), random.Random(1))


def two_victims(*others: Json, nodes: int = 1, notice: float = 20.0, **fields: Any) -> Cluster:
    """A full node with two pods, both of which a preemptor needs to go; they are told so many seconds before."""
    under = policy(victims=Victims(notice=notice), **fields)
    made = simulated(*(node(f"n{number}", "8") for number in range(1, nodes + 1)), under=under)
    for pod in (victim("a", "n1"), victim("b", "n1"), *others, preemptor(cpu="8")):
        made.put(pod)
    return made


def later(seconds: float, what: Callable[..., Any], *arguments: Any) -> None:
    """Let something happen after so long."""
    asyncio.get_running_loop().call_later(seconds, what, *arguments)


class Slowest(random.Random):
    """Everything takes as long as it can."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


def slow(made: Cluster) -> Cluster:
    """A cluster in which everything takes as long as it can."""
    made.dice = made.scheduler.dice = Slowest()
    return made


def full(
    *others: Json,
    cpu: str = "5",
    takes: float = 0.0,
    grace: int | None = None,
    spare: bool = True,
    nominated: str = "",
    **fields: Any,
) -> Cluster:
    """Node n1 is full of pod a, which takes so long to end, n2 of two that may go if `spare`; p comes after 2 s."""
    made = simulated(node("n1", "8"), node("n2", "8"), under=policy(**fields))
    second = (victim("b1", "n2"), victim("b2", "n2")) if spare else (fixed("b", "n2", "8"),)
    made.add(victim("a", "n1", "6", grace=int(takes) if grace is None else grace), *second, *others)
    made.ends_after["a"] = takes
    waits = preemptor(cpu=cpu)
    waits["status"]["nominatedNodeName"] = nominated
    later(2.0, made.put, waits)
    return made


def crowded(*pods: Json, cpu: str, covered: str = "", **fields: Any) -> Cluster:
    """A node full of these pods, where every write takes its time; a budget may cover those of one app."""
    made = slow(simulated(node("n1", "8"), under=policy(**fields), budgets=(budget("b", {"app": covered}, 9),)))
    made.slow_writes = True
    made.add(*pods, preemptor(cpu=cpu))
    return made


def changed(made: Cluster, name: str, **status: Any) -> None:
    """Somebody changes the status of a pod that is there."""
    if name in made.pods:
        known = made.pods[name]
        made.put({**known, "metadata": dict(known["metadata"]), "status": {**known["status"], **status}})


def on_decision(made: Cluster, what: Callable[..., object], *arguments: object) -> Cluster:
    """Let something happen as soon as the first decision is told."""

    def hear(line: Json) -> None:
        if [one["message"] for one in made.told].count("decision") == 1 and line["message"] == "decision":
            asyncio.get_running_loop().call_soon(what, *arguments)

    made.heard.append(hear)
    return made


def clearing(made: Cluster, said: str = "no node") -> Cluster:
    """A scheduler clears each nomination after a second; without PostFilter plugins it says nothing of preemption."""
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}

    def hear(_: Json | None, new: Json | None) -> None:
        if new is not None and new["status"].get("nominatedNodeName"):
            clear = {"nominatedNodeName": "", "conditions": [why]}
            later(1.0, partial(changed, made, new["metadata"]["name"], **clear))

    made.changes.append(hear)
    return made


def lived(
    make: Callable[[], Cluster],
    seconds: float = 300.0,
    *,
    killed_at: int = 0,
    judge: Callable[[Cluster], Any] = attrgetter("outcomes"),
    **happens: Callable[[Cluster], object],
) -> tuple[Cluster, Any]:
    """The cluster that is made, and its judge, when it has lived; something `happens` at `at_SECONDS`.

    The process may be killed at a step.
    """
    found: list[tuple[Cluster, Any]] = []

    async def live() -> None:
        made = make()
        found.append((made, judge(made)))
        made.killed_at |= {killed_at}
        for at, what in happens.items():
            later(float(at[3:].replace("_", ".")), what, made)
        await made.live(seconds)

    run(live())
    return found[0]


def faultless(made: Cluster, judge: NoticeJudge) -> bool:
    """Nothing is wrong with any notice, none is left over, no plan evicted in vain, and all is forgotten."""
    assert not judge.faults(0.0)
    assert not made.outcomes.in_vain
    assert not remembered(made)
    return True


def bound(made: Cluster, *names: str) -> list[str]:
    """The pods of these names that have a node, or whose names begin so."""
    return sorted(name for name, pod in made.pods.items() if name.startswith(names) and pod["spec"].get("nodeName"))
