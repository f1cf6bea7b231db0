"""Whether gangs are treated as one in a simulated cluster, by what the server has: nothing inside the reconciler."""

from __future__ import annotations

import json
from typing import Any

from tests.reconciler.simulation import Simulation
from webhook.policy.model import PLAN

__all__ = ["GangJudge"]

Json = dict[str, Any]


class GangJudge:
    """Looks at each eviction when it is asked for; `faults` says what was wrong."""

    def __init__(self, cluster: Simulation) -> None:
        self.cluster = cluster
        self.faults: list[str] = []
        self.for_gangs = 0
        """Evictions for gangs."""
        self.of_groups: set[str] = set()
        """Pods of groups that were asked to leave."""
        self._gone: dict[str, Json] = {}
        """Pods that are gone, as they were last."""
        cluster.asked.append(self._asked)
        cluster.changes.append(self._changed)

    def half_nominated(self) -> list[str]:
        """Members that carry a plan of a gang of which others have neither a plan nor a node."""
        return [
            f"{name} without {missing}" for name, pod in self.cluster.pods.items() if (missing := self._missing(pod))
        ]

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if old is not None and new is None:
            self._gone[old["metadata"]["name"]] = old

    def _asked(self, name: str) -> None:
        """Somebody goes: all members of each gang whose plan names him are nominated, or have a node."""
        uid = self.cluster.pods[name]["metadata"]["uid"] if name in self.cluster.pods else ""
        if "scheduling.x-k8s.io/pod-group" in self.cluster.pods.get(name, {}).get("metadata", {}).get("labels", {}):
            self.of_groups.add(name)
        for key, pod in self.cluster.pods.items():
            plan = _plan_on(pod)
            if plan is None or "gang" not in plan or uid not in {one["uid"] for one in plan["victims"]}:
                continue
            if any(line["message"] == "plan ended" and line["plan"] == plan["id"] for line in self.cluster.told):
                continue  # it is over, and is yet to be taken off the pod
            self.for_gangs += 1
            if missing := self._missing(pod):
                self.faults.append(f"{name} goes for {key} while {missing} is not nominated")

    def _missing(self, pod: Json) -> list[str]:
        """The members of the pod's gang that have neither a plan of it nor a node, as far as a watch could show it."""
        plan = _plan_on(pod)
        if plan is None or "gang" not in plan or pod["spec"].get("nodeName"):
            return []
        return [name for name in plan["gang"]["members"] if not self._is_there(name, plan["gang"]["id"])]

    def _is_there(self, name: str, gang: str) -> bool:
        member = self.cluster.pods.get(name)
        if member is None and name in self.cluster.seen:
            member = self._gone.get(name)
        if member is None:
            return False
        plan = _plan_on(member)
        nominated = plan is not None and plan.get("gang", {}).get("id") == gang
        return bool(member["spec"].get("nodeName")) or (nominated and bool(member["status"].get("nominatedNodeName")))


def _plan_on(pod: Json) -> Json | None:
    text = pod["metadata"].get("annotations", {}).get(PLAN)
    return json.loads(text) if text else None
