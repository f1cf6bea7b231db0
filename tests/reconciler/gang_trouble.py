"""Groups and gangs in random clusters in which a good deal goes wrong, beside pods that preempt by themselves."""

from __future__ import annotations

import asyncio
import random

import msgspec

from tests.reconciler.gang_clusters import group, members
from tests.reconciler.outcome_judge import GANG
from tests.reconciler.random_clusters import troubled
from tests.reconciler.simulation import Simulation
from webhook.policy.model.preemption import GroupDisruption, Groups

_VICTIMS = ("s", "t", "u")


def troubled_gangs(seed: int) -> Simulation:
    """A cluster of `troubled` in which groups mostly go whole."""
    made, dice = troubled(seed), random.Random(f"troubled gangs {seed}")
    if dice.random() < 0.7:
        made.policy = msgspec.structs.replace(made.policy, groups=Groups(disruption=GroupDisruption.GROUP))
        made.restart()
    for name in _VICTIMS:
        if dice.random() < 0.4:
            made.groups.append(group(name, dice.randint(1, 3)))
    if not made.terms and dice.random() < 0.3:
        made.killed_at = frozenset(dice.sample(range(1, 60), dice.randint(1, 4)))
    return made


def gangs_beside(made: Simulation, rare: random.Random) -> None:
    """Let pods that run be members of groups, and gangs come at once or bit by bit, some of which change on the way."""
    loop, dice = asyncio.get_running_loop(), random.Random(f"gangs {rare.random()}")
    for pod in list(made.pods.values()):
        if pod["spec"].get("nodeName") and dice.random() < 0.5:
            labels = {**pod["metadata"]["labels"], GANG: dice.choice(_VICTIMS)}
            made.put({**pod, "metadata": {**pod["metadata"], "labels": labels}})
    for name in ("gang", "other")[: dice.choice((1, 1, 2))]:
        size, begin = dice.randint(2, 4), dice.choice((0.0, 0.3, dice.uniform(0, 20)))
        made.groups.append(group(name, size))
        cpu, priority = dice.randint(1, 5), dice.choice((100, 110, 120))
        for number in range(size + dice.choice((0, 0, 0, 1, -1))):
            at = begin + dice.choice((0.0, 0.0, 0.1, dice.uniform(0, 10)))
            (one,) = members(name, 1, cpu, priority=priority, first=number, at=at)
            loop.call_later(at, made.put, one)
            if dice.random() < 0.05:
                loop.call_later(
                    at + dice.choice((dice.uniform(0, 1), dice.uniform(0, 20))), made.withdraw, f"{name}-{number}"
                )
