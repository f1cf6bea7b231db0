"""kube-scheduler's part in a simulated cluster, played by the oracle, which shares no code with the decision."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.preemption import oracle
from tests.reconciler.builders import START
from tests.reconciler.harness.devices import bare
from tests.reconciler.harness.pods import Json, minimum_of
from tests.reconciler.harness.virtual_time import now
from webhook.kube.instants import rfc3339

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

_BACK_OFF = (1.0, 10.0)


class SimulatedScheduler:
    """Binds what fits, the highest priority first, its nominated node first; says of the others why they wait.

    Until `away_until` it does nothing. It takes one of `pauses` seconds for a turn, and leaves a pod alone for a while
    after a failed attempt if it `backs_off`. To nodes that it `shuns` it binds nobody, for a reason no object shows.
    """

    def __init__(self, cluster: Cluster, dice: Any) -> None:
        self.cluster, self.dice = cluster, dice
        self.pauses: tuple[float, ...] = (0.01, 0.1, 1.0)
        self.away_until = 0.0
        self.backs_off = False
        self.shuns: set[str] = set()
        self.woken = asyncio.Event()
        self._failures: dict[str, tuple[int, float]] = {}

    async def work(self) -> None:
        """Schedule until it is cancelled."""
        while True:
            due = min((due for _, due in self._failures.values() if due > now()), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self.woken.wait()
            self.woken.clear()
            await asyncio.sleep(self.dice.choice(self.pauses))
            if now() < self.away_until:
                await asyncio.sleep(self.away_until - now())
            waiting = [pod for pod in self.cluster.pods.values() if _waits(pod)]
            self._failures = {
                pod["metadata"]["uid"]: self._failures.get(pod["metadata"]["uid"], (0, 0.0)) for pod in waiting
            }
            for pod in sorted(waiting, key=lambda one: -one["spec"]["priority"]):
                if self._failures[pod["metadata"]["uid"]][1] <= now():
                    self._try(pod)

    def _try(self, pod: Json) -> None:
        """One attempt for a pod."""
        cluster = self.cluster
        if cluster.devices and cluster.devices.claim_of(pod) is None:
            return
        known, members = self._group_of(pod)
        there = [member for member in members if member["spec"].get("nodeName") and _stays(member)]
        missing, domains = minimum_of({"spec": known}) - len(there), self._domains(known, there)
        if missing > 1:
            placed = self._together([member for member in members if _waits(member)], domains, missing)
            for member in placed:
                cluster.put(member)
            if not placed:
                self._say_why(pod, 0)
            return
        possible = [
            node
            for node in self.fits(pod, [*cluster.pods.values()])
            if cluster.devices is None or cluster.devices.allocation(pod, node) is not None
            if any(node in nodes for nodes in domains)
        ]
        if fits := [node for node in possible if node not in self.shuns]:
            bound = _bound(pod, fits)
            if cluster.devices:
                cluster.devices.allocate(bound, bound["spec"]["nodeName"])
            cluster.put(bound)
            return
        if possible:
            cluster.outcomes.shun(pod)
        times = self._failures[pod["metadata"]["uid"]][0] + 1
        if self.backs_off:
            first, longest = _BACK_OFF
            self._failures[pod["metadata"]["uid"]] = times, now() + min(longest, first * 2 ** (times - 1))
        self._say_why(pod, len(possible))

    def fits(self, pod: Json, pods: list[Json]) -> list[str]:
        """The nodes where the pod fits beside the others, by the oracle, also if it has one."""
        others = [bare(other) for other in pods if other is not pod]
        truth = {"name": "truth", "nodes": self.cluster.nodes, "pods": others, "preemptor": bare(pod)}
        return list(oracle.decide(truth)["fits"])

    def _together(self, waiting: list[Json], domains: list[set[str]], missing: int) -> list[Json]:
        """The members of a PodGroup that are bound at once, as with GangScheduling; none if not as many fit."""
        for nodes in domains:
            pods, placed = dict(self.cluster.pods), list[Json]()
            for member in waiting:
                if fits := [node for node in self.fits(member, [*pods.values()]) if node in nodes - self.shuns]:
                    placed.append(_bound(member, fits))
                    pods[member["metadata"]["name"]] = placed[-1]
            if len(placed) >= missing:
                return placed
        return []

    def _group_of(self, pod: Json) -> tuple[Json, list[Json]]:
        """The spec of the pod's PodGroup, empty if it has none, and all members."""
        name = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        known = next((one["spec"] for one in self.cluster.groups if one["metadata"]["name"] == name), {})
        return known, [one for one in self.cluster.pods.values() if one["spec"].get("schedulingGroup") and name]

    def _domains(self, group: Json, there: list[Json]) -> list[set[str]]:
        """The nodes that may take the members together, one domain after the other: only that of bound ones, if any."""
        domains: dict[str, set[str]] = {}
        for key in [row["key"] for row in group.get("schedulingConstraints", {}).get("topology", ())][:1]:
            for node in self.cluster.nodes:
                value = node["metadata"].get("labels", {}).get(key)
                domains.setdefault(value, set()).add(node["metadata"]["name"])
            domains.pop(None, None)
            taken = {member["spec"]["nodeName"] for member in there}
            return [names for _, names in sorted(domains.items()) if taken <= names]
        return [{node["metadata"]["name"] for node in self.cluster.nodes}]

    def _say_why(self, pod: Json, refused: int) -> None:
        """The condition PodScheduled, written only if it says something else than before."""
        nodes = len(self.cluster.nodes)
        counts = {"node(s) were refused by a plugin": refused, "Insufficient cpu": nodes - refused}
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count > 0)
        message = f"0/{nodes} nodes are available: {reasons}. preemption: not eligible."
        before = next((row for row in pod["status"].get("conditions", ()) if row["type"] == "PodScheduled"), {})
        if before.get("message") == message:
            return
        since = before.get("lastTransitionTime") or rfc3339(START + now())
        said = {**before, "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        conditions = [{**said, "lastTransitionTime": since}]
        self.cluster.edit(pod["metadata"]["name"], lambda waits: waits["status"].update(conditions=conditions))


def _bound(pod: Json, fits: list[str]) -> Json:
    """The pod on its nominated node if it fits there, or on the first."""
    nominated, claims = pod["status"].get("nominatedNodeName"), pod["status"].get("resourceClaimStatuses")
    made = copy.deepcopy(pod)
    made["spec"]["nodeName"] = nominated if nominated in fits else fits[0]
    made["status"] = {"phase": "Running", "startTime": rfc3339(START + now())}
    made["status"] |= {"resourceClaimStatuses": claims} if claims else {}
    return made


def _stays(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _waits(pod: Json) -> bool:
    """Whether the scheduler would bind the pod: it has no node yet, no scheduling gates, and stays."""
    return not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates") and _stays(pod)
