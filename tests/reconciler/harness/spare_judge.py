"""Whether nobody went needlessly, and nobody waits who could be helped: by the oracle, on what a watch had shown."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tests.preemption import oracle
from tests.reconciler.builders import START
from tests.reconciler.harness.judge import Judge
from tests.reconciler.harness.pods import Json, owner_of, written_on
from tests.reconciler.harness.virtual_time import now
from webhook.kube.instants import epoch
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster


def spare(made: Cluster, seed: int) -> None:
    """A calm cluster, in which nothing excuses that somebody goes needlessly, or waits."""
    del seed
    made.judges.append(SpareJudge(made))


class _Seen(NamedTuple):
    """What a watch had shown, what counts as nominated beside it, and who was leaving in time for a plan."""

    pods: dict[str, Json]
    nominated: dict[str, str]
    leaving: set[str]


class SpareJudge(Judge):
    """Judges decisions when they are made, evictions when their plan is over, and at the end who waits."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._deleted: dict[str, Json] = {}
        """The plans of preemptors that were deleted: a watch may not have shown that yet."""
        self._decisions: dict[str, Json] = {}
        """Plans, by id, as their decisions told, that are not over."""
        self._evictions: dict[str, list[tuple[str, _Seen]]] = {}
        """Plan to who was asked for it, and what was seen then."""
        self._needed: set[str] = set()
        """Who was needed for one plan: several may have a victim, and ask for it for one of them."""
        self._left_out: dict[str, dict[str, float]] = {}
        """Preemptor to nodes that are left out for it, and until when."""
        self._reasons: dict[str, str] = {}

    def faults(self, settled: float) -> list[str]:
        """What was needless, who is left behind, who was evicted twice; and what is remembered though all is over."""
        twice = [name for name, times in Counter(self.cluster.evicted).items() if times > 1]
        wrong = self.wrong + self._stranded() + [f"{name} was evicted twice" for name in twice]
        return wrong + self.cluster.remembered()

    def told(self, line: Json) -> None:
        preemptor = line.get("preemptor", "").partition("/")[2]
        match line["message"]:
            case "decision":
                self._decided(line, preemptor)
                self._decisions[line["plan"]] = {**line, "preemptor": preemptor, "evicted": False}
            case "plan ended":
                self._decisions.pop(line["plan"], None)
            case "no preemption":
                self._reasons[preemptor] = line["reason"]
            case "node left out":
                self._left_out.setdefault(preemptor, {})[line["node"]] = now() + line["seconds"]

    def _decided(self, line: Json, preemptor: str) -> None:
        """Whether somebody is to go although room comes up elsewhere, soon enough for the policy."""
        seen = self._seen_for(line)
        fits = set(self._ask(seen, preemptor, seen.leaving)["fits"]) - set(line.get("leftOut", ()))
        fits = {node for node in fits if self._is_left_to(preemptor, seen, node, seen.leaving)}
        if fits and line.get("victims"):
            self.wrong.append(f"{preemptor} fits on {sorted(fits)} once {sorted(seen.leaving)} are gone")

    def asked(self, name: str) -> None:
        """Whether the preemptor behind an eviction would have fitted without it, for all that a watch had shown."""
        uid, fitted = self.cluster.pods[name]["metadata"]["uid"], list[str]()
        plans = [plan for plan in self._decisions.values() if uid in self._victims_of(plan)]
        for plan in plans:
            preemptor, seen = plan["preemptor"], self._seen_for(plan)
            fits = set(self._ask(seen, preemptor)["fits"]) - set(plan.get("leftOut", ()))
            if plan["node"] in fits or (fits and not plan["evicted"]):
                fitted.append(f"{preemptor} fitted on {sorted(fits)} when {name} was asked to leave")
            plan["evicted"] = True
            self._evictions.setdefault(plan["plan"], []).append((name, seen))
        if len(fitted) == len(plans):
            self.wrong += fitted or [f"{name} was asked to leave for nobody"]

    def _victims_of(self, plan: Json) -> set[str]:
        """The victims, by uid, as they are written on the preemptor, or were until somebody deleted it."""
        name = plan["preemptor"]
        written = written_on(self.cluster.pods.get(name)) or self._deleted.get(name) or {"id": ""}
        return {victim["uid"] for victim in written["victims"]} if written["id"] == plan["plan"] else set()

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A plan that leaves its pod is over: judge whether all were needed who went for it, beside the others."""
        before, after = written_on(old), written_on(new)
        if old is None or before is None or before["id"] == (after or {}).get("id"):
            return
        preemptor, evictions = old["metadata"]["name"], self._evictions.pop(before["id"], [])
        if new is None:
            self._deleted[preemptor] = before
        shared = self._needed.union(name for rows in self._evictions.values() for name, _ in rows)
        for name, seen in evictions:
            others = ({other for other, _ in evictions} | seen.leaving) - {name}
            if not self._is_left_to(preemptor, seen, before["node"], others):
                self._needed.add(name)
            elif name not in shared:
                self.wrong.append(f"{name} was more than {before['id']} needed beside {sorted(others)}")

    def _seen_for(self, plan: Json) -> _Seen:
        """What counts for a plan now; of the pods that leave those that are gone in time, none that is long overdue."""
        under, wall, seen = self.cluster.policy, START + now() + self.cluster.ahead, dict(self.cluster.seen)
        patience = min(under.wait_for_terminating, under.plan_timeout + epoch(plan["at"]) - wall)
        ends = {name: epoch(end) for name, pod in seen.items() if (end := pod["metadata"].get("deletionTimestamp"))}
        leaving = {name for name, end in ends.items() if wall - 60 <= end <= wall + patience}
        return _Seen(seen, self._nominated(), leaving)

    def _is_left_to(self, preemptor: str, seen: _Seen, node: str, gone: Collection[str]) -> bool:
        """Whether it fits on the node once these are gone, also beside the pods in front that would come (D11).

        These are waiting pods of higher priority: each by itself, and all in their order.
        """
        own = seen.pods[preemptor]["spec"]["priority"]
        waiting = {name: pod for name, pod in seen.pods.items() if not pod["spec"].get("nodeName") and name not in gone}
        ahead = sorted(
            (name for name, pod in waiting.items() if pod["spec"]["priority"] > own and name != preemptor),
            key=lambda name: -waiting[name]["spec"]["priority"],
        )
        for coming in ([], *([name] for name in ahead), ahead):
            placed = dict(seen.pods)  # with those of the coming ones on the node that fit there one after the other
            beside = seen._replace(pods=placed)
            for name in coming:
                if node in self._ask(beside, name, gone)["fits"]:
                    placed[name] = {**placed[name], "spec": {**placed[name]["spec"], "nodeName": node}}
            if node not in self._ask(beside, preemptor, gone)["fits"]:
                return False
        return True

    def _nominated(self) -> dict[str, str]:
        """Where pods count as nominated: by plans that are yet to be written, and by those that are yet to go."""
        planned = {name: pod for name, pod in self.cluster.pods.items() if written_on(pod)}
        written = {name: pod["status"].get("nominatedNodeName", "") for name, pod in planned.items()}
        return written | {plan["preemptor"]: plan["node"] for plan in self._decisions.values()}

    def _ask(self, seen: _Seen, preemptor: str, gone: Collection[str] = (), may_go: oracle.MayGo | None = None) -> Json:
        """What the oracle says of a preemptor, as if it could preempt by itself and had no nomination."""
        there = []
        for name, pod in seen.pods.items():
            if name in gone or name == preemptor:
                continue
            there.append(pod)
            if name in seen.nominated and not pod["spec"].get("nodeName"):
                there[-1] = {**pod, "status": {**pod["status"], "nominatedNodeName": seen.nominated[name]}}
        asked = copy.deepcopy(seen.pods[preemptor])
        asked["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
        asked["status"].pop("nominatedNodeName", None)
        budgets = list(self.cluster.budgets.values())
        cluster = {"name": "simulated", "nodes": self.cluster.nodes, "pods": there, "preemptor": asked}
        return oracle.decide({**cluster, "podDisruptionBudgets": budgets}, may_go)

    def _stranded(self) -> list[str]:
        """Preemptors that wait though a plan within the rules exists, by the oracle on what there is."""
        stranded, seen = [], _Seen(self.cluster.pods, self._nominated(), set())
        for name, pod in self.cluster.pods.items():
            if pod["spec"].get("nodeName") or pod["spec"].get("preemptionPolicy") != "Never":
                continue
            answer = self._ask(seen, name, may_go=self._may_go)
            out = {node for node, until in self._left_out.get(name, {}).items() if until > now()}
            fits = set(answer["fits"]) - out - self.cluster.shunned
            plans = [
                plan
                for plan in answer["candidates"]
                if not plan["pdbViolations"]
                and plan["node"] not in out | self.cluster.shunned
                and self._within_rates(_names(plan["victims"]))
                and self._is_left_to(name, seen, plan["node"], _names(plan["victims"]))
            ]
            if fits or plans:
                said = self._reasons.get(name, "nothing was said of it")
                stranded.append(f"{name} waits ({said}) though it fits on {sorted(fits)} or {plans} would do")
        return stranded

    def _within_rates(self, victims: Sequence[str]) -> bool:
        """Whether so many victims may go in one window."""
        limits = self.cluster.policy.limits
        owners = Counter(owner for name in victims if (owner := owner_of(self.cluster.pods[name])))
        counts = [(limits.per_node, len(victims)), (limits.per_cluster, len(victims))]
        counts += [(limits.per_owner, number) for number in owners.values()]
        return all(rate is None or number <= rate.evictions for rate, number in counts)

    def _may_go(self, pod: Json) -> bool:
        meta = pod["metadata"]
        guard = self.cluster.budgets.get(meta["labels"].get("app"))
        free = guard is None or guard["status"]["disruptionsAllowed"] > 0
        kept = meta["name"] in self.cluster.refused or "deletionTimestamp" in meta
        return free and not kept and meta.get("annotations", {}).get(CAN_BE_PREEMPTED) == "true"


def _names(keys: Sequence[str]) -> list[str]:
    return [key.partition("/")[2] for key in keys]
