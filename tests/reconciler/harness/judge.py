"""What judges of a cluster hear: what its server does, and the lines of the log. Nothing inside the reconciler.

A notice is an annotation on a pod. It is read here by the names that stand in docs/notice.md.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tests.reconciler.builders import START
from tests.reconciler.harness.pods import GANG, Json, minimum_of, owner_of, written_on
from tests.reconciler.harness.virtual_time import later, now
from webhook.policy.model.values import CAN_BE_PREEMPTED

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

NOTICE, READY = "giveway.dev/notice", "giveway.dev/ready-to-leave"
_CONDITION = "giveway.dev/PreemptionNotice"
_SLOW = 0.5 + 1e-3
"""Seconds that a write may take in these clusters: an instant that it names is so much nearer when it is there."""
_LATE = 20.0
"""Seconds after the end of its plan by which a notice is off, if somebody leads."""
_DONE_LATER = 1.0
"""Seconds by which an eviction may be done later than it was decided."""


def untold(pod: Json) -> Json:
    """The annotations of a pod without its notice and what it answered: those of the next pod of its workload."""
    return {key: text for key, text in pod["metadata"].get("annotations", {}).items() if key not in (NOTICE, READY)}


def say_ready(cluster: Cluster, name: str) -> None:
    """A pod, or whoever speaks for it, says that it need not be waited for."""
    cluster.edit(name, lambda pod: pod["metadata"].setdefault("annotations", {}).update({READY: "true"}))


class Judge:
    """Hears of everything that happens in a cluster; `wrong` has what should not have, and when."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wrong: list[str] = []

    def told(self, line: Json) -> None:
        """A reconciler logs something."""

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different on the server, or new, or gone."""

    def asked(self, name: str) -> None:
        """A pod is asked to leave: its eviction or deletion has arrived, and is not done yet."""

    def evicted(self, pod: Json) -> None:
        """It begins to leave for that."""

    def another_leads(self, back: float, ended: float) -> None:
        """Another process leads; the last one led until it `ended`, by a clock so many seconds `back`."""

    def faults(self, settled: float) -> list[str]:
        """What was wrong in the end; what began before `settled`, in seconds, has to be over."""
        del settled
        return self.wrong

    def expect(self, right: object, otherwise: str) -> None:
        """What must be."""
        if not right:
            self.wrong.append(f"{now():.2f}: {otherwise}")


class Record(Judge):
    """Which plans there were, and what became of them; and whether what was done for them keeps the rules.

    Nobody goes who never said that it may, or beyond a rate, or before the notice of the policy is over. A gang has
    all its nominations before somebody goes for it. Nobody has a notice of a plan that is over.
    """

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
        self.notices: dict[str, list[float]] = {}
        """Pod's uid to when each of its notices was written."""
        self.withdrawn = 0
        """Notices that were taken off."""
        self.asked_at: dict[str, float] = {}
        """Pod's uid to when it was asked first."""
        self.for_gangs = 0
        """Evictions for gangs."""
        self.of_groups: set[str] = set()
        """Pods of groups that were asked to leave."""
        self._done: list[tuple[float, str, str, str]] = []
        """When who was evicted, of which node and which owner."""

    @cached_property
    def _notice(self) -> float:
        """How many seconds before victims are told, by the policy with which the cluster begins."""
        return self.cluster.policy.victims.notice or 0.0

    def told(self, line: Json) -> None:
        if line["message"] == "decision":
            self.decided[line["plan"]] = now()
        elif line["message"] == "plan ended" and line["ending"] != "deposed":
            self.ended.add(line["plan"])

    def another_leads(self, back: float, ended: float) -> None:
        self.ended.clear()

    def evicted(self, pod: Json) -> None:
        self._done.append((now(), pod["metadata"]["name"], pod["spec"]["nodeName"], owner_of(pod)))

    def changed(self, old: Json | None, new: Json | None) -> None:
        before, after = written_on(old), written_on(new)
        if new is not None:
            self.owner[new["metadata"]["uid"]] = owner_of(new)
        if new is not None and after is not None:
            self.written[after["id"]] = after | {"priority": new["spec"]["priority"]}
            if before is None or before["id"] != after["id"]:
                self.nominated[after["id"]] = now()
        if before and (not after or after["id"] != before["id"]) and not self.cluster.terms:
            # If one leader is there all the time, some time after a plan is over nobody has a notice of it.
            later(_LATE, self._check_forgotten, before["id"])
        if new is not None and written_on(old, NOTICE) != written_on(new, NOTICE):
            self._told_or_not_any_more(written_on(old, NOTICE), new)

    def asked(self, name: str) -> None:
        states = self._states(name)
        said = [state["metadata"].get("annotations", {}).get(CAN_BE_PREEMPTED) for state in states]
        self.expect("true" in said, f"{name} is asked, which never said that it may go")
        self.asked_at.setdefault(states[0]["metadata"]["uid"], now())
        self._for_whole_gangs(states[0])
        if self._notice:
            self._in_time(states[0])

    def faults(self, settled: float) -> list[str]:
        """What was wrong, gangs that are half nominated, and pods that have a notice of a plan that is on no pod."""
        left = {name: self._missing(self.cluster.pods[name]) for name in self._going_on()}
        standing = {plan["id"] for plan in self._on_pods().values()}
        return [
            *self.wrong,
            *self._beyond_rates(),
            *(f"{name} without {missing}" for name, missing in left.items() if missing),
            *(f"{name} still has a notice" for name in self._having({*self.written} - standing)),
        ]

    def _states(self, name: str) -> list[Json]:
        """A pod as it is, and as a watch has shown it."""
        return [pod for pod in (self.cluster.pods.get(name), self.cluster.seen.get(name)) if pod is not None]

    def _on_pods(self) -> dict[str, Json]:
        """What is written on pods now, by their names."""
        return {name: plan for name, pod in self.cluster.pods.items() if (plan := written_on(pod))}

    def _going_on(self) -> dict[str, Json]:
        """The plans on pods, by the pods' names: one that is over is yet to be taken off."""
        return {name: plan for name, plan in self._on_pods().items() if plan["id"] not in self.ended}

    def _beyond_rates(self) -> list[str]:
        """Who went beyond a rate, if one leader was there all the time: others count what they can."""
        limits, beyond = self.cluster.policy.limits, list[str]()
        for rate, place in ((limits.per_cluster, None), (limits.per_node, 2), (limits.per_owner, 3)):
            for row in self._done if rate and not (self.cluster.terms or self.cluster.killed_at) else ():
                same = [other for other in self._done if place is None or (row[place] and other[place] == row[place])]
                window = [other[1] for other in same if row[0] - rate.window + _DONE_LATER < other[0] <= row[0]]
                if len(window) > rate.evictions:
                    beyond.append(f"{window} went within {rate.window} s")
        return beyond

    # Gangs.

    def _for_whole_gangs(self, pod: Json) -> None:
        """All members of each gang whose plan names him are nominated, or have a node."""
        name, wrong = pod["metadata"]["name"], list[str]()
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

    def _lacking(self, pod: Json) -> int:
        """How many members of the pod's group are missing to its minimum, as far as a watch could show it."""
        group = pod["metadata"]["labels"].get(GANG)
        minimum = next((minimum_of(known) for known in self.cluster.groups if known["metadata"]["name"] == group), 0)
        known = (*self.cluster.seen.items(), *self.cluster.pods.items())
        members = {name for name, member in known if member["metadata"]["labels"].get(GANG) == group}
        return max(0, minimum - sum(map(self._is_placed, members)))

    def _is_placed(self, name: str) -> bool:
        """Whether a pod has a node and stays there, or a plan that is not over, as far as a watch could show it."""
        states = self._states(name)
        stays = any(pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"] for pod in states)
        return stays or any((plan := written_on(pod)) and plan["id"] not in self.ended for pod in states)

    def _missing(self, pod: Json) -> list[str]:
        """The members of the pod's gang that have neither a plan of it nor a node.

        Who is gone has left the plan: whether the others are enough says the minimum.
        """
        plan = written_on(pod)
        if plan is None or "members" not in plan or pod["spec"].get("nodeName"):
            return []
        members = [self.cluster.pods[row["name"]] for row in plan["members"] if row["name"] in self.cluster.pods]
        waiting = [member for member in members if not member["spec"].get("nodeName")]
        return [
            member["metadata"]["name"]
            for member in waiting
            if (written_on(member) or {"id": ""})["id"] != plan["id"] or not member["status"].get("nominatedNodeName")
        ]

    # Notices.

    def _told_or_not_any_more(self, was: Json | None, pod: Json) -> None:
        """A notice is written or taken off, with its condition, and what a pod says that is ready is of its notice."""
        name, notice = pod["metadata"]["name"], written_on(pod, NOTICE)
        conditions = {row["type"]: row["status"] for row in pod["status"].get("conditions", ())}
        is_right = conditions.get(_CONDITION) == ("False" if notice is None else "True")
        self.expect(is_right, f"the condition of {name} says another thing than its notice")
        self.expect(READY not in pod["metadata"]["annotations"], f"{name} is ready for a notice that it has not read")
        if notice is None:
            self.withdrawn += 1
            return
        self.notices.setdefault(pod["metadata"]["uid"], []).append(now())
        plan = self.written.get(notice["plan"])
        if plan is None:
            self.expect(False, f"{name} is told for a plan that is on no pod")
            return
        victims = {victim["uid"] for victim in plan["victims"]}
        self.expect(was is None or was["plan"] != notice["plan"], f"{name} is told twice for {notice['plan']}")
        self.expect(pod["metadata"]["uid"] in victims, f"{name} is told, and no victim")
        is_lower = plan["priority"] == notice["priority"] > pod["spec"]["priority"]
        self.expect(is_lower, f"{name} is of no lower priority")
        ahead, left = self.cluster.ahead, datetime.fromisoformat(notice["by"]).timestamp() - START - now()
        self.expect(
            self._notice - _SLOW <= left - ahead < self._notice + 1.01,
            f"{name} is told {left:.2f} s before, by a clock that is {ahead:.2f} s ahead",
        )

    def _in_time(self, pod: Json) -> None:
        """Its notice is over, or it said that it is ready."""
        name, is_ready = pod["metadata"]["name"], pod["metadata"]["annotations"].get(READY) == "true"
        if written_on(pod, NOTICE) is None:
            self.expect(False, f"{name} is asked without a notice")
        elif not is_ready:
            ahead = [term[2] for term in self.cluster.terms] or [0.0]
            since, differ = now() - self.notices[pod["metadata"]["uid"]][-1], max(ahead) - min(ahead)
            self.expect(since >= self._notice - differ - _SLOW, f"{name} is asked {since:.2f} s after it was told")

    def _check_forgotten(self, plan: str) -> None:
        if plan not in {written["id"] for written in self._on_pods().values()}:
            self.wrong += [f"{name} has a notice of {plan}, which is over" for name in self._having({plan})]

    def _having(self, plans: set[str]) -> list[str]:
        """The pods that stay and have a notice of one of these plans."""
        stay = {name: pod for name, pod in self.cluster.pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return [name for name, pod in stay.items() if (written_on(pod, NOTICE) or {"plan": ""})["plan"] in plans]
