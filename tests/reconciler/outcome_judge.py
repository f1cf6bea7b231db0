"""Whether every plan that has evicted ended with its preemptor bound (docs/semantics.md E9), by what the server saw.

It looks at nothing inside the reconciler: a plan is what is written on a pod, and it is over when it has left the pod,
whichever process took it off.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from webhook.policy.model import PLAN

if TYPE_CHECKING:
    from tests.reconciler.simulation import Simulation

__all__ = ["OutcomeJudge"]

Json = dict[str, Any]
_LAG = 1.0
"""Seconds by which the watches of a simulated cluster may be late."""
_REMEMBERED = 55.0
"""Seconds for which, at least, an owner that puts its pods back must be known for that."""


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


class _Evicting(NamedTuple):
    preemptor: str
    priority: int
    node: str
    since: float
    planned: frozenset[str]
    victims: list[str]


class OutcomeJudge:
    """Judges the plans of a simulated cluster when they are over."""

    def __init__(self, cluster: Simulation) -> None:
        self.cluster = cluster
        self.in_vain: list[str] = []
        """Plans that evicted and whose preemptor was not bound although nothing outside had changed."""
        self.excused: list[str] = []
        self._returned: dict[str, list[float]] = {}
        """Owner to when a pod of it that names its node cost a plan."""
        self._plans: dict[str, _Evicting] = {}
        self._served: set[str] = set()
        """Victims, by uid, of plans that ended as they should: another plan that names one has not evicted it."""
        self._since: dict[str, float] = {}
        self._outside: list[_Outside] = []

    def outside(
        self,
        what: str,
        scope: str = "",
        *,
        above: int = 10**9,
        unseen: bool = False,
        known: tuple[float, ...] = (),
        owner: str = "",
    ) -> None:
        """Note that something outside has changed now."""
        self._outside.append(_Outside(asyncio.get_running_loop().time(), what, scope, above, unseen, known, owner))

    def forget(self) -> None:
        """Another process leads, which knows of no owner that puts its pods back."""
        self._returned.clear()

    def decided(self, line: Json) -> None:
        """A plan was made."""
        self._since[line["plan"]] = asyncio.get_running_loop().time()

    def evicted(self, uid: str) -> None:
        """A pod was evicted: whose plans name it has evicted."""
        for pod in self.cluster.pods.values():
            plan = _plan_on(pod)
            if plan and not pod["spec"].get("nodeName") and uid in {victim["uid"] for victim in plan["victims"]}:
                meta, since = pod["metadata"], self._since.get(plan["id"], 0.0)
                planned = frozenset(victim["uid"] for victim in plan["victims"])
                made = _Evicting(meta["uid"], pod["spec"]["priority"], plan["node"], since, planned, [])
                self._plans.setdefault(plan["id"], made).victims.append(uid)

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different on the server, or new, or gone."""
        if old is None and new is not None:
            self._came(new)
        elif old is not None and new is not None and new["spec"].get("nodeName") and not old["spec"].get("nodeName"):
            self.outside(f"{new['metadata']['name']} was bound there", new["spec"]["nodeName"], unseen=True)
        plan = _plan_on(old) if old is not None else None
        evicting = self._plans.get(plan["id"]) if plan else None
        if plan is None or evicting is None:
            return
        if new is None:
            self.outside("the preemptor is gone", evicting.preemptor)
        elif new["spec"].get("nodeName"):
            self._served.update(self._plans.pop(plan["id"]).victims)
            return
        elif (_plan_on(new) or {}).get("id") == plan["id"]:
            return
        self._judge(plan["id"], self._plans.pop(plan["id"]))

    def unfinished(self, before: float) -> list[str]:
        """Plans made before then, in seconds, that have evicted and still stand."""
        return [
            f"{plan} for {evicting.preemptor} stands"
            for plan, evicting in self._plans.items()
            if evicting.since < before and evicting.node not in self.cluster.shunned
        ]

    def _came(self, pod: Json) -> None:
        node, priority = pod["spec"].get("nodeName"), pod["spec"]["priority"]
        if node:
            owner = next((one["name"] for one in pod["metadata"].get("ownerReferences", ())), "")
            known = tuple(self._returned.get(owner, ()))
            self.outside(f"{pod['metadata']['name']} was put there", node, known=known, owner=owner)
        else:
            self.outside(f"{pod['metadata']['name']} came in front", above=priority)

    def _judge(self, plan: str, evicting: _Evicting) -> None:
        now = asyncio.get_running_loop().time()
        others = {uid for other in self._plans.values() for uid in other.victims}
        if self._served.union(others).issuperset(evicting.victims):
            return  # they went for another plan, which is judged for them
        concerned = {evicting.preemptor, evicting.node, *evicting.planned, ""}
        reasons = [
            one
            for one in self._outside
            if one.at >= evicting.since - _LAG
            and not (one.unseen and one.at > evicting.since)
            and not any(before + _LAG < evicting.since < before + _REMEMBERED for before in one.known)
            and one.scope in concerned
            and one.above > evicting.priority
        ]
        endings = [
            line["ending"] for line in self.cluster.told if line["message"] == "plan ended" and line["plan"] == plan
        ]
        said = (
            f"{plan} for {evicting.preemptor} on {evicting.node} from {evicting.since:.2f} to {now:.2f}"
            f" ended {endings[-1:]}, {len(evicting.victims)} went: {evicting.victims}"
        )
        for one in reasons:
            if one.owner and endings[-1:] == ["space-taken"]:  # else it came when the plan was over already
                self._returned.setdefault(one.owner, []).append(now)
        if reasons or evicting.node in self.cluster.shunned:
            self._served.update(evicting.victims)
        if reasons:
            self.excused.append(f"{said}; {reasons[-1].what}")
        elif evicting.node in self.cluster.shunned:
            self.excused.append(f"{said}; kube-scheduler does not take the node")
        else:
            self.in_vain.append(said)


def _plan_on(pod: Json) -> Json | None:
    text = pod["metadata"].get("annotations", {}).get(PLAN)
    return json.loads(text) if text else None
