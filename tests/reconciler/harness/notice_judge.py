"""Whether notices are what a policy promises, by what the server saw: who is told, by when, who is asked and when.

It looks at nothing inside the reconciler. A notice is an annotation on a pod of the server, a plan is an annotation on
another one. Both are read here by the names that stand in docs/notice.md.
"""

from __future__ import annotations

import asyncio
import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.reconciler.builders import START
from tests.reconciler.harness.pods import written_on

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

Json = dict[str, Any]
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


class NoticeJudge:
    """Judges the notices of a simulated cluster, whose policy says how long before victims are told."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.seconds = cluster, cluster.policy.victims.notice or 0.0
        self.found: list[str] = []
        self.told: dict[str, list[float]] = {}
        """Pod's uid to when each of its notices was written."""
        self.asked: dict[str, float] = {}
        """Pod's uid to when it was asked first."""
        self.withdrawn = self.ready = 0
        self._plans: dict[str, Json] = {}
        """Every plan that was ever on a pod, by id."""
        self._ended: dict[str, float] = {}
        cluster.changes.append(self._changed)
        cluster.asked.append(self._asked)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _skew(self) -> float:
        """Seconds by which the clocks of leaders differ, at most."""
        ahead = [one for _, _, one in self.cluster.terms] or [0.0]
        return max(ahead) - min(ahead)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        before, after = written_on(old), written_on(new)
        if after:
            self._plans[after["id"]] = after | {"priority": (new or {})["spec"]["priority"]}
        if before and (not after or after["id"] != before["id"]):
            self._ended.setdefault(before["id"], self._now())
            self._forget_later(before["id"])
        was, now = written_on(old, NOTICE), written_on(new, NOTICE)
        if new is None or was == now:
            return
        name, uid = new["metadata"]["name"], new["metadata"]["uid"]
        if now is None:
            self.withdrawn += 1
            self._expect(_condition(new) == "False", f"the condition of {name} is not taken back")
            self._expect(READY not in new["metadata"]["annotations"], f"{name} is still ready, for the next notice")
            return
        self.told.setdefault(uid, []).append(self._now())
        self._expect(_condition(new) == "True", f"{name} has a notice and no condition")
        self._expect(READY not in new["metadata"]["annotations"], f"{name} answers a notice that it has not read")
        plan = self._plans.get(now["plan"])
        if not self._expect(plan is not None, f"{name} is told for a plan that is on no pod"):
            return
        assert plan is not None
        self._expect(uid in {one["uid"] for one in plan["victims"]}, f"{name} is told, and no victim")
        self._expect(plan["priority"] == now["priority"] > new["spec"]["priority"], f"{name} is of no lower priority")
        left = _seconds(now["by"]) - START - self._now()
        self._expect(
            self.seconds - _SLOW <= left - self.cluster.ahead < self.seconds + 1.01,
            f"{name} is told {left:.2f} s before, by a clock that is {self.cluster.ahead:.2f} s ahead",
        )
        if was is not None and was["plan"] == now["plan"]:
            self.found.append(f"{name} is told twice for {now['plan']}")

    def _asked(self, name: str) -> None:
        """A pod is asked to leave: its notice is over, or it said that it is ready."""
        pod = self.cluster.pods.get(name)
        if pod is None:
            return
        uid, now, notice = pod["metadata"]["uid"], self._now(), written_on(pod, NOTICE)
        self.asked.setdefault(uid, now)
        if not self._expect(notice is not None, f"{name} is asked at {now:.2f} without a notice"):
            return
        if pod["metadata"]["annotations"].get(READY) == "true":
            self.ready += 1
            return
        since = now - self.told[uid][-1]
        self._expect(since >= self.seconds - self._skew - _SLOW, f"{name} is asked {since:.2f} s after it was told")

    def _forget_later(self, plan: str) -> None:
        """Some time after a plan is over nobody has a notice of it, if one leader was there all the time."""
        if self.cluster.terms:
            return
        asyncio.get_running_loop().call_later(_LATE, self._check_forgotten, plan)

    def _check_forgotten(self, plan: str) -> None:
        if plan not in self._on_pods():
            self.found += [f"{name} has a notice of {plan}, which is over" for name in self._having({plan})]

    def _on_pods(self) -> set[str]:
        return {plan["id"] for pod in self.cluster.pods.values() if (plan := written_on(pod))}

    def _having(self, plans: set[str]) -> list[str]:
        stay = {name: pod for name, pod in self.cluster.pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return [name for name, pod in stay.items() if (written_on(pod, NOTICE) or {"plan": ""})["plan"] in plans]

    def faults(self, settled: float) -> list[str]:
        """What was wrong, and the pods that have a notice in the end though no pod has that plan."""
        del settled
        left = self._having(self._plans.keys() - self._on_pods())
        return self.found + [f"{name} still has a notice" for name in left]

    def _expect(self, right: bool, otherwise: str) -> bool:
        if not right:
            self.found.append(f"{self._now():.2f}: {otherwise}")
        return right


def _condition(pod: Json) -> str:
    return next((one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == _CONDITION), "")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
