"""What judges of a cluster hear: what its server does, and the lines of the log. Nothing inside the reconciler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reconciler.harness.pods import GANG, Json, owner_of, written_on
from tests.reconciler.harness.virtual_time import now
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster


class Judge:
    """Hears of everything that happens in a cluster; `wrong` has what should not have."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wrong: list[str] = []

    @property
    def now(self) -> float:
        """Seconds since the cluster began to live."""
        return now()

    def told(self, line: Json) -> None:
        """A reconciler logs something."""

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different on the server, or new, or gone."""

    def asked(self, name: str) -> None:
        """A pod is asked to leave: its eviction or deletion has arrived, and is not done yet."""

    def evicted(self, pod: Json) -> None:
        """It begins to leave for that."""

    def another_leads(self, back: float) -> None:
        """Another process leads; the clock of the last one was so many seconds `back`."""

    def faults(self, settled: float) -> list[str]:
        """What was wrong in the end; what began before `settled`, in seconds, has to be over."""
        del settled
        return self.wrong


class Record(Judge):
    """What the other judges have in common: which plans there were, and what became of them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.decided: dict[str, float] = {}
        """Plan to when its decision was told."""
        self.written: dict[str, Json] = {}
        """Plan to what was last written of it, with the priority of that pod."""
        self.nominated: dict[str, float] = {}
        """Plan to when its last nomination was written: from then on the scheduler keeps the room."""
        self.ended: set[str] = set()
        """The plans that this process has ended: what it leaves on a pod goes on with the next one."""
        self.owner: dict[str, str] = {}
        """Pod's uid to its owner."""

    def told(self, line: Json) -> None:
        if line["message"] == "decision":
            self.decided[line["plan"]] = self.now
        elif line["message"] == "plan ended" and line["ending"] != "deposed":
            self.ended.add(line["plan"])

    def changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            return
        self.owner[new["metadata"]["uid"]] = owner_of(new)
        if plan := written_on(new):
            self.written[plan["id"]] = plan | {"priority": new["spec"]["priority"]}
            if (written_on(old) or {"id": ""})["id"] != plan["id"]:
                self.nominated[plan["id"]] = self.now

    def another_leads(self, back: float) -> None:
        self.ended.clear()

    def on_pods(self) -> dict[str, Json]:
        """What is written on pods now, by their names."""
        return {name: plan for name, pod in self.cluster.pods.items() if (plan := written_on(pod))}


class RuleJudge(Judge):
    """Whether nobody is evicted whom the rules forbid: by who said that it may go, and by what went in each window."""

    slow = 1.0
    """Seconds by which an eviction may be done later than it was decided."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._done: list[tuple[float, str, str, str]] = []
        """When who was evicted, of which node and which owner."""

    def asked(self, name: str) -> None:
        states = [pod for pod in (self.cluster.pods.get(name), self.cluster.seen.get(name)) if pod is not None]
        if not any(pod["metadata"].get("annotations", {}).get(CAN_BE_PREEMPTED) == "true" for pod in states):
            self.wrong.append(f"{name} is asked, which never said that it may go")

    def evicted(self, pod: Json) -> None:
        self._done.append((self.now, pod["metadata"]["name"], pod["spec"]["nodeName"], owner_of(pod)))

    def faults(self, settled: float) -> list[str]:
        # A leader that was killed, or whose clock is wrong, counts what it can.
        exact = not (self.cluster.terms or self.cluster.killed_at)
        return self.wrong + (self._beyond_rates() if exact else [])

    def _beyond_rates(self) -> list[str]:
        limits, beyond = self.cluster.policy.limits, list[str]()
        for rate, place in ((limits.per_cluster, None), (limits.per_node, 2), (limits.per_owner, 3)):
            for row in self._done if rate is not None else ():
                same = [other for other in self._done if place is None or (row[place] and other[place] == row[place])]
                window = [other[1] for other in same if row[0] - rate.window + self.slow < other[0] <= row[0]]
                if len(window) > rate.evictions:
                    beyond.append(f"{window} went within {rate.window} s")
        return beyond


class GangJudge(Judge):
    """Whether gangs are treated as one: looks at each eviction, and in the end at gangs that are half nominated."""

    def __init__(self, cluster: Cluster, record: Record) -> None:
        super().__init__(cluster)
        self.record = record
        self.for_gangs = 0
        """Evictions for gangs."""
        self.of_groups: set[str] = set()
        """Pods of groups that were asked to leave."""

    def faults(self, settled: float) -> list[str]:
        """What was wrong when somebody was asked, and members with a plan while others have neither that nor a node."""
        left = {name: self._missing(self.cluster.pods[name]) for name in self._going_on()}
        return self.wrong + [f"{name} without {missing}" for name, missing in left.items() if missing]

    def asked(self, name: str) -> None:
        """All members of each gang whose plan names him are nominated, or have a node."""
        pod, wrong = self.cluster.pods[name], list[str]()
        if GANG in pod["metadata"]["labels"]:
            self.of_groups.add(name)
        for key, plan in self._going_on().items():
            if pod["metadata"]["uid"] not in {victim["uid"] for victim in plan["victims"]}:
                continue
            self.for_gangs += "members" in plan
            preemptor = self.cluster.pods[key]
            if missing := self._missing(preemptor):
                wrong.append(f"{name} goes for {key} while {missing} is not nominated")
            elif "members" in plan and (lacking := self._lacking(preemptor)):
                wrong.append(f"{name} goes for {key} while {lacking} of its group have neither a node nor a plan")
            else:
                return  # it goes for this one
        self.wrong += wrong

    def _going_on(self) -> dict[str, Json]:
        """The plans on pods, by the pods' names: one that is over is yet to be taken off."""
        return {name: plan for name, plan in self.record.on_pods().items() if plan["id"] not in self.record.ended}

    def _lacking(self, pod: Json) -> int:
        """How many members of the pod's group are missing to its minimum, as far as a watch could show it."""
        group = pod["metadata"]["labels"].get(GANG)
        spec = next((known["spec"] for known in self.cluster.groups if known["metadata"]["name"] == group), {})
        minimum = spec.get("minMember") or spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
        known = (*self.cluster.seen.items(), *self.cluster.pods.items())
        members = {name for name, member in known if member["metadata"]["labels"].get(GANG) == group}
        return max(0, minimum - sum(map(self._is_placed, members)))

    def _is_placed(self, name: str) -> bool:
        """Whether a pod has a node and stays there, or a plan that is not over, as far as a watch could show it."""
        states = [pod for pod in (self.cluster.seen.get(name), self.cluster.pods.get(name)) if pod is not None]
        stays = any(pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"] for pod in states)
        return stays or any((plan := written_on(pod)) and plan["id"] not in self.record.ended for pod in states)

    def _missing(self, pod: Json) -> list[str]:
        """The members of the pod's gang that have neither a plan of it nor a node, as far as a watch could show it."""
        plan = written_on(pod)
        if plan is None or "members" not in plan or pod["spec"].get("nodeName"):
            return []
        return [member["name"] for member in plan["members"] if not self._is_there(member["name"], plan["id"])]

    def _is_there(self, name: str, gang: str) -> bool:
        if (member := self.cluster.pods.get(name)) is None:
            return True  # who is gone has left the plan: whether the others are enough says the minimum
        plan = written_on(member)
        nominated = plan is not None and plan["id"] == gang and member["status"].get("nominatedNodeName")
        return bool(member["spec"].get("nodeName") or nominated)
