"""Small clusters of which every step is known: how they live, and what must be right in the end."""

import asyncio
import random
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.notice_judge import NoticeJudge
from tests.reconciler.harness.pods import Json, preemptor, victim
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
