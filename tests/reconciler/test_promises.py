"""The two promises over random clusters: no needless eviction, and no preemptor left behind."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.preemption.building import budget, node
from tests.reconciler.builders import START, policy
from tests.reconciler.simulation import Simulation, run
from webhook.kube.instants import rfc3339
from webhook.policy.model import CAN_BE_PREEMPTED, MANAGED, MARK, Limits, Rate

pytestmark = pytest.mark.slow

SETTLED = 1500.0
"""Seconds after the last change of a cluster by others: rates, refusals and back-offs have had their time."""
Json = dict[str, Any]


def running(name: str, on: str, dice: random.Random) -> Json:
    """A pod on a node, which mostly may go, with a grace period of its own."""
    may_go, owner = dice.random() < 0.9, dice.choice(("", "x", "y"))
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": dice.choice(("a", "b", "c"))},
            "annotations": {CAN_BE_PREEMPTED: "true"} if may_go else {},
            "ownerReferences": [{"kind": "Job", "name": owner, "uid": owner, "controller": True}] if owner else [],
        },
        "spec": {
            "nodeName": on,
            "priority": dice.choice((10, 20, 80)),
            "priorityClassName": "low",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": dice.choice((0, 1, 30, 90)),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(dice.randint(1, 4))}}}],
        },
        "status": {"phase": "Running", "startTime": rfc3339(START - dice.randint(0, 3000))},
    }


def waiting(name: str, dice: random.Random, at: float, *, managed: bool = True) -> Json:
    """A pod that found no node: a preemptor, or one that only holds a nomination."""
    since = rfc3339(START + at)
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {MARK: MANAGED} if managed else {"app": "d"},
        },
        "spec": {
            "priority": dice.choice((100, 110, 120)) if managed else dice.choice((50, 90, 105)),
            "priorityClassName": "high" if managed else "other",
            "schedulerName": "default-scheduler",
            "preemptionPolicy": "Never" if managed else "PreemptLowerPriority",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(dice.randint(1, 7))}}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
            ],
        },
    }


def simulated(seed: int) -> Simulation:
    """A small cluster under random rules, whose pods are created when it begins to live."""
    dice = random.Random(seed)
    rate = lambda: dice.choice((None, None, Rate(dice.randint(1, 2), dice.choice((5.0, 60.0)))))  # noqa: E731
    limits = Limits(per_owner=rate(), per_node=rate(), per_cluster=rate(), attempts_per_preemptor=1000)
    under = policy(
        limits=limits, plan_timeout=dice.choice((20.0, 60.0)), wait_for_terminating=dice.choice((0.0, 30.0, 60.0))
    )
    nodes = [node(f"n{number}", "8") for number in range(dice.randint(1, 4))]
    budgets = [budget(f"b-{app}", {"app": app}, dice.randint(0, 2)) for app in ("a", "b") if dice.random() < 0.5]
    made = Simulation(under, nodes, budgets, dice)
    if dice.random() < 0.25:
        made.shunned.add(dice.choice(nodes)["metadata"]["name"])
    return made


async def lived(made: Simulation, seconds: float) -> None:
    """Fill the cluster, let preemptors, nominees and departures come in the first twenty seconds, and let it settle."""
    dice, loop = made.dice, asyncio.get_running_loop()
    rare = random.Random(f"rare {dice.getstate()[1][:2]}")
    for one in made.nodes:
        room = 8
        for number in range(dice.randint(2, 8)):
            pod = running(f"{one['metadata']['name']}-v{number}", one["metadata"]["name"], dice)
            cpu = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            if cpu > room:
                continue
            room -= cpu
            made.put(pod)
            if dice.random() < 0.15:
                made.kept.add(pod["metadata"]["name"])
            if rare.random() < 0.15:
                made.migrating[pod["metadata"]["name"]] = rare.uniform(1, 100)
            if dice.random() < 0.2:
                loop.call_later(dice.choice((0.0, 0.3, dice.uniform(0, 20))), made.leave, pod["metadata"]["name"])
    if dice.random() < 0.4:
        nominee = waiting("nominee", dice, 0.0, managed=False)
        nominee["status"]["nominatedNodeName"] = dice.choice(made.nodes)["metadata"]["name"]
        made.put(nominee)
        if rare.random() < 0.5:
            loop.call_later(rare.uniform(0, 20), made.withdraw, "nominee")
    preempting(made, rare)
    await made.live(seconds)


def preempting(made: Simulation, rare: random.Random) -> None:
    """Let preemptors come; some are deleted soon after."""
    dice, loop = made.dice, asyncio.get_running_loop()
    for number in range(dice.randint(1, 4)):
        at = dice.choice((0.0, 0.3, 0.5, dice.uniform(0, 20)))
        loop.call_later(at, made.put, waiting(f"p{number}", dice, at))
        if rare.random() < 0.1:
            loop.call_later(at + rare.choice((rare.uniform(0, 1), rare.uniform(0, 20))), made.withdraw, f"p{number}")


def holds(seed: int, *, slow_writes: bool = False) -> None:
    """Both promises, in one random cluster."""

    async def check() -> None:
        made = simulated(seed)
        made.slow_writes = slow_writes
        await lived(made, SETTLED)
        assert not made.needless, made.needless
        assert not (stranded := made.stranded()), stranded
        assert len(set(made.evicted)) == len(made.evicted), "nobody is evicted twice"
        assert not (kept := made.remembered()), kept

    run(check())


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9), slow_writes=st.booleans())
@example(seed=34, slow_writes=False)  # a pod that ends between two waves
@example(seed=53, slow_writes=False)  # a plan larger than a rate
@example(seed=93, slow_writes=False)  # room that comes up under a lower nomination
@example(seed=62, slow_writes=False)  # room that comes up while a victim is said to be on its way out
@example(seed=6027, slow_writes=False)  # room that comes up while the first victims leave for long
@example(seed=6522, slow_writes=False)  # a budget that only the more important of its pods can use
@example(seed=22, slow_writes=True)  # a pod that leaves anyway, and that the policy would not let go
@example(seed=692, slow_writes=True)  # a pod that counts as gone by now, though nothing was seen to happen
@example(seed=489, slow_writes=True)  # room that comes up beside a nominated pod
def test_no_needless_eviction_and_nobody_left_behind(seed: int, slow_writes: bool):
    """Nobody goes for a preemptor that fits without it; nobody waits while a plan within the rules exists."""
    holds(seed, slow_writes=slow_writes)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9), slow_writes=st.booleans())
def test_the_same_for_longer(seed: int, slow_writes: bool):
    """The same over many more clusters."""
    holds(seed, slow_writes=slow_writes)
