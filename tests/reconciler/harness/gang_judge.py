"""Whether gangs are treated as one in a simulated cluster, by what the server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reconciler.harness.judge import Judge, Record
from tests.reconciler.harness.pods import GANG, Json, written_on

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster


class GangJudge(Judge):
    """Looks at each eviction when it is asked for, and in the end at gangs that are half nominated."""

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
