"""Whether nobody went needlessly, and nobody waits who could be helped: by the oracle, on what a watch had shown."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.preemption import oracle
from tests.reconciler.builders import START
from tests.reconciler.harness.pods import written_on
from webhook.kube.instants import epoch
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

Json = dict[str, Any]


class _Asked(NamedTuple):
    """An eviction: of whom, what the watch had shown then, and what counts as nominated and as gone beside it."""

    name: str
    pods: dict[str, Json]
    nominated: dict[str, str]
    leaving: set[str]


class SpareJudge:
    """Judges decisions when they are made, evictions when their plan is over, and at the end who waits."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.needless: list[str] = []
        self._deleted: dict[str, Json] = {}
        """The plans of preemptors that were deleted: a watch may not have shown that yet."""
        self._decisions: dict[str, Json] = {}
        """Plans, by id, as their decisions told, that are not over."""
        self._evictions: dict[str, list[_Asked]] = {}
        self._left_out: dict[str, dict[str, float]] = {}
        """Preemptor to nodes that are left out for it, and until when."""
        self._reasons: dict[str, str] = {}
        cluster.heard.append(self._heard)
        cluster.asked.append(self._asked)
        cluster.changes.append(self._changed)

    def faults(self, settled: float) -> list[str]:
        """What was needless, who is left behind, who was evicted twice; and what is remembered though all is over."""
        del settled
        twice = [name for name, times in Counter(self.cluster.evicted).items() if times > 1]
        found = self.needless + self._stranded() + [f"{name} was evicted twice" for name in twice]
        return found + remembered(self.cluster)

    def _heard(self, line: Json) -> None:
        preemptor = line.get("preemptor", "").partition("/")[2]
        match line["message"]:
            case "decision":
                if line.get("victims"):
                    self._decided(line, preemptor)
                self._decisions[line["plan"]] = {**line, "preemptor": preemptor, "evicted": False}
            case "plan ended":
                self._decisions.pop(line["plan"], None)
            case "no preemption":
                self._reasons[preemptor] = line["reason"]
            case "node left out":
                until = asyncio.get_running_loop().time() + line["seconds"]
                self._left_out.setdefault(preemptor, {})[line["node"]] = until

    def _decided(self, line: Json, preemptor: str) -> None:
        """Whether somebody is to go although room comes up elsewhere, soon enough for the policy."""
        leaving = self._leaving(line)
        seen, nominated = self.cluster.seen, self._nominated()
        fits = set(self._ask(seen, preemptor, leaving, nominated)["fits"]) - set(line.get("leftOut", ()))
        fits = {node for node in fits if self._is_left_to(preemptor, seen, node, leaving, nominated)}
        if fits:
            self.needless.append(f"{preemptor} fits on {sorted(fits)} once {sorted(leaving)} are gone")

    def _leaving(self, plan: Json) -> set[str]:
        """The pods that have been seen leaving and will be gone in time for a plan; none that is long overdue."""
        under, wall = self.cluster.policy, START + asyncio.get_running_loop().time() + self.cluster.ahead
        patience = min(under.wait_for_terminating, under.plan_timeout + epoch(plan["at"]) - wall)
        ends = {
            name: epoch(pod["metadata"]["deletionTimestamp"])
            for name, pod in self.cluster.seen.items()
            if "deletionTimestamp" in pod["metadata"]
        }
        return {name for name, end in ends.items() if wall - 60 <= end <= wall + patience}

    def _asked(self, name: str) -> None:
        """Whether the preemptor behind an eviction would have fitted without it, for all that a watch had shown."""
        uid, found = self.cluster.pods[name]["metadata"]["uid"], list[str]()
        plans = [plan for plan in self._decisions.values() if uid in self._victims_of(plan)]
        for plan in plans:
            preemptor, seen, nominated = plan["preemptor"], dict(self.cluster.seen), self._nominated()
            fits = set(self._ask(seen, preemptor, (), nominated)["fits"]) - set(plan.get("leftOut", ()))
            if plan["node"] in fits or (fits and not plan["evicted"]):
                found.append(f"{preemptor} fitted on {sorted(fits)} when {name} was asked to leave")
            plan["evicted"] = True
            self._evictions.setdefault(plan["plan"], []).append(_Asked(name, seen, nominated, self._leaving(plan)))
        if len(found) == len(plans):
            self.needless += found or [f"{name} was asked to leave for nobody"]

    def _victims_of(self, plan: Json) -> set[str]:
        """The victims, by uid, as they are written on the preemptor, or were until somebody deleted it."""
        name = plan["preemptor"]
        written = written_on(self.cluster.pods.get(name)) or self._deleted.get(name) or {"id": ""}
        return {victim["uid"] for victim in written["victims"]} if written["id"] == plan["plan"] else set()

    def _changed(self, old: Json | None, new: Json | None) -> None:
        """A plan that leaves its pod is over: judge whether all were needed who went for it, beside the others."""
        before, after = written_on(old), written_on(new)
        if old is not None and before is not None and new is None:
            self._deleted[old["metadata"]["name"]] = before
        if old is None or before is None or before["id"] == (after or {}).get("id"):
            return
        evictions, node = self._evictions.pop(before["id"], []), before["node"]
        for asked in evictions:
            others = ({other.name for other in evictions} | asked.leaving) - {asked.name}
            if self._is_left_to(old["metadata"]["name"], asked.pods, node, others, asked.nominated):
                self.needless.append(f"{asked.name} was more than {before['id']} needed beside {sorted(others)}")

    def _is_left_to(
        self, preemptor: str, pods: dict[str, Json], node: str, gone: Collection[str], nominated: dict[str, str]
    ) -> bool:
        """Whether it fits on the node once these are gone, also beside the pods in front that would come (D11).

        These are waiting pods of higher priority: each by itself, and all in their order.
        """
        own = pods[preemptor]["spec"]["priority"]
        waiting = {name: pod for name, pod in pods.items() if not pod["spec"].get("nodeName") and name not in gone}
        ahead = sorted(
            (name for name, pod in waiting.items() if pod["spec"]["priority"] > own and name != preemptor),
            key=lambda name: -waiting[name]["spec"]["priority"],
        )
        for coming in ([], *([name] for name in ahead), ahead):
            placed = dict(pods)  # with those of the coming ones on the node that fit there one after the other
            for name in coming:
                if node in self._ask(placed, name, gone, nominated)["fits"]:
                    placed[name] = {**pods[name], "spec": {**pods[name]["spec"], "nodeName": node}}
            if node not in self._ask(placed, preemptor, gone, nominated)["fits"]:
                return False
        return True

    def _nominated(self) -> dict[str, str]:
        """Where pods count as nominated: by plans that are yet to be written, and by those that are yet to go."""
        written = {
            name: pod["status"].get("nominatedNodeName", "")
            for name, pod in self.cluster.pods.items()
            if written_on(pod)
        }
        return written | {plan["preemptor"]: plan["node"] for plan in self._decisions.values()}

    def _ask(
        self,
        pods: dict[str, Json],
        preemptor: str,
        gone: Collection[str],
        nominated: dict[str, str],
        may_go: oracle.MayGo | None = None,
    ) -> Json:
        """What the oracle says of a preemptor, as if it could preempt by itself and had no nomination."""
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

    def _stranded(self) -> list[str]:
        """Preemptors that wait though a plan within the rules exists, by the oracle on what there is."""
        found = []
        for name, pod in self.cluster.pods.items():
            if pod["spec"].get("nodeName") or pod["spec"].get("preemptionPolicy") != "Never":
                continue
            nominated, now = self._nominated(), asyncio.get_running_loop().time()
            answer = self._ask(self.cluster.pods, name, (), nominated, self._may_go)
            out = {node for node, until in self._left_out.get(name, {}).items() if until > now}
            fits = set(answer["fits"]) - out - self.cluster.shunned
            plans = [
                one
                for one in answer["candidates"]
                if not one["pdbViolations"]
                and one["node"] not in out | self.cluster.shunned
                and self._within_rates(one)
                and self._is_left_to(name, self.cluster.pods, one["node"], _names(one["victims"]), nominated)
            ]
            if fits or plans:
                said = self._reasons.get(name, "nothing was said of it")
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


def remembered(cluster: Cluster) -> list[str]:
    """What the last reconciler still counts otherwise than the watch shows it, although it has ended all its plans."""
    assert cluster.process is not None
    count = cluster.process.service.state.pending.remembered()
    return [f"{count} pods or budgets count otherwise than they are"] if count else []
