"""Small clusters in which a fault once emptied nodes for nothing: `FAULTS` has them by name, with the judgement."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.scenarios import on_request, simulated, slow
from tests.reconciler.harness.virtual_time import now


class Fault(NamedTuple):
    """A cluster in which the fault showed, and how long it lives.

    `evicted` are the pods that go at most, and `bound` says whether the preemptor is bound in the end.
    """

    begin: Callable[[], Cluster]
    evicted: int
    bound: bool
    seconds: float


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
    on_request(made, lambda: setattr(made, "throttled", (now() + 20.0, 1.0)), "evict", done=True)
