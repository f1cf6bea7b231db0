"""Whether gangs are treated as one in a simulated cluster, by what the server has: nothing inside the reconciler."""

from typing import Any

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, written_on

Json = dict[str, Any]


class GangJudge:
    """Looks at each eviction when it is asked for; `faults` says what was wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.found: list[str] = []
        self.for_gangs = 0
        """Evictions for gangs."""
        self.of_groups: set[str] = set()
        """Pods of groups that were asked to leave."""
        self._gone: dict[str, Json] = {}
        """Pods that are gone, as they were last."""
        cluster.asked.append(self._asked)
        cluster.changes.append(self._changed)

    def faults(self, settled: float) -> list[str]:
        """What was wrong when somebody was asked, and gangs that are half nominated in the end."""
        del settled
        return self.found + self._half_nominated()

    def _half_nominated(self) -> list[str]:
        """Members that carry a plan of a gang, which is not over, of which others have neither a plan nor a node."""
        carried = ((name, pod, written_on(pod)) for name, pod in self.cluster.pods.items())
        left = [(name, self._missing(pod)) for name, pod, plan in carried if plan and plan["id"] not in self._ended()]
        return [f"{name} without {missing}" for name, missing in left if missing]

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if old is not None and new is None:
            self._gone[old["metadata"]["name"]] = old

    def _asked(self, name: str) -> None:
        """Somebody goes: all members of each gang whose plan names him are nominated, or have a node."""
        uid = self.cluster.pods[name]["metadata"]["uid"] if name in self.cluster.pods else ""
        if GANG in self.cluster.pods.get(name, {}).get("metadata", {}).get("labels", {}):
            self.of_groups.add(name)
        ended, found = self._ended(), list[str]()
        for key, pod in self.cluster.pods.items():
            plan = written_on(pod)
            if plan is None or plan["id"] in ended or uid not in {one["uid"] for one in plan["victims"]}:
                continue  # one that is over is yet to be taken off the pod
            self.for_gangs += "members" in plan
            if missing := self._missing(pod):
                found.append(f"{name} goes for {key} while {missing} is not nominated")
            elif "members" in plan and (lacking := self._lacking(pod)):
                found.append(f"{name} goes for {key} while {lacking} of its group have neither a node nor a plan")
            else:
                return  # it goes for this one
        self.found += found

    def _ended(self) -> set[str]:
        """The plans that this process has ended: what an earlier one left on a pod goes on."""
        lines = self.cluster.told[self.cluster.outcomes.told_before :]
        return {line["plan"] for line in lines if line["message"] == "plan ended"}

    def _lacking(self, pod: Json) -> int:
        """How many members of the pod's group are missing to its minimum, as far as a watch could show it."""
        group = pod["metadata"]["labels"].get(GANG)
        known = next((one["spec"] for one in self.cluster.groups if one["metadata"]["name"] == group), {"minMember": 0})
        minimum = known["minMember"] if "minMember" in known else known["schedulingPolicy"]["gang"]["minCount"]
        members = {
            name
            for name, one in (*self.cluster.seen.items(), *self.cluster.pods.items())
            if one["metadata"]["labels"].get(GANG) == group
        }
        return max(0, minimum - sum(map(self._is_placed, members)))

    def _is_placed(self, name: str) -> bool:
        """Whether a pod has a node and stays there, or a plan that is not over, as far as a watch could show it."""
        states = [one for one in (self.cluster.seen.get(name), self.cluster.pods.get(name)) if one is not None]
        stays = any(one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"] for one in states)
        return stays or any(plan["id"] not in self._ended() for one in states if (plan := written_on(one)) is not None)

    def _missing(self, pod: Json) -> list[str]:
        """The members of the pod's gang that have neither a plan of it nor a node, as far as a watch could show it."""
        plan = written_on(pod)
        if plan is None or "members" not in plan or pod["spec"].get("nodeName"):
            return []
        return [one["name"] for one in plan["members"] if not self._is_there(one["name"], plan["id"])]

    def _is_there(self, name: str, gang: str) -> bool:
        member = self.cluster.pods.get(name)
        if member is None and name in self.cluster.seen:
            member = self._gone.get(name)
        if member is None:
            return False
        plan = written_on(member)
        nominated = plan is not None and plan["id"] == gang
        return bool(member["spec"].get("nodeName")) or (nominated and bool(member["status"].get("nominatedNodeName")))
