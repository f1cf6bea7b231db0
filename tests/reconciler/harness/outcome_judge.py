"""Whether every plan that has evicted ended with its preemptor bound (docs/semantics.md E9), by what the server saw.

It looks at nothing inside the reconciler: a plan is what is written on a pod, and it is over when it has left the pod,
whichever process took it off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.reconciler.harness.pods import GANG, written_on
from webhook.policy.model.values import MARK

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

Json = dict[str, Any]
_LAG = 1.0
"""Seconds by which the watches of a simulated cluster may be late."""
_REMEMBERED = 55.0
"""Seconds for which, at least, an owner that puts its pods back must be known for that."""


_WRITTEN = 0.4
"""Seconds after which the Lease tells of an owner that puts its pods back."""


class _Outside(NamedTuple):
    """Something changed that is neither giveway's nor the scheduler's; `scope` is a node, a uid, or empty for all."""

    at: float
    what: str
    scope: str = ""
    above: int = 10**9
    """Only preemptors of lower priority than this are concerned."""
    unseen: bool = False
    """Whether only plans are concerned that were made before any watch showed it."""
    known: tuple[float, ...] = ()
    """When the same had cost a plan before: soon after that it could be known."""
    owner: str = ""
    uid: str = ""
    devices_from: int | None = None
    """Only plans that hold devices are concerned, for preemptors of this priority or more."""


class _Evicting(NamedTuple):
    preemptor: str
    priority: int
    node: str
    since: float
    planned: frozenset[str]
    victims: list[str]
    beside: frozenset[str] = frozenset()
    """The uids and nodes of the other members of its gang, and of their victims."""
    devices: bool = False


class OutcomeJudge:
    """Judges the plans of a simulated cluster when they are over."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.in_vain: list[str] = []
        """Plans that evicted and whose preemptor was not bound although nothing outside had changed."""
        self.told_before = 0
        """How many lines earlier processes have told."""
        self._returned: dict[str, list[float]] = {}
        """Owner to when a pod of it that names its node cost a plan."""
        self._plans: dict[tuple[str, str], _Evicting] = {}
        """By plan and preemptor."""
        self._served: set[str] = set()
        """Victims, by uid, of plans that ended as they should: another plan that names one has not evicted it."""
        self._owner: dict[str, str] = {}
        """Pod's uid to its owner."""
        self._shunned: set[str] = set()
        """Pods, by uid, that were refused for a hidden reason: nobody could know that they still wait."""
        self._beside: dict[str, set[str]] = {}
        """Plan of a gang to what concerns it: the uids and nodes of its members, and of their victims."""
        self._shown: dict[str, set[str]] = {}
        """Plan that lost its room to the pods, by uid, that the watch had shown by then."""
        self._since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        """Plan to when its last nomination was written: from then on the scheduler keeps the room."""
        self._outside: list[_Outside] = []
        self._bound: dict[str, float] = {}
        """Pod, by uid, to when it was bound."""
        self._left: dict[str, list[tuple[float, int]]] = {}
        """Node to when somebody else deleted a pod there, and how many CPUs that had."""
        cluster.changes.append(self.changed)
        cluster.heard.append(self._heard)

    def faults(self, settled: float) -> list[str]:
        """Plans that evicted in vain, and those from before `settled`, in seconds, that still stand."""
        return self.in_vain + self._unfinished(settled)

    def outside(
        self,
        what: str,
        scope: str = "",
        *,
        above: int = 10**9,
        unseen: bool = False,
        known: tuple[float, ...] = (),
        owner: str = "",
        uid: str = "",
        devices_from: int | None = None,
    ) -> None:
        """Note that something outside has changed now."""
        now = asyncio.get_running_loop().time()
        self._outside.append(_Outside(now, what, scope, above, unseen, known, owner, uid, devices_from))

    def another_leads(self, back: float) -> None:
        """Another process leads, which knows of owners what the last one had time to write on the Lease.

        The clock of the last one was so many seconds `back`: by so much earlier that ends for the new one.
        """
        now, self.told_before = asyncio.get_running_loop().time(), len(self.cluster.told)
        for owner, times in self._returned.items():
            self._returned[owner] = [at - max(back, 0.0) for at in times if at < now - _WRITTEN]

    def left(self, pod: Json) -> None:
        """Somebody else deletes this pod."""
        now = asyncio.get_running_loop().time()
        self._left.setdefault(pod["spec"]["nodeName"], []).append((now, _cpu(pod)))

    def shunned(self, uid: str) -> None:
        """The scheduler does not bind this pod where it fits, for a reason that no object shows."""
        self._shunned.add(uid)

    def _heard(self, line: Json) -> None:
        """A plan is made, or over for its reconciler."""
        if line["message"] == "decision":
            self.decided(line)
        if line["message"] == "plan ended" and line["ending"] in {"space-taken", "devices-taken"}:
            self._shown[line["plan"]] = {pod["metadata"]["uid"] for pod in self.cluster.seen.values()}

    def decided(self, line: Json) -> None:
        """A plan was made; of what the watch had not shown by then nobody could know, however long ago it was."""
        self._since[line["plan"]] = asyncio.get_running_loop().time()
        for name, pod in self.cluster.pods.items():
            shown = self.cluster.seen.get(name, {"spec": {}})
            if (node := pod["spec"].get("nodeName")) and not shown["spec"].get("nodeName"):
                self.outside(f"{name} was bound there, which no watch had shown", node, unseen=True)

    def evicted(self, uid: str) -> None:
        """A pod was evicted: whose plans name it has evicted."""
        for pod in self.cluster.pods.values():
            plan = written_on(pod)
            if plan and not _is_served(pod, plan) and self._goes_for(uid, plan):
                meta, since = pod["metadata"], self._since.get(plan["id"], 0.0)
                planned = frozenset(victim["uid"] for victim in plan["victims"])
                beside = frozenset(self._concerned(meta["labels"].get(GANG)))
                made = _Evicting(
                    meta["uid"],
                    pod["spec"]["priority"],
                    plan["node"],
                    since,
                    planned,
                    [],
                    beside,
                    bool(plan.get("devices")),
                )
                self._plans.setdefault((plan["id"], meta["uid"]), made).victims.append(uid)

    def _concerned(self, group: str | None) -> set[str]:
        """What concerns the plans for members of a group: one that joins depends on those before it."""
        labelled = [one for one in self.cluster.pods.values() if group and one["metadata"]["labels"].get(GANG) == group]
        plans = [plan["id"] for one in labelled if (plan := written_on(one))]
        return set().union(*(self._beside.get(plan, ()) for plan in plans))

    def _goes_for(self, uid: str, plan: Json) -> bool:
        """Whether a pod is a victim of a plan, and of a gang's one for this member: on its node, or on nobody's."""
        others = {one["node"] for one in plan.get("members", ())} - {plan["node"]}
        on = next(
            (one["spec"].get("nodeName") for one in self.cluster.pods.values() if one["metadata"]["uid"] == uid), ""
        )
        return on not in others and uid in {victim["uid"] for victim in plan["victims"]}

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different on the server, or new, or gone."""
        if new is not None:
            meta = new["metadata"]
            self._owner[meta["uid"]] = next((one["name"] for one in meta.get("ownerReferences", ())), "")
            if plan := written_on(new):
                if (written_on(old) or {"id": ""})["id"] != plan["id"]:
                    self._written[plan["id"]] = asyncio.get_running_loop().time()
                if "members" in plan:
                    places = {one[field] for one in plan["members"] for field in ("uid", "node")}
                    self._beside[plan["id"]] = places | {victim["uid"] for victim in plan["victims"]}
        if old is None and new is not None:
            self._came(new)
        elif old is not None and new is not None and new["spec"].get("nodeName") and not old["spec"].get("nodeName"):
            name, node = new["metadata"]["name"], new["spec"]["nodeName"]
            self.outside(f"{name} was bound there", node, unseen=True)
            self._came_by_room_that_was_left(new, node)
            self._came_after_lower_ones(new, node)
            self._took_devices(new)
            if new["metadata"]["uid"] in self._shunned:
                self.outside(f"{name}, which was refused elsewhere, was bound there", node)
        elif old is not None and new is not None and _nominated(new) not in ("", _nominated(old)):
            self._came_by_room_that_was_left(new, _nominated(new))
        plan = written_on(old)
        if old is not None and (new is None or "deletionTimestamp" in new["metadata"]):
            self._member_went(old["metadata"]["labels"])
            if new is None and plan:
                self.outside("the preemptor is gone", old["metadata"]["uid"])
        key = (plan["id"], (new or old or {})["metadata"]["uid"]) if plan else ("", "")
        if plan is None or key not in self._plans:
            return
        if new is not None and _is_served(new, plan):
            self._served.update(self._plans.pop(key).victims)
            return
        if new is not None and (written_on(new) or {}).get("id") == plan["id"]:
            return
        self._judge(plan["id"], self._plans.pop(key))

    def _member_went(self, labels: dict[str, str]) -> None:
        for pod in self.cluster.pods.values() if MARK in labels and GANG in labels else ():
            if pod["metadata"]["labels"].get(GANG) == labels[GANG]:
                self.outside("another member of its gang went", pod["metadata"]["uid"])

    def _unfinished(self, before: float) -> list[str]:
        """Plans made before then, in seconds, that have evicted and still stand, and not for a hidden reason.

        Nor does it count if something outside has happened to the preemptor itself, such as a change of its PodGroup.
        """
        changed = {one.scope: one.at for one in self._outside if one.scope}
        return [
            f"{plan} for {evicting.preemptor} stands"
            for (plan, _), evicting in self._plans.items()
            if evicting.since < before and self.cluster.shunned.isdisjoint({evicting.node, *evicting.beside})
            if evicting.preemptor not in self._shunned and changed.get(evicting.preemptor, -1.0) < evicting.since
        ]

    def _came(self, pod: Json) -> None:
        node, priority = pod["spec"].get("nodeName"), pod["spec"]["priority"]
        if node:
            uid = pod["metadata"]["uid"]
            owner = self._owner[uid]
            known = tuple(self._returned.get(owner, ()))
            self.outside(f"{pod['metadata']['name']} was put there", node, known=known, owner=owner, uid=uid)
        else:
            self.outside(f"{pod['metadata']['name']} came in front", above=priority)

    def _came_by_room_that_was_left(self, pod: Json, node: str) -> None:
        """A pod was bound or nominated that would not have fit beside the pods that somebody else deleted."""
        priority, left = pod["spec"]["priority"], self._left.get(node, ())
        rooms = [one["status"]["allocatable"]["cpu"] for one in self.cluster.nodes if one["metadata"]["name"] == node]
        others = [one for one in self.cluster.pods.values() if one["metadata"]["uid"] != pod["metadata"]["uid"]]
        there = [one for one in others if one["spec"].get("nodeName") == node]
        bound = bool(pod["spec"].get("nodeName"))
        used = sum(_cpu(one) for one in there if bound or "deletionTimestamp" not in one["metadata"])
        if left and rooms and used + _cpu(pod) + sum(cpu for _, cpu in left) > int(rooms[0]):
            what = f"{pod['metadata']['name']} came to room that pods left by themselves"
            self._outside += [_Outside(at, what, node, priority) for at, _ in left]

    def _came_after_lower_ones(self, pod: Json, node: str) -> None:
        """A pod was bound that the scheduler had put off, while lower ones filled the room beside a preemptor's."""
        self._bound[pod["metadata"]["uid"]] = asyncio.get_running_loop().time()
        there = [one for one in self.cluster.pods.values() if one["spec"].get("nodeName") == node]
        rooms = [one["status"]["allocatable"]["cpu"] for one in self.cluster.nodes if one["metadata"]["name"] == node]
        free = int(rooms[0] if rooms else 0) - sum(map(_cpu, there)) - _cpu(pod)
        for plan in [one for one in self._plans.values() if one.node == node]:
            came = [one for one in there if self._bound.get(one["metadata"]["uid"], -1.0) > plan.since]
            lower = [_cpu(one) for one in came if one["spec"]["priority"] < pod["spec"]["priority"]]
            wanted = [_cpu(one) for one in self.cluster.pods.values() if one["metadata"]["uid"] == plan.preemptor]
            if wanted and free < wanted[0] <= free + sum(lower):
                self.outside(f"{pod['metadata']['name']}, which was put off, came after lower ones", plan.preemptor)

    def _took_devices(self, pod: Json) -> None:
        """A pod was bound with devices: no nomination keeps them from one of lower or equal priority."""
        devices, uid = self.cluster.devices, pod["metadata"]["uid"]
        if devices is not None and devices.uses_devices(pod):
            self.outside(
                f"{pod['metadata']['name']} took devices there",
                pod["spec"]["nodeName"],
                known=tuple(self._returned.get(self._owner[uid], ())),
                owner=self._owner[uid],
                uid=uid,
                devices_from=pod["spec"]["priority"],
            )

    def _judge(self, plan: str, evicting: _Evicting) -> None:
        now = asyncio.get_running_loop().time()
        others = {uid for other in self._plans.values() for uid in other.victims}
        if self._served.union(others).issuperset(evicting.victims):
            return  # they went for another plan, which is judged for them
        concerned = {evicting.preemptor, evicting.node, *evicting.planned, *evicting.beside, ""}
        owners = {self._owner.get(uid, "") for uid in evicting.planned} - {""}
        reasons = [
            one
            for one in self._outside
            if one.at >= evicting.since - _LAG
            and not (one.unseen and one.at > self._written.get(plan, evicting.since))
            and (one.at <= evicting.since or not any(_is_known(before, evicting.since) for before in one.known))
            and (one.scope in concerned or (one.owner in owners and one.at > evicting.since))
            and one.above > evicting.priority
            and (one.devices_from is None or (evicting.devices and one.devices_from <= evicting.priority))
        ]
        for one in reasons:
            # One that came before the plan did not come back, and one that came when it was over is not known.
            if one.owner in owners and one.at > evicting.since and one.uid in self._shown.get(plan, ()):
                self._returned.setdefault(one.owner, []).append(now)
        shunned = not self.cluster.shunned.isdisjoint({evicting.node, *evicting.beside})
        if reasons or shunned:
            self._served.update(evicting.victims)
        else:
            self.in_vain.append(
                f"{plan} for {evicting.preemptor} on {evicting.node} from {evicting.since:.2f} to {now:.2f},"
                f" {len(evicting.victims)} went: {evicting.victims}"
            )


def _is_known(before: float, now: float) -> bool:
    """Whether it is known that an owner puts its pods back, since that cost a plan before."""
    return before + _LAG < now < before + _REMEMBERED


def _cpu(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _nominated(pod: Json) -> str:
    return str(pod["status"].get("nominatedNodeName", ""))


def _is_served(pod: Json, plan: Json) -> bool:
    """Whether the pod has what its plan is for: a node, or what it wants there."""
    pending = [row for row in pod["status"].get("conditions", ()) if row["type"] == "PodResizePending"]
    return not pending if plan.get("resize") else bool(pod["spec"].get("nodeName"))
