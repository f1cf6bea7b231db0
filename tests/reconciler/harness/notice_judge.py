"""Whether notices are what a policy promises: who is told, by when, who is asked and when.

A notice is an annotation on a pod. It is read here by the names that stand in docs/notice.md.
"""

from __future__ import annotations

import copy
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tests.reconciler.builders import START
from tests.reconciler.harness.judge import Judge, Record
from tests.reconciler.harness.pods import Json, written_on
from tests.reconciler.harness.virtual_time import later

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

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
