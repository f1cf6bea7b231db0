"""Small clusters of which every step is known, and how they live."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim
from tests.reconciler.harness.virtual_time import later, now, run
from webhook.kube.errors import ApiError
from webhook.policy.model.victims import Victims

Happens = Callable[[Cluster], object]


def simulated(*nodes: Json | str, **fields: Any) -> Cluster:
    """A cluster of these nodes, or of n1, n2 and so on with so many CPUs, under a policy with these fields."""
    made = [node(f"n{number}", known) if isinstance(known, str) else known for number, known in enumerate(nodes, 1)]
    return Cluster(policy(**fields), made, random.Random(1))


def two_victims(*others: Json, nodes: int = 1, notice: float = 20.0, **fields: Any) -> Cluster:
    """A full node with two pods, both of which a preemptor needs to go; they are told so many seconds before."""
    made = simulated(*["8"] * nodes, victims=Victims(notice=notice), **fields)
    made.add(victim("a", "n1"), victim("b", "n1"), *others, preemptor(cpu="8"))
    return made


def led(made: Cluster, *ends: float, gap: float = 0.0, ahead: float = 0.0) -> Cluster:
    """One leader after the other, until these seconds and with gaps between; the clocks of the later ones are ahead."""
    bounds = list(pairwise((-gap, *ends, float("inf"))))
    made.terms = [(begin + gap, end, ahead if place else 0.0) for place, (begin, end) in enumerate(bounds)]
    return made


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
    made = simulated("8", "8", **fields)
    second = (victim("b1", "n2"), victim("b2", "n2")) if spare else (fixed("b", "n2", "8"),)
    made.add(victim("a", "n1", "6", grace=int(takes) if grace is None else grace), *second, *others)
    made.ends_after["a"] = takes
    waits = preemptor(cpu=cpu)
    waits["status"]["nominatedNodeName"] = nominated
    later(2.0, made.put, waits)
    return made


def crowded(*pods: Json, cpu: str, covered: str = "", **fields: Any) -> Cluster:
    """A node full of these pods, where every write takes its time; a budget may cover those of one app."""
    made = slow(simulated("8", **fields))
    made.cover(covered, 9)
    made.slow_writes = True
    made.add(*pods, preemptor(cpu=cpu))
    return made


def changed(made: Cluster, name: str, **status: Any) -> None:
    """Somebody changes the status of a pod that is there."""
    if name in made.pods:
        known = made.pods[name]
        made.put({**known, "metadata": dict(known["metadata"]), "status": {**known["status"], **status}})


def annotated(made: Cluster, name: str, texts: dict[str, str], where: str = "annotations") -> None:
    """Somebody writes annotations, or labels, on a pod that is there."""
    if name in made.pods:
        meta = made.pods[name]["metadata"]
        made.put({**made.pods[name], "metadata": {**meta, where: {**meta.get(where, {}), **texts}}})


def on_decision(made: Cluster, what: Callable[..., object], *arguments: object) -> Cluster:
    """Let something happen as soon as the first decision is told."""

    def hear(line: Json) -> None:
        if [known["message"] for known in made.told].count("decision") == 1 and line["message"] == "decision":
            later(0.0, what, *arguments)

    made.heard.append(hear)
    return made


def on_request(
    made: Cluster, what: Callable[[], object], *verbs: str, of: str = "", times: float = 1, done: bool = False
) -> Cluster:
    """Let something happen at the first requests of these verbs, when they arrive or were `done`.

    It may raise the answer, or take its time; `of` is the name of a pod or a Lease, or how that ends.
    """
    left = [times]

    def hear(verb: str, name: str, _: Json) -> object:
        if verb not in verbs or not name.endswith(of) or not left[0]:
            return None
        left[0] -= 1
        return what()

    (made.answered if done else made.arriving).append(hear)
    return made


def answering(made: Cluster, error: ApiError, *verbs: str, of: str = "", until: float = math.inf) -> Cluster:
    """The server answers such requests like that until then."""

    def answer() -> None:
        if now() < until:
            raise error

    return on_request(made, answer, *verbs, of=of, times=math.inf)


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
    is_judged: bool = True,
    **happens: Happens,
) -> Cluster:
    """The cluster that is made when it has lived; something `happens` at `at_SECONDS`, a process is killed at a step.

    No judge has found anything then, unless what happens is not told them.
    """
    lives: list[Cluster] = []

    async def live() -> None:
        made = make()
        lives.append(made)
        made.killed_at |= {killed_at}
        for at, what in happens.items():
            later(float(at[3:].replace("_", ".")), what, made)
        await made.live(seconds)
        assert not is_judged or made.faults() == [], f"killed at step {killed_at}"

    run(live())
    return lives[0]


def killed_at_each_step(
    make: Callable[[], Cluster], seconds: float = 300.0, **more: Any
) -> Iterator[tuple[int, Cluster]]:
    """The same clusters when they have lived, each with another step that is the last of a process; 0 is none."""
    for step in range(lived(make, seconds, **more).steps + 1):
        yield step, lived(make, seconds, killed_at=step, **more)


def bound(made: Cluster, *names: str) -> list[str]:
    """The pods of these names that have a node, or whose names begin so."""
    return sorted(name for name, pod in made.pods.items() if name.startswith(names) and pod["spec"].get("nodeName"))
