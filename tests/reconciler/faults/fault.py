"""A small cluster in which a fault once emptied nodes for nothing, and the judgement of it."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.scenarios import later


class Fault(NamedTuple):
    """A cluster in which the fault showed, and how long it lives.

    `evicted` are the pods that go at most, and `bound` says whether the preemptor is bound in the end.
    """

    begin: Callable[[], Cluster]
    seconds: float
    evicted: int
    bound: bool = True

    def wrong_with(self, made: Cluster) -> list[str]:
        """What the outcome is not as it should be."""
        found = list(made.outcomes.in_vain)
        if len(made.evicted) > self.evicted:
            found.append(f"{len(made.evicted)} pods went: {made.evicted}")
        if bool(made.pods["p"]["spec"].get("nodeName")) != self.bound:
            found.append(f"the preemptor is on {made.pods['p']['spec'].get('nodeName')}")
        return found


def throttle_after_the_first(made: Cluster) -> None:
    """Let the server have too much to do for 20 seconds once the first victim has gone."""
    if made.evicted:
        made.throttled = (asyncio.get_running_loop().time() + 20.0, 1.0)
    else:
        later(0.001, throttle_after_the_first, made)
