"""Whether nobody is evicted whom the rules forbid: by who said that it may go, and by what went in each window."""

import asyncio
from typing import Any

from tests.reconciler.harness.cluster import Cluster
from webhook.policy.model.values import CAN_BE_PREEMPTED

Json = dict[str, Any]
_SLOW = 1.0
"""Seconds by which an eviction may be done later than it was decided."""


class RuleJudge:
    """Looks at each eviction when it is asked for, and counts those that are done."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._found: list[str] = []
        self._done: list[tuple[float, str, str, str]] = []
        """When, and of whom on which node and of which owner."""
        cluster.asked.append(self._asked)
        cluster.answered.append(self._answered)

    def faults(self, settled: float) -> list[str]:
        """Who went though it may not, and windows in which more went than a rate lets."""
        del settled
        # A leader that was killed, or whose clock is wrong, counts what it can.
        exact = not (self.cluster.terms or self.cluster.killed_at)
        return self._found + (self._beyond_rates() if exact else [])

    def _asked(self, name: str) -> None:
        states = [pod for pod in (self.cluster.pods.get(name), self.cluster.seen.get(name)) if pod is not None]
        if not any(pod["metadata"].get("annotations", {}).get(CAN_BE_PREEMPTED) == "true" for pod in states):
            self._found.append(f"{name} is asked, which never said that it may go")

    def _answered(self, verb: str, name: str, _: Json) -> None:
        if verb in ("evict", "delete"):
            pod = self.cluster.pods[name]
            owner = next((owner["name"] for owner in pod["metadata"].get("ownerReferences", ())), "")
            self._done.append((asyncio.get_running_loop().time(), name, pod["spec"]["nodeName"], owner))

    def _beyond_rates(self) -> list[str]:
        limits, found = self.cluster.policy.limits, list[str]()
        for rate, place in ((limits.per_cluster, None), (limits.per_node, 2), (limits.per_owner, 3)):
            for row in self._done if rate is not None else ():
                same = [other for other in self._done if place is None or (row[place] and other[place] == row[place])]
                window = [other[1] for other in same if row[0] - rate.window + _SLOW < other[0] <= row[0]]
                if len(window) > rate.evictions:
                    found.append(f"{window} went within {rate.window} s")
        return found
