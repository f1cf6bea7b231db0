"""What judges of a cluster hear: what its server does, and the lines of the log. Nothing inside the reconciler.

A notice is an annotation on a pod. It is read here by the names that stand in docs/notice.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reconciler.harness.pods import GANG, Json, owner_of, written_on
from tests.reconciler.harness.virtual_time import now
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

import copy
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tests.reconciler.builders import START
from tests.reconciler.harness.virtual_time import later

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


NOTICE, READY = "giveway.dev/notice", "giveway.dev/ready-to-leave"
_CONDITION = "giveway.dev/PreemptionNotice"
_SLOW = 0.5 + 1e-3
"""Seconds that a write may take in these clusters: an instant that it names is so much nearer when it is there."""
_LATE = 20.0
"""Seconds after the end of its plan by which a notice is off, if somebody leads."""


def untold(pod: Json) -> Json:
    """The annotations of a pod without its notice and what it answered: those of the next pod of its workload."""
    return {key: text for key, text in pod["metadata"].get("annotations", {}).items() if key not in (NOTICE, READY)}


def say_ready(cluster: Cluster, name: str) -> None:
    """A pod, or whoever speaks for it, says that it need not be waited for."""
    if name in cluster.pods:
        pod = copy.deepcopy(cluster.pods[name])
        pod["metadata"].setdefault("annotations", {})[READY] = "true"
        cluster.put(pod)


class NoticeJudge(Judge):
    """Judges the notices of a cluster whose policy says how long before victims are told."""

    def __init__(self, cluster: Cluster, record: Record) -> None:
        super().__init__(cluster)
        self.record = record
        self.times: dict[str, list[float]] = {}
        """Pod's uid to when each of its notices was written."""
        self.asked_at: dict[str, float] = {}
        """Pod's uid to when it was asked first."""
        self.withdrawn = 0

    @cached_property
    def seconds(self) -> float:
        """How long before, by the policy with which the cluster begins."""
        return self.cluster.policy.victims.notice or 0.0

    def changed(self, old: Json | None, new: Json | None) -> None:
        before, after = written_on(old), written_on(new)
        if before and (not after or after["id"] != before["id"]) and not self.cluster.terms:
            # If one leader is there all the time, some time after a plan is over nobody has a notice of it.
            later(_LATE, self._check_forgotten, before["id"])
        was, now = written_on(old, NOTICE), written_on(new, NOTICE)
        if new is None or was == now:
            return
        name, annotations = new["metadata"]["name"], new["metadata"]["annotations"]
        conditions = {row["type"]: row["status"] for row in new["status"].get("conditions", ())}
        if now is None:
            self.withdrawn += 1
            self._expect(conditions.get(_CONDITION) == "False", f"the condition of {name} is not taken back")
            self._expect(READY not in annotations, f"{name} is still ready, for the next notice")
            return
        self._expect(conditions.get(_CONDITION) == "True", f"{name} has a notice and no condition")
        self._expect(READY not in annotations, f"{name} answers a notice that it has not read")
        self._expect(was is None or was["plan"] != now["plan"], f"{name} is told twice for {now['plan']}")
        self._is_told(new, now)

    def _is_told(self, pod: Json, notice: Json) -> None:
        name, uid, plan = pod["metadata"]["name"], pod["metadata"]["uid"], self.record.written.get(notice["plan"])
        self.times.setdefault(uid, []).append(self.now)
        if plan is None:
            self._expect(False, f"{name} is told for a plan that is on no pod")
            return
        self._expect(uid in {victim["uid"] for victim in plan["victims"]}, f"{name} is told, and no victim")
        lower = plan["priority"] == notice["priority"] > pod["spec"]["priority"]
        self._expect(lower, f"{name} is of no lower priority")
        left = datetime.fromisoformat(notice["by"]).timestamp() - START - self.now
        self._expect(
            self.seconds - _SLOW <= left - self.cluster.ahead < self.seconds + 1.01,
            f"{name} is told {left:.2f} s before, by a clock that is {self.cluster.ahead:.2f} s ahead",
        )

    def asked(self, name: str) -> None:
        """Its notice is over, or it said that it is ready."""
        pod = self.cluster.pods[name]
        self.asked_at.setdefault(pod["metadata"]["uid"], self.now)
        if not self.seconds:
            return
        if written_on(pod, NOTICE) is None:
            self._expect(False, f"{name} is asked without a notice")
        elif pod["metadata"]["annotations"].get(READY) != "true":
            ahead = [term[2] for term in self.cluster.terms] or [0.0]
            since, differ = self.now - self.times[pod["metadata"]["uid"]][-1], max(ahead) - min(ahead)
            self._expect(since >= self.seconds - differ - _SLOW, f"{name} is asked {since:.2f} s after it was told")

    def _check_forgotten(self, plan: str) -> None:
        if plan not in {written["id"] for written in self.record.on_pods().values()}:
            self.wrong += [f"{name} has a notice of {plan}, which is over" for name in self._having({plan})]

    def _having(self, plans: set[str]) -> list[str]:
        stay = {name: pod for name, pod in self.cluster.pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return [name for name, pod in stay.items() if (written_on(pod, NOTICE) or {"plan": ""})["plan"] in plans]

    def faults(self, settled: float) -> list[str]:
        """What was wrong, and the pods that have a notice in the end though no pod has that plan."""
        standing = {written["id"] for written in self.record.on_pods().values()}
        return self.wrong + [f"{name} still has a notice" for name in self._having({*self.record.written} - standing)]

    def _expect(self, right: bool, otherwise: str) -> None:
        if not right:
            self.wrong.append(f"{self.now:.2f}: {otherwise}")
