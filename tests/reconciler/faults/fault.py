"""Small clusters in which a fault once emptied nodes for nothing: `FAULTS` has them by name, with the judgement."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.scenarios import later, simulated, slow


class Fault(NamedTuple):
    """A cluster in which the fault showed, and how long it lives.

    `evicted` are the pods that go at most, and `bound` says whether the preemptor is bound in the end.
    """

    begin: Callable[[], Cluster]
    evicted: int
    bound: bool
    seconds: float

    def wrong_with(self, made: Cluster) -> list[str]:
        """What the outcome is not as it should be."""
        wrong = []
        if len(made.evicted) > self.evicted:
            wrong.append(f"{len(made.evicted)} pods went: {made.evicted}")
        if bool(made.pods["p"]["spec"].get("nodeName")) != self.bound:
            wrong.append(f"the preemptor is on {made.pods['p']['spec'].get('nodeName')}")
        return wrong


FAULTS: dict[str, Fault] = {}


def fault(
    *cpus: str, evicted: int = 0, bound: bool = True, seconds: float = 100.0, is_slow: bool = False, **fields: Any
) -> Callable[[Callable[[Cluster], object]], Callable[[Cluster], object]]:
    """The function fills a cluster of nodes n1, n2 and so on of so many CPUs, under a policy with these fields.

    In a slow one everything takes as long as it can.
    """

    def begin(fill: Callable[[Cluster], object]) -> Cluster:
        made = simulated(*cpus, **fields)
        fill(slow(made) if is_slow else made)
        return made

    def register(fill: Callable[[Cluster], object]) -> Callable[[Cluster], object]:
        FAULTS[fill.__name__.replace("_", " ")] = Fault(partial(begin, fill), evicted, bound, seconds)
        return fill

    return register


def throttle_after_the_first(made: Cluster) -> None:
    """Let the server have too much to do for 20 seconds once the first victim has gone."""
    if made.evicted:
        made.throttled = (asyncio.get_running_loop().time() + 20.0, 1.0)
    else:
        later(0.001, throttle_after_the_first, made)
