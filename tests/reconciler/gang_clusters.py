"""Random clusters with gangs for the reconciler, and one whose every step is known."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.gang_judge import GangJudge
from tests.reconciler.outcome_judge import GANG
from tests.reconciler.random_clusters import running, simulated, waiting
from tests.reconciler.simulation import Simulation
from webhook.policy.model.preemption import GroupDisruption, Groups

Json = dict[str, Any]


def group(name: str, minimum: int) -> Json:
    """A PodGroup of coscheduling."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum}}


def members(name: str, count: int, cpu: int, *, priority: int = 100, first: int = 0, at: float = 0.0) -> list[Json]:
    """Preemptors that belong to a gang."""
    made = [waiting(f"{name}-{number}", random.Random(number), at) for number in range(first, first + count)]
    for one in made:
        one["metadata"]["labels"][GANG] = name
        one["spec"]["priority"] = priority
        one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
    return made


def victim(name: str, on: str, cpu: int, *, of: str = "") -> Json:
    """A pod that may go, and takes no time for it."""
    made = running(name, on, random.Random(1))
    made["metadata"] |= {"annotations": {"godel.bytedance.com/can-be-preempted": "true"}, "ownerReferences": []}
    made["metadata"]["labels"] = {"app": "c"} | ({GANG: of} if of else {})
    made["spec"] |= {"priority": 10, "terminationGracePeriodSeconds": 1}
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
    return made


def plain_gang(*, count: int = 3, whole: bool = False, seed: int = 1) -> tuple[Simulation, GangJudge]:
    """As many full nodes as members, with two victims each, of which one has to go; in groups that go whole if so."""
    under = policy(groups=Groups(disruption=GroupDisruption.GROUP if whole else GroupDisruption.POD))
    made = Simulation(under, [node(f"n{number}", "8") for number in range(count)], [], random.Random(seed))
    made.groups = [group("gang", count)]
    for number in range(count):
        for half in "ab":
            made.put(victim(f"v{number}{half}", f"n{number}", 4, of=half if whole else ""))
    for one in members("gang", count, 4):
        made.put(one)
    return made, GangJudge(made)


def random_gangs(seed: int) -> tuple[Simulation, GangJudge]:
    """A small full cluster, and one or two gangs that come to it at once or bit by bit."""
    made, dice = simulated(seed), random.Random(f"gangs {seed}")
    if dice.random() < 0.4:
        whole = Groups(disruption=GroupDisruption.GROUP)
        made.policy = msgspec.structs.replace(made.policy, groups=whole)
        made.restart()
    made.slow_writes = bool(seed % 2)
    made.shunned.clear()
    loop = asyncio.get_running_loop()
    for one in made.nodes:
        name, room = one["metadata"]["name"], 8
        for number in range(dice.randint(2, 6)):
            pod = running(f"{name}-v{number}", name, dice)
            cpu = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            if cpu > room:
                continue
            room -= cpu
            if dice.random() < 0.4:
                pod["metadata"]["labels"][GANG] = dice.choice(("s", "t"))
            made.put(pod)
            if dice.random() < 0.08:
                made.kept.add(pod["metadata"]["name"])
            if dice.random() < 0.1:
                loop.call_later(dice.uniform(0, 20), made.leave, pod["metadata"]["name"])
    for name in ("gang", "other")[: dice.choice((1, 1, 2))]:
        size, begin = dice.randint(2, 4), dice.choice((0.0, 0.3, dice.uniform(0, 10)))
        made.groups.append(group(name, size))
        cpu, priority = dice.randint(1, 5), dice.choice((100, 100, 110))
        for number in range(size + dice.choice((0, 0, 0, 1, -1))):
            at = begin + dice.choice((0.0, 0.0, 0.1, dice.uniform(0, 10)))
            (one,) = members(name, 1, cpu, priority=priority, first=number, at=at)
            loop.call_later(at, made.put, one)
            if dice.random() < 0.04:
                loop.call_later(at + dice.uniform(0, 10), made.withdraw, one["metadata"]["name"])
    if dice.random() < 0.5:
        made.killed_at = frozenset(dice.sample(range(1, 40), dice.randint(1, 4)))
    if dice.random() < 0.3:
        loop.call_later(dice.uniform(0, 10), made.hold_watch, dice.uniform(0.2, 3.0))
    return made, GangJudge(made)
