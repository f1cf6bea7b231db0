"""Reconcilers at work on an API server in memory, on a loop whose time passes at once: minutes take milliseconds.

What is known of a reconciler here is what any API server knows: its requests. It runs as the service does, with a
clock, and its log is heard. The server keeps pods as plain JSON, shows each change after a while, lets evicted pods
take their time, keeps budgets and refuses what it is told to.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import random
from collections.abc import Callable
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from tests.preemption.building import budget
from tests.reconciler.builders import START, ClassesOfPods, otherwise
from tests.reconciler.harness.api_server import ApiClient, ApiServer, StoredObjects
from tests.reconciler.harness.devices import EXTENDED, SimulatedDevices
from tests.reconciler.harness.judge import Judge, Record, untold
from tests.reconciler.harness.outcome_judge import OutcomeJudge
from tests.reconciler.harness.pods import Json, owner_of
from tests.reconciler.harness.scheduler import SimulatedScheduler
from tests.reconciler.harness.virtual_time import later, now
from webhook.clusters.simulated.clock import VirtualClock
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.resources import COSCHEDULING_POD_GROUP, NODE, POD_DISRUPTION_BUDGET, POD_GROUP, PRIORITY_CLASS
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService

_OPTIONS = ReconcilerOptions(lease_duration=1200.0, renew_deadline=1000.0, retry_period=100.0)
"""A leader is never slow to renew: it is killed, and then its Lease is free."""


class Process:
    """A reconciler that contends for the Lease until it is killed."""

    def __init__(self, cluster: Cluster, ahead: float) -> None:
        self.ahead, self.client, self.registry = ahead, ApiClient(cluster), CollectorRegistry()
        loop: Any = asyncio.get_running_loop()
        self.service = ReconcilerService(
            cast("Client", self.client),
            Policies(preemption=(cluster.policy,)),
            _OPTIONS,
            tell=cluster.tell,
            registry=self.registry,
            clock=VirtualClock(loop, START + ahead),
        )
        self.service.state.snapshot.classes.__class__ = ClassesOfPods
        self.work = asyncio.create_task(self.service.run())

    async def end(self, *, is_killed: bool) -> None:
        """End it. If it is killed nothing that it sends from now on arrives; else it may say what there is to say."""
        assert not self.work.done(), self.work.exception()
        self.ended = now()
        if is_killed:
            self.client.cluster = None
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        self.client.cluster = None


class Cluster:
    """One cluster, and one reconciler at a time; `dice` decide how long things take.

    `kept` are names of pods that an admission policy never lets go, `migrating` those that are said to be on their way
    out until then, and stay, `shunned` nodes that kube-scheduler binds no pod to.
    """

    def __init__(self, under: PreemptionPolicy, nodes: list[Json], dice: random.Random) -> None:
        self.policy, self.dice, self.nodes = under, dice, nodes
        self.budgets: dict[str, Json] = {}
        """By the app whose pods they cover."""
        self.classes = [{"metadata": {"name": "low"}, "value": 80}]
        self.groups: list[Json] = []
        """PodGroups, of coscheduling if they have `minMember`."""
        self.collection = StoredObjects(lambda: self.dice.choice((0.0, 0.0, 0.01, 0.2)))
        self.api = ApiServer(self.collection)
        self.api.collections[POD_DISRUPTION_BUDGET.path()] = StoredObjects(lambda: self.dice.choice((0.0, 0.1)))
        self.pods = self.collection.objects
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
        self.devices: SimulatedDevices | None = None
        self.scheduler = SimulatedScheduler(self, dice)
        self.shunned = self.scheduler.shuns
        self.steps = 0
        """Steps of all processes so far: each request that changes something is one when it is sent, and one when it
        was answered."""
        self.killed_at: frozenset[int] = frozenset()
        """The steps at which the process is killed; another one begins at once."""
        self.terms: list[tuple[float, float, float]] = []
        """When reconcilers begin and end to lead, and how wrong their clocks are; empty for one that always leads."""
        self.kills = True
        """Whether processes are killed when they do not lead any more, and not stopped as Kubernetes does it."""
        self.process: Process | None = None
        self.told: list[Json] = []
        self.dresses: list[Callable[[Json], None]] = []
        """What is put on each new pod, and on each in the place of one that is gone under its name."""
        self.begins: list[Callable[[Cluster, random.Random], None]] = []
        """What happens to a random cluster once it has been filled."""
        # Who is told of a line of the log, of each pod that is different on the server, new or gone, as it was and as
        # it is, and of requests that arrive and are answered.
        self.heard: list[Callable[[Json], None]] = []
        self.changes: list[Callable[[Json | None, Json | None], None]] = []
        self.arriving: list[Callable[[str, str, Json], object]] = []
        self.answered: list[Callable[[str, str, Json], object]] = []
        self._killed = asyncio.Event()
        self.record, self.outcomes = Record(self), OutcomeJudge(self)
        self.judges: list[Judge] = [self.record, self.outcomes]

    def faults(self, settled: float = 0.0) -> list[str]:
        """What was wrong by the end; what began before `settled`, in seconds, has to be over."""
        return [wrong for judge in self.judges for wrong in judge.faults(settled)]

    def _tell_judges(self, what: str, *news: Any) -> None:
        for judge in self.judges:
            getattr(judge, what)(*news)

    @property
    def seen(self) -> dict[str, Json]:
        """The pods as the reconciler's watch has shown them."""
        return self.collection.seen

    @property
    def ahead(self) -> float:
        """By how many seconds the clock of the process that leads is wrong."""
        return self.process.ahead if self.process else 0.0

    # How processes come and go.

    async def step(self) -> None:
        """A process has come to a step, which may be its last."""
        self.steps += 1
        if self.steps in self.killed_at:
            self._killed.set()
            await asyncio.Event().wait()

    def use(self, changed: PreemptionPolicy) -> None:
        """Somebody takes another policy into use, in this process and all later ones."""
        self.outcomes.outside("the policies were changed")
        self.policy = changed
        if self.process:
            self.process.service.use(Policies(preemption=(changed,)))

    def publish(self) -> None:
        """Write all but the pods to the server."""
        for node in self.nodes:
            self.show(NODE, node)
        for guard in self.budgets.values():
            self.show(POD_DISRUPTION_BUDGET, guard, at_once=True)
        for kind in self.classes:
            self.show(PRIORITY_CLASS, kind)
        self.show_groups()
        if self.devices:
            self.devices.publish()

    async def live(self, seconds: float) -> None:
        """Let the reconcilers and everybody else work for so long."""
        self.publish()
        tasks = [asyncio.create_task(self._lead()), asyncio.create_task(self.scheduler.work())]
        await asyncio.sleep(seconds)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        """Let one reconciler lead after the other; each forgets all it knew."""
        for begin, end, ahead in self.terms or [(0.0, math.inf, 0.0)]:
            await asyncio.sleep(max(0.0, begin - now()))
            while now() < end:
                if self.process:
                    self._tell_judges("another_leads", ahead - self.process.ahead, self.process.ended)
                self.process = process = Process(self, ahead)
                try:
                    async with asyncio.timeout_at(None if math.isinf(end) else end):
                        await self._killed.wait()
                except TimeoutError:
                    pass
                finally:
                    await process.end(is_killed=self.kills)
                    self._killed.clear()
                    self.api.free_the_lease()

    def tell(self, message: str, **fields: Any) -> None:
        """A reconciler logs something."""
        line: Json = {"message": message, **fields}
        self.told.append(line)
        self._tell_judges("told", line)
        for hear in self.heard:
            hear(line)

    async def hear(self, verb: str, name: str, body: Json, *, done: bool = False) -> None:
        """A request for a pod or a Lease arrives, or was done, and who hears of it may take time, or raise the answer.

        It is `patch`, `try` (a dry run), `evict`, `delete` or `get`; of a Lease `read` or `write`.
        """
        for hears in tuple(self.answered if done else self.arriving):
            if inspect.isawaitable(more := hears(verb, name, body)):
                await more

    def tell_asked(self, name: str, uid: str) -> None:
        """Somebody is to be evicted; another pod of that name is not asked."""
        if self.pods.get(name, {"metadata": {"uid": ""}})["metadata"]["uid"] == uid:
            self._tell_judges("asked", name)

    # What the server has.

    def put(self, pod: Json) -> None:
        """Create or change a pod, and show that to the watch after a while, in order."""
        name, known = pod["metadata"]["name"], self.pods.get(pod["metadata"]["name"])
        for dress in self.dresses if known is None else ():
            dress(pod)
        if self.devices and (known is None or known["metadata"]["uid"] != pod["metadata"]["uid"]):
            self.devices.came(pod)
        self._tell_changed(known, pod)
        self.collection.put(name, pod)
        self.scheduler.woken.set()

    def edit(self, name: str, change: Callable[[Json], object]) -> None:
        """Somebody changes a pod, if it is there."""
        if name in self.pods:
            pod = msgspec.json.decode(msgspec.json.encode(self.pods[name]))
            change(pod)
            self.put(pod)

    def _tell_changed(self, old: Json | None, new: Json | None) -> None:
        self._tell_judges("changed", old, new)
        for told in tuple(self.changes):
            told(old, new)

    def cover(self, app: str, allowed: int, **status: Any) -> None:
        """Let a budget cover the pods of an app, with so many disruptions left."""
        self.budgets[app] = budget(f"b-{app}", {"app": app}, allowed, **status)

    def allow(self, app: str, disruptions: int) -> None:
        """Let the budget of an app have so many disruptions left, and show that."""
        self.budgets[app]["status"]["disruptionsAllowed"] = disruptions
        self.show(POD_DISRUPTION_BUDGET, self.budgets[app])

    def remove(self, name: str, uid: str) -> None:
        """The pod has ended; its controller may make another one."""
        if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
            gone = self.collection.remove(name)
            self._tell_changed(gone, None)
            self.scheduler.woken.set()
            if self.devices:
                self.devices.gone(gone)
            self._replace(gone)

    def _replace(self, gone: Json) -> None:
        if (how := self.replacing.get(owner_of(gone))) is None:
            return
        new, base, came = copy.deepcopy(gone), gone["metadata"]["name"].partition("-r")[0], rfc3339(START + now())
        name = f"{base}-r{self.collection.version}"
        new["metadata"] |= {"uid": f"uid-{name}", "annotations": untold(gone), "creationTimestamp": came}
        if how != "same":
            new["metadata"]["name"] = name
        new["metadata"].pop("deletionTimestamp", None)
        if how != "here":
            new["spec"].pop("nodeName", None)
            new["status"] = {"phase": "Pending"}
        else:
            new["status"] = {"phase": "Running", "startTime": came}
            new["spec"].pop("resourceClaims", None)  # a kubelet starts no pod without its devices
            new["spec"]["containers"][0]["resources"]["requests"].pop(EXTENDED, None)
        later(0.0 if how == "here" else 0.05, self.put, new)

    def show(self, kind: resources.Resource, body: Json, **how: bool) -> None:
        """Show what has become of an object to the watch."""
        self.api.collections[kind.path()].put(body["metadata"]["name"], body, **how)

    def show_groups(self) -> None:
        """Show what has become of the PodGroups."""
        kinds = (POD_GROUP, COSCHEDULING_POD_GROUP)
        for group in self.groups:
            self.show(kinds["minMember" in group["spec"]], group)
        for known in (self.api.collections[kind.path()] for kind in kinds):
            for name in known.objects.keys() - {group["metadata"]["name"] for group in self.groups}:
                known.remove(name)

    def cpus(self, node: str) -> int:
        """How many CPUs a node has; none if it is gone."""
        rooms = {known["metadata"]["name"]: known["status"]["allocatable"]["cpu"] for known in self.nodes}
        return int(rooms.get(node, 0))

    def end(self, pod: Json, *, evicted: bool = True) -> None:
        """Let a pod go, which mostly is `evicted`: it is there until its grace period is over, or it has ended."""
        meta = pod["metadata"]
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        meta["deletionTimestamp"] = rfc3339(START + now() + grace)
        if evicted:
            self.evicted.append(meta["name"])
            self._tell_judges("evicted", pod)
        self.put(pod)
        seconds = self.ends_after.get(meta["name"], min(grace, self.dice.choice((0.0, 1.0, 30.0))))
        later(seconds, self.remove, meta["name"], meta["uid"])

    # What others do.

    def hold_watch(self, seconds: float, drag: float = 0.0) -> None:
        """Show nothing of pods for so long, and then what there is, by a list.

        Whoever takes it in looks at a clock again and again, which takes so many seconds if the machine is busy.
        """
        loop: Any = asyncio.get_running_loop()
        self.collection.hold(seconds)
        if drag:
            later(seconds, setattr, loop, "drag", drag)
            later(seconds + 5.0, setattr, loop, "drag", 0.0)

    def leave(self, name: str) -> None:
        """Somebody else deletes a pod."""
        known = self.pods.get(name)
        if known is not None and "deletionTimestamp" not in known["metadata"]:
            if known["spec"].get("nodeName"):
                self.outcomes.left(known)
            self.end(copy.deepcopy(known), evicted=False)

    def drop_node(self, name: str) -> None:
        """Somebody deletes a node; its pods go with it."""
        self.outcomes.outside("the node was deleted", name)
        if name in self.api.collections[NODE.path()].objects:
            self.api.collections[NODE.path()].remove(name)
        self.nodes[:] = [node for node in self.nodes if node["metadata"]["name"] != name]
        for pod in [pod for pod in self.pods.values() if pod["spec"].get("nodeName") == name]:
            later(1.0, self.remove, pod["metadata"]["name"], pod["metadata"]["uid"])

    def cordon(self, name: str) -> None:
        """Somebody cordons a node."""
        self.outcomes.outside("the node was cordoned", name)
        for node in [node for node in self.nodes if node["metadata"]["name"] == name]:
            node["spec"] = {**node.get("spec", {}), "unschedulable": True}
            self.show(NODE, node)

    def withdraw(self, name: str) -> None:
        """Somebody else deletes a pod that waits."""
        if name in self.pods and not self.pods[name]["spec"].get("nodeName"):
            self.remove(name, self.pods[name]["metadata"]["uid"])

    def remembered(self) -> list[str]:
        """What the reconciler still counts otherwise than the watch shows it, although it has ended all its plans."""
        assert self.process is not None
        known = otherwise(self.process.service.state)
        return [f"{', '.join(known)} count otherwise than they are"] if known else []
