"""Whether nobody went needlessly, and nobody waits who could be helped: by the oracle, on what the reconciler knew."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from tests.preemption import oracle
from webhook.kube.instants import epoch
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.simulation import Simulation

Json = dict[str, Any]


class SpareJudge:
    """Judges decisions and evictions of a simulated cluster when they are made, and who waits at its end."""

    def __init__(self, cluster: Simulation) -> None:
        self.cluster = cluster
        self.needless: list[str] = []

    def decided(self, line: Json) -> None:
        """Whether somebody is to go although room comes up elsewhere, soon enough for the policy."""
        leaving = self._leaving_within(min(self.cluster.policy.wait_for_terminating, self.cluster.policy.plan_timeout))
        preemptor = line["preemptor"].partition("/")[2]
        fits = set(self.ask(self.cluster.seen, preemptor, leaving)["fits"]) - set(line.get("leftOut", ()))
        fits = {node for node in fits if self._is_left_to(preemptor, self.cluster.seen, node, leaving)}
        if fits:
            self.needless.append(f"{preemptor} fits on {sorted(fits)} once {sorted(leaving)} are gone")

    def _leaving_within(self, patience: float) -> set[str]:
        """The pods that have been seen leaving and will be gone by then, in seconds; none that is long overdue."""
        wall = self.cluster.clock.wall()
        ends = {
            name: epoch(pod["metadata"]["deletionTimestamp"])
            for name, pod in self.cluster.seen.items()
            if "deletionTimestamp" in pod["metadata"]
        }
        return {name for name, end in ends.items() if wall - 60 <= end <= wall + patience}

    def asked(self, name: str) -> None:
        """Whether the preemptor behind an eviction would have fitted without it, for all that the reconciler knew."""
        uid = self.cluster.seen.get(name, {}).get("metadata", {}).get("uid")
        plan = next((one for one in self.cluster.reconciler.plans.values() if uid in one.asking), None)
        if plan is None:
            self.needless.append(f"{name} was asked to leave for nobody")
            return
        preemptor = plan.key.partition("/")[2]
        others = {victim.name for victim in plan.record.victims if victim.uid not in plan.unneeded} - {name}
        fits = set(self.ask(self.cluster.seen, preemptor, ())["fits"]) - plan.left_out
        if fits and not plan.gone:
            self.needless.append(f"{preemptor} fitted on {sorted(fits)} when {name} was asked to leave")
        if plan.record.node in fits:
            self.needless.append(f"{preemptor} fitted on {plan.record.node} without {name}")
        others |= self._leaving_within(
            min(self.cluster.policy.wait_for_terminating, plan.deadline - self.cluster.clock.monotonic())
        )
        if self._is_left_to(preemptor, self.cluster.seen, plan.record.node, others):
            self.needless.append(f"{name} is more than {preemptor} needs beside {sorted(others)}")

    def _is_left_to(self, preemptor: str, pods: dict[str, Json], node: str, gone: Collection[str]) -> bool:
        """Whether it fits on the node once these are gone, also beside the pods in front that would come (D11).

        These are waiting pods of higher priority: each by itself, and all in their order.
        """
        own = pods[preemptor]["spec"]["priority"]
        waiting = {name: one for name, one in pods.items() if not one["spec"].get("nodeName") and name not in gone}
        ahead = sorted(
            (name for name, one in waiting.items() if one["spec"]["priority"] > own and name != preemptor),
            key=lambda name: -waiting[name]["spec"]["priority"],
        )
        return all(
            node in self.ask(self._with_placed(coming, pods, node, gone), preemptor, gone)["fits"]
            for coming in ([], *([name] for name in ahead), ahead)
        )

    def _with_placed(
        self, coming: Sequence[str], pods: dict[str, Json], node: str, gone: Collection[str]
    ) -> dict[str, Json]:
        """The pods, with those of the coming ones on the node that fit there one after the other."""
        placed = dict(pods)
        for name in coming:
            if node in self.ask(placed, name, gone)["fits"]:
                placed[name] = {**pods[name], "spec": {**pods[name]["spec"], "nodeName": node}}
        return placed

    def ask(self, pods: dict[str, Json], preemptor: str, gone: Any, may_go: oracle.MayGo | None = None) -> Json:
        """What the oracle says of a preemptor, as if it could preempt by itself and had no nomination."""
        nominated = {plan.key.partition("/")[2]: plan.record.node for plan in self.cluster.reconciler.plans.values()}
        nominated = self._being_cleared() | nominated
        there = []
        for name, pod in pods.items():
            if name in gone or name == preemptor:
                continue
            there.append(pod)
            if name in nominated and not pod["spec"].get("nodeName"):
                there[-1] = {**pod, "status": {**pod["status"], "nominatedNodeName": nominated[name]}}
        asked = copy.deepcopy(pods[preemptor])
        asked["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
        asked["status"].pop("nominatedNodeName", None)
        cluster = {
            "name": "simulated",
            "nodes": self.cluster.nodes,
            "pods": there,
            "preemptor": asked,
            "podDisruptionBudgets": list(self.cluster.budgets.values()),
        }
        return oracle.decide(cluster, may_go)

    def _being_cleared(self) -> dict[str, str]:
        """The nominations that still hold room for the reconciler, such as one that it is about to take off."""
        snapshot = self.cluster.setting.state.snapshot
        pods, nodes = snapshot.pods, snapshot.nodes.names
        return {pods.names[row]: nodes[pods.nominated[row]] for row in pods.nominees().tolist()}

    def stranded(self) -> list[str]:
        """Preemptors that wait though a plan within the rules exists, by the oracle on what there is."""
        found = []
        for name, pod in self.cluster.pods.items():
            if pod["spec"].get("nodeName") or pod["spec"].get("preemptionPolicy") != "Never":
                continue
            answer = self.ask(self.cluster.pods, name, (), self._may_go)
            entry = self.cluster.reconciler.queue.get(f"default/{name}")
            out = {left.node for left in entry.nodes.left_out(asyncio.get_running_loop().time())} if entry else set()
            fits = set(answer["fits"]) - out - self.cluster.shunned
            plans = [
                one
                for one in answer["candidates"]
                if not one["pdbViolations"]
                and one["node"] not in out | self.cluster.shunned
                and self._within_rates(one)
                and self._is_left_to(name, self.cluster.pods, one["node"], _names(one["victims"]))
            ]
            if fits or plans:
                said = entry.reason if entry else "it is not in the queue"
                found.append(f"{name} waits ({said}) though it fits on {sorted(fits)} or {plans} would do")
        return found

    def _within_rates(self, candidate: Json) -> bool:
        """Whether so many victims may go in one window."""
        limits, victims = (
            self.cluster.policy.limits,
            [self.cluster.pods[name] for name in _names(candidate["victims"])],
        )
        owners = Counter(one["metadata"]["ownerReferences"][0]["name"] for one in victims if _is_owned(one))
        counts = [(limits.per_node, len(victims)), (limits.per_cluster, len(victims))]
        counts += [(limits.per_owner, number) for number in owners.values()]
        return all(rate is None or number <= rate.evictions for rate, number in counts)

    def _may_go(self, pod: Json) -> bool:
        meta = pod["metadata"]
        free = all(
            one["status"]["disruptionsAllowed"] > 0
            for one in self.cluster.budgets.values()
            if one["spec"]["selector"]["matchLabels"].items() <= meta["labels"].items()
        )
        kept = meta["name"] in self.cluster.refused or "deletionTimestamp" in meta
        return free and not kept and meta.get("annotations", {}).get(CAN_BE_PREEMPTED) == "true"


def _is_owned(pod: Json) -> bool:
    return bool(pod["metadata"].get("ownerReferences"))


def _names(keys: Sequence[str]) -> list[str]:
    return [key.partition("/")[2] for key in keys]
