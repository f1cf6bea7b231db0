"""Small clusters in which a fault once emptied nodes for nothing: pods, a way to say what may go, and the judgement."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.reconciler.builders import START, policy
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run
from webhook.kube.instants import rfc3339
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

Json = dict[str, Any]
Patch = pytest.MonkeyPatch


def victim(
    name: str, on: str, cpu: str = "4", *, priority: int = 10, owner: str = "", grace: int = 0, **labels: str
) -> Json:
    """A pod on a node that may be evicted."""
    return {
        "metadata": {
            **_metadata(name, labels or {"app": "v"}),
            "annotations": {CAN_BE_PREEMPTED: "true"},
            "ownerReferences": [{"kind": "Job", "name": owner, "uid": owner, "controller": True}] if owner else [],
        },
        "spec": {
            "nodeName": on,
            "priority": priority,
            "priorityClassName": "low",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Running", "startTime": rfc3339(START - 3000 - priority)},
    }


def preemptor(
    name: str = "p", cpu: str = "4", *, priority: int = 100, managed: bool = True, since: float = 0.0
) -> Json:
    """A pod that waits."""
    return {
        "metadata": _metadata(name, {MARK: MANAGED} if managed else {"app": "ordinary"}),
        "spec": {
            "priority": priority,
            "priorityClassName": "high" if managed else "other",
            "schedulerName": "default-scheduler",
            "preemptionPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "preemption: not eligible due to preemptionPolicy=Never.",
                    "lastTransitionTime": rfc3339(START + since),
                }
            ],
        },
    }


def _metadata(name: str, labels: dict[str, str]) -> Json:
    return {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}


def simulated(*nodes: Json, under: PreemptionPolicy | None = None, budgets: tuple[Json, ...] = ()) -> Simulation:
    """A cluster of these nodes."""
    return Simulation(under or policy(), list(nodes), list(budgets), random.Random(1))


class Slowest(random.Random):
    """Everything takes as long as it can."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


def slow(made: Simulation) -> Simulation:
    """A cluster in which everything takes as long as it can."""
    made.dice = made.scheduler.dice = Slowest()
    return made


def later(seconds: float, what: Callable[..., Any], *arguments: Any) -> None:
    """Let something happen after so long."""
    asyncio.get_running_loop().call_later(seconds, what, *arguments)


def throttle_after_the_first(made: Simulation) -> None:
    """Let the server have too much to do for 20 seconds once the first victim has gone."""
    if made.evicted:
        made.throttled = (asyncio.get_running_loop().time() + 20.0, 1.0)
    else:
        later(0.001, throttle_after_the_first, made)


class Fault(NamedTuple):
    """A cluster in which the fault showed, how long it lives, and how to take the mechanism back.

    `evicted` are the pods that go at most, and `bound` says whether the preemptor is bound in the end.
    """

    begin: Callable[[], Simulation]
    seconds: float
    take_back: Callable[[Patch], None]
    evicted: int
    bound: bool = True


def lived(fault: Fault) -> Simulation:
    """The cluster of a fault after its time."""
    clusters: list[Simulation] = []

    async def live() -> None:
        made = fault.begin()
        clusters.append(made)
        await made.live(fault.seconds)

    run(live())
    return clusters[0]


def wrong_with(fault: Fault, made: Simulation) -> list[str]:
    """What the outcome is not as it should be."""
    found = list(made.outcomes.in_vain)
    if len(made.evicted) > fault.evicted:
        found.append(f"{len(made.evicted)} pods went: {made.evicted}")
    if bool(made.pods["p"]["spec"].get("nodeName")) != fault.bound:
        found.append(f"the preemptor is on {made.pods['p']['spec'].get('nodeName')}")
    return found
