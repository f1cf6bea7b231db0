"""Reconcilers at work on an API server in memory, on a loop whose time passes at once: minutes take milliseconds.

The server keeps pods as plain JSON, shows each change to the reconciler's watch after a while, lets evicted pods take
their time, keeps budgets and refuses what it is told to. Every eviction is judged when it is asked for
(`SpareJudge`), and every plan when it has left its pod (`OutcomeJudge`).
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections.abc import Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from tests.reconciler.builders import START, Setting
from tests.reconciler.notice_judge import untold
from tests.reconciler.outcome_judge import OutcomeJudge
from tests.reconciler.simulated_api import SimulatedApi
from tests.reconciler.simulated_devices import EXTENDED, SimulatedDevices
from tests.reconciler.simulated_scheduler import SimulatedScheduler
from tests.reconciler.spare_judge import SpareJudge
from tests.reconciler.virtual_time import SimulatedClock
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Node, PriorityClass
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import COSCHEDULING_POD_GROUP, POD_GROUP, PRIORITY_CLASS
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.plans.eviction_ledger import LedgerStore
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Reporter

Json = dict[str, Any]


class Simulation:
    """One cluster, and one reconciler at a time; `dice` decide how long things take.

    `kept` are names of pods that an admission policy never lets go, `migrating` those that are said to be on their way
    out until then, and stay, `shunned` nodes that kube-scheduler binds no pod to.
    """

    def __init__(self, under: PreemptionPolicy, nodes: list[Json], budgets: list[Json], dice: random.Random) -> None:
        self.policy, self.dice = under, dice
        self.nodes, self.budgets = nodes, {one["metadata"]["name"]: one for one in budgets}
        self.classes = [{"metadata": {"name": "low"}, "value": 80}]
        self.pods: dict[str, Json] = {}
        self.seen: dict[str, Json] = {}
        """The pods as the reconciler's watch has shown them."""
        self.kept: set[str] = set()
        self.migrating: dict[str, float] = {}
        self.refused: set[str] = set()
        """Kept pods that the reconciler has asked: of the others it cannot know."""
        self.replacing: dict[str, str] = {}
        """Controller to how it replaces a pod that is gone: "anywhere", "same", under the name it had, or "here", which
        names the node itself."""
        self.throttled: tuple[float, float] = (0.0, 0.0)
        """Until when the server answers evictions with 429, and which share of them."""
        self.ends_after: dict[str, float] = {}
        """Seconds that pods take to end, whatever their grace period is: by a finalizer, for one."""
        self.answers_lost = 0
        """How many evictions that were done are answered with 500."""
        self.evicted: list[str] = []
        self.slow_writes = False
        """Whether changes of pods take up to half a second, so that others act between two steps of a plan."""
        self.scheduler = SimulatedScheduler(self, dice)
        self.shunned = self.scheduler.shuns
        self.groups: list[Json] = []
        """PodGroups, of coscheduling if they have `minMember`."""
        self.steps = 0
        """Steps (`FAULT_POINTS`) of all processes so far."""
        self.killed_at: frozenset[int] = frozenset()
        """The steps at which the process is killed; another one begins at once."""
        self.asked: list[Callable[[str], None]] = []
        """Who is told of each pod that is evicted, before it is."""
        self.changes: list[Callable[[Json | None, Json | None], None]] = []
        """Who is told of each pod that is different on the server, new or gone: as it was and as it is."""
        self._killed = asyncio.Event()
        self.terms: list[tuple[float, float, float]] = []
        """When reconcilers begin and end to lead, and how wrong their clocks are; empty for one that always leads."""
        self.lease = ""
        """The ledger that the last leader wrote on its Lease."""
        self._version = self._listed = 0
        self._shown = self._held = 0.0
        self._budget_shown: dict[str, float] = {}
        """When the newest state of each budget is shown: a watch never goes back."""
        self.told: list[Json] = []
        self.devices: SimulatedDevices | None = None
        self.spares = SpareJudge(self)
        self.outcomes = OutcomeJudge(self)
        self.changes.append(self.outcomes.changed)
        self.clock = SimulatedClock()
        self._begin(0.0)

    @property
    def needless(self) -> list[str]:
        """Evictions that spared nobody anything."""
        return self.spares.needless

    def _begin(self, ahead: float) -> None:
        """A new process, which knows what the server has now."""
        self.outcomes.another_leads(ahead - self.clock.ahead)
        self.clock = SimulatedClock(ahead)
        self.setting = Setting(under=self.policy)
        self.setting.evaluator.clock = self.clock  # type: ignore[assignment]
        self.reconciler = Reconciler(
            SimulatedApi(self),  # type: ignore[arg-type]  # the verbs that are used
            self.setting.state,
            self.setting.policy_set,
            Reporter(ReconcilerMetrics(CollectorRegistry()), self._tell, None),
            self.clock,
            fence=lambda: 1000.0,
            checkpoint=self._checkpoint,
            ledger_store=LedgerStore(lambda: self.lease, self._renew_soon),
        )
        self.evaluator = self.reconciler.evaluator
        for cache in self.setting.state.caches.values():
            cache.synced.set()

    def _renew_soon(self) -> None:
        """Have the ledger written on the Lease a moment later, if the process is still there."""
        reconciler = self.reconciler

        def renew() -> None:
            if reconciler is self.reconciler and (text := reconciler.ledger.text()) is not None:
                self.lease = text

        asyncio.get_running_loop().call_later(0.05, renew)

    async def _checkpoint(self, step: str) -> None:
        """A process has come to a step, which may be its last."""
        del step
        self.steps += 1
        if self.steps in self.killed_at:
            self._killed.set()
            await asyncio.Event().wait()

    def restart(self) -> None:
        """Begin again with the policy as it is now; before anything has happened."""
        self._begin(0.0)

    def use(self, changed: PreemptionPolicy) -> None:
        """Take another policy into use, in this process and all later ones."""
        self.policy = changed
        self.reconciler.use(Policies(preemption=(changed,)))

    def _list(self) -> None:
        """Fill the caches with what there is now."""
        for one in self.nodes:
            self.show_node(one)
        for one in self.budgets.values():
            self.setting.budget(msgspec.convert(copy.deepcopy(one), PodDisruptionBudget))
        for one in self.classes:
            self.show_class(one)
        self.show_groups()
        if self.devices:
            self.devices.list()
        self.seen, self._listed, self._held = {}, 0, 0.0  # a process has watches of its own
        for name, pod in self.pods.items():
            self._deliver(name, copy.deepcopy(pod))
        self._listed = self._version

    async def live(self, seconds: float) -> None:
        """Let the reconcilers and everybody else work for so long."""
        for one in self.nodes:
            self.show_node(one)
        for one in self.budgets.values():
            self.setting.budget(msgspec.convert(copy.deepcopy(one), PodDisruptionBudget))
        self.show_groups()
        if self.devices:
            self.devices.list()
        tasks = [asyncio.create_task(self._lead()), asyncio.create_task(self.scheduler.work())]
        await asyncio.sleep(seconds)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.reconciler.stop()

    async def _lead(self) -> None:
        """Let one reconciler lead after the other; each forgets all it knew."""
        loop = asyncio.get_running_loop()
        for number, (begin, end, ahead) in enumerate(self.terms or [(0.0, math.inf, 0.0)]):
            await asyncio.sleep(max(0.0, begin - loop.time()))
            if number:
                self._begin(ahead)
                self._list()
            self.clock.ahead = ahead
            term = asyncio.create_task(self.reconciler.lead())
            while math.isinf(end):
                killed = asyncio.create_task(self._killed.wait())
                try:
                    await asyncio.wait((term, killed), return_when=asyncio.FIRST_COMPLETED)
                    assert not term.done(), term.exception()
                finally:
                    killed.cancel()
                    term.cancel()
                    await asyncio.gather(term, return_exceptions=True)
                self._killed.clear()
                self._begin(ahead)
                self._list()
                term = asyncio.create_task(self.reconciler.lead())
            await asyncio.sleep(end - loop.time())
            assert not term.done(), term.exception()
            term.cancel()
            await asyncio.gather(term, return_exceptions=True)

    # What the watch shows.

    def put(self, pod: Json) -> None:
        """Create or change a pod, and show that to the watch after a while, in order."""
        name, known = pod["metadata"]["name"], self.pods.get(pod["metadata"]["name"])
        if self.devices and (known is None or known["metadata"]["uid"] != pod["metadata"]["uid"]):
            self.devices.came(pod)
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._tell_changed(known, pod)
        self.pods[name] = pod
        self._show(name, copy.deepcopy(pod))

    def remove(self, name: str, uid: str) -> None:
        """The pod has ended; its controller may make another one."""
        if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
            gone = self.pods.pop(name)
            self._tell_changed(gone, None)
            self._show(name, None)
            if self.devices:
                self.devices.gone(gone)
            self._replace(gone)

    def _tell_changed(self, old: Json | None, new: Json | None) -> None:
        for told in self.changes:
            told(old, new)

    def _replace(self, gone: Json) -> None:
        owner = next((one["name"] for one in gone["metadata"].get("ownerReferences", ())), "")
        if (how := self.replacing.get(owner)) is None:
            return
        self._version += 1
        new, base = copy.deepcopy(gone), gone["metadata"]["name"].partition("-r")[0]
        new["metadata"] |= {"uid": f"uid-{base}-r{self._version}", "annotations": untold(gone)}
        if how != "same":
            new["metadata"]["name"] = f"{base}-r{self._version}"
        new["metadata"].pop("deletionTimestamp", None)
        now = asyncio.get_running_loop().time()
        new["metadata"]["creationTimestamp"] = rfc3339(START + now)
        if how != "here":
            new["spec"].pop("nodeName", None)
            new["status"] = {"phase": "Pending"}
        else:
            new["status"] = {"phase": "Running", "startTime": rfc3339(START + now)}
            new["spec"].pop("resourceClaims", None)  # a kubelet starts no pod without its devices
            new["spec"]["containers"][0]["resources"]["requests"].pop(EXTENDED, None)
        asyncio.get_running_loop().call_later(0.0 if how == "here" else 0.05, self.put, new)

    def hold_watch(self, seconds: float, applied_in: float = 0.0) -> None:
        """Show nothing for so long, and then what there is, as after a list, which takes so many seconds to apply."""
        loop = asyncio.get_running_loop()
        self._held = loop.time() + seconds
        loop.call_at(self._held, self._relist, applied_in)

    def _relist(self, seconds: float) -> None:
        """First who is gone, then after so many seconds who is there."""
        self._held = 0.0
        self.setting.state.pods.whole.clear()
        for name in self.seen.keys() - self.pods.keys():
            self._deliver(name, None)
        if seconds:
            loop = asyncio.get_running_loop()
            self._held = loop.time() + seconds
            loop.call_at(self._held, self._relist_rest)
        else:
            self._relist_rest()

    def _relist_rest(self) -> None:
        self._held = 0.0
        for name, pod in self.pods.items():
            known = self.seen.get(name)
            if known is None or known["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]:
                self._deliver(name, copy.deepcopy(pod))
        self.setting.state.pods.whole.set()

    def _show(self, name: str, pod: Json | None) -> None:
        loop = asyncio.get_running_loop()
        self.scheduler.woken.set()
        self._shown = max(self._shown + 1e-4, loop.time() + self.dice.choice((0.0, 0.0, 0.01, 0.2)))
        loop.call_at(self._shown, self._deliver, name, pod)

    def _deliver(self, name: str, pod: Json | None) -> None:
        if asyncio.get_running_loop().time() < self._held:
            return
        known = self.seen.get(name)
        if pod is None:
            if name not in self.pods and self.seen.pop(name, None) is not None:
                self.setting.remove(f"default/{name}")
        elif known is None or int(known["metadata"]["resourceVersion"]) < int(pod["metadata"]["resourceVersion"]):
            if known is None and (name not in self.pods or int(pod["metadata"]["resourceVersion"]) <= self._listed):
                return  # the list did not have it any more
            self.seen[name] = pod
            self.setting.add(msgspec.convert(pod, Pod))

    def show_node(self, one: Json) -> None:
        """Show what has become of a node."""
        self.setting._put(self.setting.state.nodes, one["metadata"]["name"], msgspec.convert(copy.deepcopy(one), Node))

    def show_groups(self) -> None:
        """Show what has become of the PodGroups."""
        for one in self.groups:
            cache = self.setting.state.caches[COSCHEDULING_POD_GROUP if "minMember" in one["spec"] else POD_GROUP]
            self.setting._put(cache, f"default/{one['metadata']['name']}", msgspec.convert(one, PodGroup))

    def show_class(self, one: Json) -> None:
        """Show what has become of a PriorityClass."""
        cache = self.setting.state.caches[PRIORITY_CLASS]
        self.setting._put(cache, one["metadata"]["name"], msgspec.convert(copy.deepcopy(one), PriorityClass))

    def show_budget(self, one: Json) -> None:
        """Show a budget to the watch after a while, in order."""
        shown = msgspec.convert(copy.deepcopy(one), PodDisruptionBudget)
        name, after = one["metadata"]["name"], asyncio.get_running_loop().time() + self.dice.choice((0.0, 0.1))
        self._budget_shown[name] = max(self._budget_shown.get(name, 0.0) + 1e-4, after)
        asyncio.get_running_loop().call_at(self._budget_shown[name], lambda: self.setting.budget(shown))

    def end(self, pod: Json, *, evicted: bool = True) -> None:
        """Let a pod go, which mostly is `evicted`: it is there until its grace period is over, or it has ended."""
        loop, meta = asyncio.get_running_loop(), pod["metadata"]
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        meta["deletionTimestamp"] = rfc3339(START + loop.time() + grace)
        if evicted:
            self.evicted.append(meta["name"])
            self.outcomes.evicted(meta["uid"])
        self.put(pod)
        seconds = self.ends_after.get(meta["name"], min(grace, self.dice.choice((0.0, 1.0, 30.0))))
        loop.call_later(seconds, self.remove, meta["name"], meta["uid"])

    # What others do.

    def shun(self, pod: Json) -> None:
        """The scheduler does not bind a pod where it fits, for a reason that no object shows: it takes other nodes."""
        self.outcomes.shunned(pod["metadata"]["uid"])
        self.outcomes.outside(
            f"{pod['metadata']['name']} is refused for a hidden reason", above=pod["spec"]["priority"]
        )

    def leave(self, name: str) -> None:
        """Somebody else deletes a pod."""
        if name in self.pods and "deletionTimestamp" not in self.pods[name]["metadata"]:
            if self.pods[name]["spec"].get("nodeName"):
                self.outcomes.left(self.pods[name])
            self.end(copy.deepcopy(self.pods[name]), evicted=False)

    def drop_node(self, name: str) -> None:
        """Somebody deletes a node; its pods go with it."""
        self.outcomes.outside("the node was deleted", name)
        self.nodes[:] = [one for one in self.nodes if one["metadata"]["name"] != name]
        if (known := self.setting.state.nodes.get(name)) is not None:
            self.setting.state.nodes._remove(name, known)
        for pod in [one for one in self.pods.values() if one["spec"].get("nodeName") == name]:
            asyncio.get_running_loop().call_later(1.0, self.remove, pod["metadata"]["name"], pod["metadata"]["uid"])

    def cordon(self, name: str) -> None:
        """Somebody cordons a node."""
        self.outcomes.outside("the node was cordoned", name)
        for one in self.nodes:
            if one["metadata"]["name"] == name:
                one["spec"] = {**one.get("spec", {}), "unschedulable": True}
                self.show_node(one)

    def withdraw(self, name: str) -> None:
        """Somebody else deletes a pod that waits."""
        if name in self.pods and not self.pods[name]["spec"].get("nodeName"):
            self.remove(name, self.pods[name]["metadata"]["uid"])

    def _tell(self, line: Json) -> None:
        self.told.append(line)
        if line["message"] == "plan ended":
            self.outcomes.ended(line)
        if line["message"] == "decision":
            self.outcomes.decided(line)
            if line.get("victims"):
                self.spares.decided(line)

    def stranded(self) -> list[str]:
        """Preemptors that wait though a plan within the rules exists."""
        return self.spares.stranded()

    def remembered(self) -> list[str]:
        """What the reconciler still expects or remembers of pods although it has ended all its plans."""
        state = self.setting.state
        found = [f"{len(state.expectations)} expectations"] if len(state.expectations) else []
        found += [f"{len(state.disruptions)} disruptions"] if len(state.disruptions) else []
        gone = state.expectations.cleared.keys() - {f"default/{name}" for name in self.pods}
        return found + [f"the plan that was taken off {key}, which is gone" for key in sorted(gone)]
