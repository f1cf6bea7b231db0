"""Whether every plan that has evicted ended with its preemptor bound (docs/semantics.md E9), by what the server saw.

A plan is what is written on a pod, and it is over when it has left the pod, whichever process took it off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.reconciler.harness.devices import uses_devices
from tests.reconciler.harness.judge import Judge
from tests.reconciler.harness.pods import GANG, Json, cpu_of, written_on
from tests.reconciler.harness.virtual_time import now
from webhook.policy.model.values import MARK

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

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
    """A plan that has evicted: for which pod, what was written on it, since when, and who went.

    `concerned` are uids and nodes, also of the other members of its gang, and of their victims.
    """

    pod: Json
    plan: Json
    since: float
    concerned: set[str]
    victims: list[str]


class OutcomeJudge(Judge):
    """Judges the plans of a simulated cluster when they are over: `wrong` are those in vain.

    Those evicted, and their preemptor was not bound although nothing outside had changed.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._returned: dict[str, list[float]] = {}
        """Owner to when a pod of it that names its node cost a plan."""
        self._plans: dict[tuple[str, str], _Evicting] = {}
        """By plan and preemptor."""
        self._served: set[str] = set()
        """Victims, by uid, of plans that ended as they should: another plan that names one has not evicted it."""
        self._shunned: set[str] = set()
        """Pods, by uid, that were refused for a hidden reason: nobody could know that they still wait."""
        self._beside: dict[str, set[str]] = {}
        """Plan of a gang to what concerns it: the uids and nodes of its members, and of their victims."""
        self._shown: dict[str, set[str]] = {}
        """Plan that lost its room to the pods, by uid, that the watch had shown by then."""
        self._outside: list[_Outside] = []
        self._bound: dict[str, float] = {}
        """Pod, by uid, to when it was bound."""
        self._left: dict[str, list[tuple[float, Json]]] = {}
        """Node to when somebody else deleted a pod there, and which."""

    def faults(self, settled: float) -> list[str]:
        """Plans that evicted in vain, and those from before `settled` that still stand, and not for a hidden reason.

        Nor does it count if something outside has happened to the preemptor itself, such as a change of its PodGroup.
        """
        changed = {row.scope: row.at for row in self._outside if row.scope}
        return self.wrong + [
            f"{plan} for {uid} stands"
            for (plan, uid), evicting in self._plans.items()
            if evicting.since < settled and self.cluster.shunned.isdisjoint(evicting.concerned)
            if uid not in self._shunned and changed.get(uid, -1.0) < evicting.since
        ]

    def outside(self, what: str, scope: str = "", **more: Any) -> None:
        """Note that something outside has changed now."""
        self._outside.append(_Outside(now(), what, scope, **more))

    def left(self, pod: Json) -> None:
        """Somebody else deletes this pod, which has a node."""
        self._left.setdefault(pod["spec"]["nodeName"], []).append((now(), pod))

    def shun(self, pod: Json) -> None:
        """The scheduler does not bind this pod where it fits, for a reason that no object shows: it takes others."""
        self._shunned.add(pod["metadata"]["uid"])
        self.outside(f"{pod['metadata']['name']} is refused for a hidden reason", above=pod["spec"]["priority"])

    def kept_for_long(self, name: str, uid: str) -> None:
        """Somebody keeps a pod on its way out for longer than a plan may take: plans that wait for it come to nothing.

        So do those of equal or lower priority on the node to which such a plan has nominated a preemptor after them.
        """
        what = f"{name} was migrated for longer than a plan may take"
        self.outside(what, uid)
        for pod in self.cluster.pods.values():
            if (plan := written_on(pod)) and uid in {victim["uid"] for victim in plan["victims"]}:
                decided, above = self.cluster.record.decided.get(plan["id"], 0.0), pod["spec"]["priority"] + 1
                self._outside.append(_Outside(decided, what, plan["node"], above))

    def another_leads(self, back: float, ended: float) -> None:
        """It knows of owners what the last one had time to write on the Lease; by its own clock that may be older."""
        for owner, times in self._returned.items():
            self._returned[owner] = [at - max(back, 0.0) for at in times if at < ended - _WRITTEN]

    def told(self, line: Json) -> None:
        """Of what the watch had not shown when a plan was made nobody could know, however long ago it was."""
        if line["message"] == "decision":
            for name, pod in self.cluster.pods.items():
                shown = self.cluster.seen.get(name, {"spec": {}})
                if (node := pod["spec"].get("nodeName")) and not shown["spec"].get("nodeName"):
                    self.outside(f"{name} was bound there, which no watch had shown", node, unseen=True)
        elif line["message"] == "plan ended" and line["ending"] in {"space-taken", "devices-taken"}:
            self._shown[line["plan"]] = {pod["metadata"]["uid"] for pod in self.cluster.seen.values()}

    def evicted(self, pod: Json) -> None:
        """Whose plans name it have evicted it: of a gang's one that for the member on its node, or for all.

        What concerns the plans for other members of the group concerns this one: who joins depends on those before it.
        """
        gone, on = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        for preemptor in self.cluster.pods.values():
            plan, uid = written_on(preemptor), preemptor["metadata"]["uid"]
            if plan is None or _is_served(preemptor, plan):
                continue
            planned = {victim["uid"] for victim in plan["victims"]}
            if gone in planned and on not in {member["node"] for member in plan.get("members", ())} - {plan["node"]}:
                beside = [written["id"] for member in self._gang_of(preemptor) if (written := written_on(member))]
                concerned = {uid, plan["node"], *planned, ""}.union(*(self._beside.get(other, ()) for other in beside))
                since = self.cluster.record.decided.get(plan["id"], 0.0)
                evicting = _Evicting(preemptor, plan, since, concerned, [])
                self._plans.setdefault((plan["id"], uid), evicting).victims.append(gone)

    def _gang_of(self, pod: Json) -> list[Json]:
        """The members of the pod's group that are there; none if it has no group."""
        group = pod["metadata"]["labels"].get(GANG)
        pods = self.cluster.pods.values() if group else ()
        return [other for other in pods if other["metadata"]["labels"].get(GANG) == group]

    def changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            if (plan := written_on(new)) and "members" in plan:
                places = {member[field] for member in plan["members"] for field in ("uid", "node")}
                self._beside[plan["id"]] = places | {victim["uid"] for victim in plan["victims"]}
            self._came(old, new)
        if old is not None:
            self._went(old, new)

    def _came(self, old: Json | None, new: Json) -> None:
        """A pod came, or came to a node, or to be nominated."""
        name, node, uid = new["metadata"]["name"], new["spec"].get("nodeName"), new["metadata"]["uid"]
        owner = self.cluster.record.owner[uid]
        returned = {"known": tuple(self._returned.get(owner, ())), "owner": owner, "uid": uid}
        nominated, before = (state["status"].get("nominatedNodeName") or "" for state in (new, old or new))
        if old is None and node:
            self.outside(f"{name} was put there", node, **returned)
        elif old is None:
            self.outside(f"{name} came in front", above=new["spec"]["priority"])
        elif node and not old["spec"].get("nodeName"):
            self.outside(f"{name} was bound there", node, unseen=True)
            self._came_by_room_that_was_left(new, node)
            self._bound[uid] = now()
            self._came_after_lower_ones(new, node)
            if uses_devices(new):
                # No nomination keeps devices from a pod of lower or equal priority.
                self.outside(f"{name} took devices there", node, devices_from=new["spec"]["priority"], **returned)
            if uid in self._shunned:
                self.outside(f"{name}, which was refused elsewhere, was bound there", node)
        elif nominated not in ("", before):
            self._came_by_room_that_was_left(new, nominated)

    def _went(self, old: Json, new: Json | None) -> None:
        """A pod goes, or what was written on it."""
        plan, uid = written_on(old), old["metadata"]["uid"]
        if (new is None or "deletionTimestamp" in new["metadata"]) and MARK in old["metadata"]["labels"]:
            for member in self._gang_of(old):
                self.outside("another member of its gang went", member["metadata"]["uid"])
        if plan is None:
            return
        if new is None:
            self.outside("the preemptor is gone", uid)
        if (plan["id"], uid) not in self._plans:
            return
        if new is not None and _is_served(new, plan):
            self._served.update(self._plans.pop((plan["id"], uid)).victims)
        elif new is None or (written_on(new) or {}).get("id") != plan["id"]:
            self._judge(uid, self._plans.pop((plan["id"], uid)))

    def _came_by_room_that_was_left(self, pod: Json, node: str) -> None:
        """A pod was bound or nominated that would not have fit beside the pods that somebody else deleted."""
        left, bound = self._left.get(node, ()), bool(pod["spec"].get("nodeName"))
        there = [other for other in self._others(pod, node) if bound or "deletionTimestamp" not in other["metadata"]]
        if left and node not in self.cluster.scheduler.fits(pod, [*there, *(gone for _, gone in left)]):
            what = f"{pod['metadata']['name']} came to room that pods left by themselves"
            self._outside += [_Outside(at, what, node, pod["spec"]["priority"]) for at, _ in left]

    def _came_after_lower_ones(self, pod: Json, node: str) -> None:
        """A pod was bound that the scheduler had put off, while lower ones filled the room beside preemptors."""
        there = self._others(pod, node)
        free = self.cluster.cpus(node) - sum(map(cpu_of, [pod, *there]))
        waiting = [other for other in self.cluster.pods.values() if other["status"].get("nominatedNodeName") == node]
        for (_, uid), evicting in self._plans.items():
            came = [other for other in there if self._bound.get(other["metadata"]["uid"], -1.0) > evicting.since]
            lower = sum(cpu_of(other) for other in came if other["spec"]["priority"] < pod["spec"]["priority"])
            wanted = sum(cpu_of(other) for other in waiting if other["metadata"]["uid"] in evicting.concerned)
            if free < wanted <= free + lower:
                self.outside(f"{pod['metadata']['name']}, which was put off, came after lower ones", uid)

    def _others(self, pod: Json, node: str) -> list[Json]:
        """The other pods on a node."""
        there = [other for other in self.cluster.pods.values() if other["spec"].get("nodeName") == node]
        return [other for other in there if other["metadata"]["uid"] != pod["metadata"]["uid"]]

    def _judge(self, uid: str, evicting: _Evicting) -> None:
        others = {uid for other in self._plans.values() for uid in other.victims}
        if self._served.union(others).issuperset(evicting.victims):
            return  # they went for another plan, which is judged for them
        record, plan, since = self.cluster.record, evicting.plan, evicting.since
        priority, nominated = evicting.pod["spec"]["priority"], record.nominated.get(plan["id"], since)
        owners = {record.owner.get(victim["uid"], "") for victim in plan["victims"]} - {""}
        reasons = [
            row
            for row in self._outside
            if row.at >= since - _LAG
            and not (row.unseen and row.at > nominated)
            and (row.at <= since or not any(before + _LAG < since < before + _REMEMBERED for before in row.known))
            and (row.scope in evicting.concerned or (row.owner in owners and row.at > since))
            and row.above > priority
            and (row.devices_from is None or (plan.get("devices") and row.devices_from <= priority))
        ]
        taken = any(row.unseen and row.scope in evicting.concerned and row.at > since for row in self._outside)
        for row in reasons:
            # One that came before the plan, or to no node of it, did not come back; one that came when it was over is
            # not known; and if others were bound there nobody can tell by whom the room was taken.
            came_back = row.at > since and row.scope in evicting.concerned and not taken
            if row.owner in owners and came_back and row.uid in self._shown.get(plan["id"], ()):
                self._returned.setdefault(row.owner, []).append(now())
        if reasons or not self.cluster.shunned.isdisjoint(evicting.concerned):
            self._served.update(evicting.victims)
        else:
            what = f"{plan['id']} for {uid} on {plan['node']} since {since:.2f}, was in vain"
            self.expect(False, f"{what}: {evicting.victims} went")


def _is_served(pod: Json, plan: Json) -> bool:
    """Whether the pod has what its plan is for: a node, or what it wants there."""
    pending = [row for row in pod["status"].get("conditions", ()) if row["type"] == "PodResizePending"]
    return not pending if plan.get("resize") else bool(pod["spec"].get("nodeName"))
