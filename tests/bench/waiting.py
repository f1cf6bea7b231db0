"""What one event costs while thousands of preemptors wait for whom nothing helps, and how long the loop stands still.

10 000 of them, of 20 shapes, on 5 000 nodes; forty events a second that could help: a pod that may not go ends, and
another one comes. Beside it the same with 20 preemptors: who waits must not make an event dearer. Seconds are those of
the processor, so that a busy machine makes no difference.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import msgspec

from tests.bench.measuring import best
from tests.reconciler.builders import START, Desk, Setting, node, pod, preemptor
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.kube.resources import PERSISTENT_VOLUME_CLAIM

NODES, PODS_A_NODE, SHAPES = 5000, 4, 20
SECONDS, EVENTS = 20.0, 40
"""Seconds that pass, after as many in which back-off grows; events a second."""


class ProcessorClock:
    """A clock that counts the processor's seconds, and those that were skipped because there was nothing to do."""

    now = 0.0

    def __init__(self) -> None:
        self.skipped, self._begun = 0.0, time.process_time()

    def monotonic(self) -> float:
        return time.process_time() - self._begun + self.skipped

    def wall(self) -> float:
        return START + self.monotonic()

    def stopwatch(self) -> float:
        return time.process_time()


@dataclass
class Cost:
    """Milliseconds of an event's handler, of the longest turn of the loop, and of all work for each event."""

    event: float
    turn: float
    all: float


def waiting() -> None:
    """Run the benchmark."""
    few, many = asyncio.run(_measure(20)), asyncio.run(_measure(10_000))
    for count, cost in ((20, few), (10_000, many)):
        print(
            f"{count:6} waiting preemptors of {SHAPES} shapes, {NODES} nodes: an event {cost.event:.3f} ms,"
            f" longest turn {cost.turn:.1f} ms, all work {cost.all:.2f} ms an event"
        )
    print(f"an event with 10 000 waiting: {many.event / few.event:.2f} of one with 20")


def in_front() -> None:
    """What a decision costs with 200 alike pods of higher priority in front: plain, with claims, of a DaemonSet."""
    costs = []
    for count, kind in ((0, ""), (200, ""), (200, "claims"), (200, "DaemonSet")):
        setting = Setting(*(node(f"n{number}") for number in range(1000)))
        setting.add(*(pod(f"v{number}-{place}", node=f"n{number}") for number in range(1000) for place in range(4)))
        for number in range(count):
            name, spec = f"data-front-{number}", {}
            if kind == "DaemonSet":
                term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]}
                required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
                spec = {"affinity": {"nodeAffinity": required}}
            elif kind:
                spec = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}
                made = {"metadata": {"name": name, "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
                claim = msgspec.convert(made, PersistentVolumeClaim)
                setting.state.caches[PERSISTENT_VOLUME_CLAIM].take(f"default/{name}", claim)
            setting.add(preemptor(f"front-{number}", priority=200, class_name="other", spec=spec))
        costs.append(best(lambda at=setting: at.evaluate(preemptor()), 9, time.process_time))
    print(
        f"a decision on 1000 nodes: {costs[0]:.1f} ms, with 200 pods in front {costs[1]:.1f} ms,"
        f" with 200 that have claims {costs[2]:.1f} ms, with 200 of a DaemonSet {costs[3]:.1f} ms (at most 8 asked)"
    )


async def _measure(count: int) -> Cost:
    setting = Setting(*(node(f"n{number}", "64") for number in range(NODES)))
    places = ((number, place) for number in range(NODES) for place in range(PODS_A_NODE))
    setting.add(*(pod(f"v{number}-{place}", "16", node=f"n{number}", annotations={}) for number, place in places))
    clock = ProcessorClock()
    setting.clock = setting.evaluator.clock = clock  # type: ignore[assignment]
    desk = Desk(setting)
    for number in range(count):
        setting.add(preemptor(f"h{number}", str(65 + number % SHAPES)))
    await _live(desk, setting, clock)
    cost = await _live(desk, setting, clock)
    await desk.reconciler.stop()
    return cost


async def _live(desk: Desk, setting: Setting, clock: ProcessorClock) -> Cost:
    handlers, turns, events = 0.0, [0.0], 0
    begun, due = time.process_time(), clock.monotonic()
    end = due + SECONDS
    while clock.monotonic() < end:
        if clock.monotonic() >= due:
            due += 2 / EVENTS
            events += 2
            name, on = f"v{events % NODES}-0", f"n{events % NODES}"
            made = pod(name, "16", node=on, annotations={})
            at = time.process_time()
            setting.remove(f"default/{name}")
            setting.add(made)
            handlers += time.process_time() - at
        at = time.process_time()
        desk.reconciler.turn()
        turns.append(time.process_time() - at)
        await asyncio.sleep(0)
        if turns[-1] < 0.0005:
            clock.skipped += 0.005
    busy = time.process_time() - begun
    return Cost(1e3 * handlers / events, 1e3 * max(turns), 1e3 * busy / events)
