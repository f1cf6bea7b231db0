"""A reconciler at work on an API server in memory, on a loop whose time passes at once: minutes take milliseconds.

The server keeps pods as plain JSON, shows each change to the reconciler's watch after a while, lets evicted pods take
their time, keeps budgets and refuses what it is told to. kube-scheduler's part is played by the oracle, which shares
no code with the decision. Every eviction is judged when it is asked for, on what the reconciler had been shown.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from tests.preemption import oracle
from tests.reconciler.builders import START, Setting
from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects import Node, Pod, PodDisruptionBudget
from webhook.policy.model import CAN_BE_PREEMPTED, PreemptionPolicy
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Reporter

__all__ = ["Simulation", "run"]

Json = dict[str, Any]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that does not wait: when nothing is ready it is at once the time of the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False
        self._now += 1e-6
        if timers and not self._ready:  # type: ignore[attr-defined]
            self._now = max(self._now, timers[0].when())
        super()._run_once()  # type: ignore[misc]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on a loop of its own."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work)


class _Clock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return START + self.monotonic()

    def stopwatch(self) -> float:
        return self.monotonic()


class Simulation:
    """One cluster and one reconciler; `dice` decide how long things take.

    `kept` are names of pods that the server never lets go, `migrating` those that are said to be on their way out until
    then, and stay, `shunned` nodes that kube-scheduler binds no pod to.
    """

    def __init__(self, under: PreemptionPolicy, nodes: list[Json], budgets: list[Json], dice: random.Random) -> None:
        self.policy, self.dice = under, dice
        self.setting = Setting(under=under)
        self.setting.evaluator.clock = _Clock()  # type: ignore[assignment]
        self.nodes, self.budgets = nodes, {one["metadata"]["name"]: one for one in budgets}
        self.pods: dict[str, Json] = {}
        self.seen: dict[str, Json] = {}
        """The pods as the reconciler's watch has shown them."""
        self.kept: set[str] = set()
        self.migrating: dict[str, float] = {}
        self.shunned: set[str] = set()
        self._refused: set[str] = set()
        """Kept pods that the reconciler has asked: of the others it cannot know."""
        self.evicted: list[str] = []
        self.needless: list[str] = []
        self.slow_writes = False
        """Whether changes of pods take up to half a second, so that others act between two steps of a plan."""
        self._version = 0
        self._work_arrived = asyncio.Event()
        self._shown = 0.0
        self._budget_shown: dict[str, float] = {}
        """When the newest state of each budget is shown: a watch never goes back."""
        self.told: list[Json] = []
        self.reconciler = Reconciler(
            self,  # type: ignore[arg-type]  # the four verbs that are used
            self.setting.state,
            self.setting.policy_set,
            Reporter(ReconcilerMetrics(CollectorRegistry()), self._tell, None),
            _Clock(),
            fence=lambda: 1000.0,
        )
        self.evaluator = self.reconciler.evaluator

    async def live(self, seconds: float) -> None:
        """Let the reconciler and everybody else work for so long."""
        self.reconciler.leading = True
        for one in self.nodes:
            self.setting._put(self.setting.state.nodes, one["metadata"]["name"], msgspec.convert(one, Node))
        for one in self.budgets.values():
            self.setting.budget(msgspec.convert(one, PodDisruptionBudget))
        tasks = [asyncio.create_task(self.reconciler.work()), asyncio.create_task(self._schedule())]
        await asyncio.sleep(seconds)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.reconciler.stop()

    def put(self, pod: Json) -> None:
        """Create or change a pod, and show that to the watch after a while, in order."""
        name = pod["metadata"]["name"]
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self.pods[name] = pod
        self._show(name, copy.deepcopy(pod))

    def remove(self, name: str, uid: str) -> None:
        """The pod has ended."""
        if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
            del self.pods[name]
            self._show(name, None)

    def _show(self, name: str, pod: Json | None) -> None:
        loop = asyncio.get_running_loop()
        self._work_arrived.set()
        self._shown = max(self._shown + 1e-4, loop.time() + self.dice.choice((0.0, 0.0, 0.01, 0.2)))
        loop.call_at(self._shown, self._deliver, name, pod)

    def _deliver(self, name: str, pod: Json | None) -> None:
        if pod is None:
            if self.seen.pop(name, None) is not None:
                self.setting.remove(f"default/{name}")
        else:
            self.seen[name] = pod
            self.setting.add(msgspec.convert(pod, Pod))

    async def get(self, path: str, as_: type[Pod]) -> Pod:
        """A pod, as `Client.get`."""
        return msgspec.convert(self._found(path.rsplit("/", 1)[1]), as_)

    async def patch(self, path: str, body: Json, *, kind: str = "merge", as_: type[Pod] = Pod) -> Pod:
        """Change a pod's status, as `Client.patch`."""
        del kind
        if self.slow_writes:
            await asyncio.sleep(self.dice.choice((0.0, 0.05, 0.5)))
        pod = copy.deepcopy(self._found(path.split("/")[-2]))
        meta = body["metadata"]
        version = pod["metadata"]["resourceVersion"]
        if (meta["uid"], meta.get("resourceVersion", version)) != (pod["metadata"]["uid"], version):
            raise ApiError(409, "Conflict", "it has changed")
        annotations = {**pod["metadata"].get("annotations", {}), **meta.get("annotations", {})}
        pod["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        pod["status"] = {
            key: value for key, value in {**pod["status"], **body.get("status", {})}.items() if value is not None
        }
        self.put(pod)
        return msgspec.convert(pod, as_)

    async def create(self, path: str, body: Json) -> None:
        """Evict a pod, as `Client.create` does with an Eviction."""
        del path
        name = body["metadata"]["name"]
        self._judge(name)
        await asyncio.sleep(self.dice.choice((0.0, 0.005, 0.1)))
        pod = copy.deepcopy(self._found(name))
        if pod["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            raise ApiError(409, "Conflict", "another pod of that name")
        if asyncio.get_running_loop().time() < self.migrating.get(name, 0.0):
            raise ApiError(429, "TooManyRequests", "Evacuation in progress")
        if name in self.kept:
            self._refused.add(name)
            raise ApiError(403, "Forbidden", "it is kept")
        if "deletionTimestamp" in pod["metadata"]:
            return
        self._spend(pod)
        self._end(pod)

    def _found(self, name: str) -> Json:
        if name not in self.pods:
            raise ApiError(404, "NotFound", f"no pod {name}")
        return self.pods[name]

    def _spend(self, pod: Json) -> None:
        for one in self.budgets.values():
            if not one["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items():
                continue
            status = one["status"]
            if status["disruptionsAllowed"] <= 0:
                cause = {"causes": [{"reason": "DisruptionBudget"}]}
                raise ApiError(429, "TooManyRequests", "the budget is used up", details=cause)
            status["disruptionsAllowed"] -= 1
            status["disruptedPods"] = {**status.get("disruptedPods", {}), pod["metadata"]["name"]: rfc3339(START)}
            shown = msgspec.convert(copy.deepcopy(one), PodDisruptionBudget)
            name, after = one["metadata"]["name"], asyncio.get_running_loop().time() + self.dice.choice((0.0, 0.1))
            self._budget_shown[name] = max(self._budget_shown.get(name, 0.0) + 1e-4, after)
            asyncio.get_running_loop().call_at(self._budget_shown[name], self.setting.budget, shown)

    def _end(self, pod: Json) -> None:
        loop, meta = asyncio.get_running_loop(), pod["metadata"]
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        meta["deletionTimestamp"] = rfc3339(START + loop.time() + grace)
        self.evicted.append(meta["name"])
        self.put(pod)
        loop.call_later(min(grace, self.dice.choice((0.0, 1.0, 30.0))), self.remove, meta["name"], meta["uid"])

    def leave(self, name: str) -> None:
        """Somebody else deletes a pod."""
        if name in self.pods and "deletionTimestamp" not in self.pods[name]["metadata"]:
            self._end(copy.deepcopy(self.pods[name]))
            self.evicted.pop()

    def withdraw(self, name: str) -> None:
        """Somebody else deletes a pod that waits."""
        if name in self.pods and not self.pods[name]["spec"].get("nodeName"):
            self.remove(name, self.pods[name]["metadata"]["uid"])

    def _tell(self, line: Json) -> None:
        self.told.append(line)
        if line["message"] == "decision" and line.get("victims"):
            self._judge_decision(line)

    def _judge_decision(self, line: Json) -> None:
        """Whether somebody is to go although room comes up elsewhere, soon enough for the policy."""
        leaving = self._leaving_within(min(self.policy.wait_for_terminating, self.policy.plan_timeout))
        preemptor = line["preemptor"].partition("/")[2]
        fits = set(self.ask(self.seen, preemptor, leaving)["fits"]) - set(line.get("leftOut", ()))
        if fits:
            self.needless.append(f"{preemptor} fits on {sorted(fits)} once {sorted(leaving)} are gone")

    def _leaving_within(self, patience: float) -> set[str]:
        """The pods that have been seen leaving and will be gone by then, in seconds; none that is long overdue."""
        wall = _Clock().wall()
        ends = {
            name: epoch(pod["metadata"]["deletionTimestamp"])
            for name, pod in self.seen.items()
            if "deletionTimestamp" in pod["metadata"]
        }
        return {name for name, end in ends.items() if wall - 60 <= end <= wall + patience}

    def _judge(self, name: str) -> None:
        """Whether the preemptor behind an eviction would have fitted without it, for all that the reconciler knew."""
        uid = self.seen.get(name, {}).get("metadata", {}).get("uid")
        plan = next((one for one in self.reconciler.plans.values() if uid in one.asking), None)
        if plan is None:
            self.needless.append(f"{name} was asked to leave for nobody")
            return
        preemptor = plan.key.partition("/")[2]
        others = {victim.name for victim in plan.record.victims if victim.uid not in plan.unneeded} - {name}
        fits = set(self.ask(self.seen, preemptor, ())["fits"]) - plan.left_out
        if fits and not plan.gone:
            self.needless.append(f"{preemptor} fitted on {sorted(fits)} when {name} was asked to leave")
        if plan.record.node in fits:
            self.needless.append(f"{preemptor} fitted on {plan.record.node} without {name}")
        others |= self._leaving_within(min(self.policy.wait_for_terminating, plan.deadline - _Clock().monotonic()))
        if plan.record.node in self.ask(self.seen, preemptor, others)["fits"]:
            self.needless.append(f"{name} is more than {preemptor} needs beside {sorted(others)}")

    def ask(self, pods: dict[str, Json], preemptor: str, gone: Any, may_go: oracle.MayGo | None = None) -> Json:
        """What the oracle says of a preemptor, as if it could preempt by itself and had no nomination."""
        nominated = {plan.key.partition("/")[2]: plan.record.node for plan in self.reconciler.plans.values()}
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
            "nodes": self.nodes,
            "pods": there,
            "preemptor": asked,
            "podDisruptionBudgets": list(self.budgets.values()),
        }
        return oracle.decide(cluster, may_go)

    async def _schedule(self) -> None:
        """Play kube-scheduler: bind what fits, the nominated node first, the highest priority first."""
        while True:
            await self._work_arrived.wait()
            self._work_arrived.clear()
            await asyncio.sleep(self.dice.choice((0.01, 0.1, 1.0)))
            waiting = [one for one in self.pods.values() if not one["spec"].get("nodeName")]
            for pod in sorted(waiting, key=lambda one: -one["spec"]["priority"]):
                self._bind(pod)

    def _bind(self, pod: Json) -> None:
        name, nominated = pod["metadata"]["name"], pod["status"].get("nominatedNodeName")
        cluster = {"name": "truth", "nodes": self.nodes, "pods": [*self.pods.values()], "preemptor": pod}
        cluster["pods"] = [one for one in self.pods.values() if one is not pod]
        fits = [node for node in oracle.decide(cluster)["fits"] if node not in self.shunned]
        if fits and "deletionTimestamp" not in pod["metadata"]:
            bound = copy.deepcopy(self.pods[name])
            bound["spec"]["nodeName"] = nominated if nominated in fits else fits[0]
            bound["status"] = {"phase": "Running", "startTime": rfc3339(START + asyncio.get_running_loop().time())}
            self.put(bound)

    def stranded(self) -> list[str]:
        """Preemptors that wait though a plan within the rules exists, by the oracle on what there is."""
        found = []
        for name, pod in self.pods.items():
            if pod["spec"].get("nodeName") or pod["spec"].get("preemptionPolicy") != "Never":
                continue
            answer = self.ask(self.pods, name, (), self._may_go)
            entry = self.reconciler.queue.get(f"default/{name}")
            out = {left.node for left in entry.nodes.left_out(asyncio.get_running_loop().time())} if entry else set()
            fits = set(answer["fits"]) - out - self.shunned
            plans = [
                one
                for one in answer["candidates"]
                if not one["pdbViolations"] and one["node"] not in out | self.shunned and self._within_rates(one)
            ]
            if fits or plans:
                said = entry.reason if entry else "it is not in the queue"
                found.append(f"{name} waits ({said}) though it fits on {sorted(fits)} or {plans} would do")
        return found

    def remembered(self) -> list[str]:
        """What the reconciler still expects or remembers of pods although it has ended all its plans."""
        state = self.setting.state
        found = [f"{len(state.expectations)} expectations"] if len(state.expectations) else []
        found += [f"{len(state.disruptions)} disruptions"] if len(state.disruptions) else []
        gone = state.expectations.cleared.keys() - {f"default/{name}" for name in self.pods}
        return found + [f"the plan that was taken off {key}, which is gone" for key in sorted(gone)]

    def _within_rates(self, candidate: Json) -> bool:
        """Whether so many victims may go in one window."""
        limits, victims = self.policy.limits, [self.pods[key.partition("/")[2]] for key in candidate["victims"]]
        owners = Counter(one["metadata"]["ownerReferences"][0]["name"] for one in victims if _is_owned(one))
        counts = [(limits.per_node, len(victims)), (limits.per_cluster, len(victims))]
        counts += [(limits.per_owner, number) for number in owners.values()]
        return all(rate is None or number <= rate.evictions for rate, number in counts)

    def _may_go(self, pod: Json) -> bool:
        meta = pod["metadata"]
        free = all(
            one["status"]["disruptionsAllowed"] > 0
            for one in self.budgets.values()
            if one["spec"]["selector"]["matchLabels"].items() <= meta["labels"].items()
        )
        kept = meta["name"] in self._refused or "deletionTimestamp" in meta
        return free and not kept and meta.get("annotations", {}).get(CAN_BE_PREEMPTED) == "true"


def _is_owned(pod: Json) -> bool:
    return bool(pod["metadata"].get("ownerReferences"))
