"""Minutes of random load with reconcilers dying and taking over: what must never happen is checked at every event.

`make soak` runs ten minutes; GIVEWAY_SOAK_SECONDS makes it shorter.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter, deque
from contextlib import suppress

import pytest

from tests.e2e.software import SYSTEM, policies
from tests.reconciler.builders import otherwise
from tests.workloads import eventually
from webhook.clusters.model.pods import is_ready
from webhook.kube.errors import ApiError
from webhook.kube.informer import Informer
from webhook.kube.instants import epoch
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.resources import DEPLOYMENT, NODE, POD, POD_DISRUPTION_BUDGET
from webhook.policy.files.loading import load_texts
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN, PROTECTION_DURATION
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService

SECONDS = float(os.environ.get("GIVEWAY_SOAK_SECONDS", "600"))
NODES, MOST_PODS = 6, 60
pytestmark = pytest.mark.soak


class Watch:
    """The sandbox's pods, and every rule that an eviction broke."""

    def __init__(self, sandbox) -> None:
        self.cache = Informer(sandbox.client, POD.paths(sandbox.id), Pod)
        self.cache.handlers.append(self._look)
        self.kept: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=20)
        self.broken: list[str] = []
        self.evicted: Counter[str] = Counter()

    def keep(self, replicas: int) -> None:
        """The budget keeps so many of the deployment's pods from now on."""
        self.kept.append((time.monotonic(), replicas))

    def healthy(self) -> int:
        pods = [pod for pod in self.cache.items().values() if (pod.metadata.labels or {}).get("app") == "web"]
        return sum(is_ready(pod) and not pod.metadata.deletion_timestamp for pod in pods)

    def _look(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or not new.metadata.deletion_timestamp or old.metadata.deletion_timestamp:
            return
        if not any(row.type == "DisruptionTarget" and row.status == "True" for row in new.status.conditions or ()):
            return
        self.evicted[new.metadata.uid] += 1
        said = new.metadata.annotations or {}
        if said.get(CAN_BE_PREEMPTED) != "true":
            self.broken.append(f"{change.key} went though it may not")
        window = float(said.get(PROTECTION_DURATION, 0))
        if new.status.start_time and time.time() < epoch(new.status.start_time) + window - 0.5:
            self.broken.append(f"{change.key} went inside its protection of {window:g} s")
        if (new.metadata.labels or {}).get("app") == "web":
            recent = [replicas for at, replicas in self.kept if at > time.monotonic() - 5] or [self.kept[-1][1]]
            if self.healthy() < min(*recent, self.kept[-1][1]):
                left = f"keeps {min(recent)} and {self.healthy()} are left"
                self.broken.append(f"{change.key} went though its budget {left}")


class Load:
    """Random changes of the sandbox's cluster."""

    def __init__(self, sandbox, watch: Watch, dice: random.Random) -> None:
        self.sandbox, self.watch, self.dice = sandbox, watch, dice
        self._number = 0

    async def begin(self) -> None:
        """Nodes, classes, a deployment with a budget."""
        for number in range(NODES):
            await self.sandbox.node(f"n{number}", cpu="8")
        self.low = await self.sandbox.priority_class("low", 80)
        self.high = [await self.sandbox.priority_class(f"high{n}", 100 + n, preemptionPolicy="Never") for n in range(3)]
        await self.sandbox.workload("web", 6, "2", self.low)
        await self.sandbox.budget("web", {"app": "web"}, minAvailable=3)
        self.watch.keep(3)

    async def step(self) -> None:
        """One change; one that the server refuses is no matter."""
        often, now_and_then = (self._preemptor, self._victim, self._leave), (self._budget, self._scale, self._node)
        with suppress(ApiError):
            await self.dice.choice((*often, *often, *now_and_then))()

    async def _preemptor(self) -> None:
        if len(self.watch.cache.items()) < MOST_PODS:
            self._number += 1
            cpu, class_name = str(self.dice.randint(1, 6)), self.dice.choice(self.high)
            await self.sandbox.pod(f"p{self._number}", cpu=cpu, priorityClassName=class_name, labels={MARK: MANAGED})

    async def _victim(self) -> None:
        if len(self.watch.cache.items()) < MOST_PODS:
            self._number += 1
            said = {CAN_BE_PREEMPTED: self.dice.choice(["true", "true", "true", "false"])}
            said[PROTECTION_DURATION] = str(self.dice.choice([0, 2, 10]))
            cpu = str(self.dice.randint(1, 3))
            await self.sandbox.pod(f"v{self._number}", cpu=cpu, annotations=said, priorityClassName=self.low)

    async def _leave(self) -> None:
        names = [pod.metadata.name for pod in self.watch.cache.items().values() if pod.metadata.name[0] in "pv"]
        if len(names) > 10:
            await self.sandbox.client.delete(f"{self.sandbox.pods}/{self.dice.choice(names)}")

    async def _budget(self) -> None:
        keeps = self.dice.randint(0, 6)
        self.watch.keep(min(keeps, self.watch.kept[-1][1]))
        path = POD_DISRUPTION_BUDGET.path(self.sandbox.id, "web")
        await self.sandbox.client.patch(path, {"spec": {"minAvailable": keeps}})
        self.watch.keep(keeps)

    async def _scale(self) -> None:
        body = {"spec": {"replicas": self.dice.randint(3, 10)}}
        await self.sandbox.client.patch(DEPLOYMENT.path(self.sandbox.id, "web"), body)

    async def _node(self) -> None:
        name = f"{self.sandbox.id}-n{self.dice.randrange(NODES)}"
        cordoned = self.dice.random() < 0.3
        await self.sandbox.client.patch(NODE.path(name=name), {"spec": {"unschedulable": cordoned or None}})


async def test_soak(sandbox, giveway):
    """Budgets and protection are kept all along; when the dust settles no nomination is left and caches are true."""
    dice = random.Random(os.environ.get("GIVEWAY_SOAK_SEED", "1"))
    watch = Watch(sandbox)
    watching = asyncio.create_task(watch.cache.run())
    load = Load(sandbox, watch, dice)
    await load.begin()
    text = policies("unused", preemptors={"priorityClasses": load.high}, planTimeout="20s")
    other = await giveway.reconcile(text)
    options = ReconcilerOptions(lease_namespace=SYSTEM, lease_duration=2.0, renew_deadline=1.5, retry_period=0.3)
    service, work = begin(sandbox, text, options)
    end, next_death = time.monotonic() + SECONDS, time.monotonic() + 5
    while time.monotonic() < end:
        await load.step()
        await asyncio.sleep(dice.uniform(0.02, 0.3))
        assert watch.broken == []
        if time.monotonic() > next_death:
            next_death = time.monotonic() + dice.uniform(5, 20)
            if dice.random() < 0.5:
                await other.stop(signal.SIGKILL)
                other = await giveway.reconcile(text)
            else:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                service, work = begin(sandbox, text, options)
    await eventually(lambda: settled(watch), 60, "no unbound pod is nominated or carries a plan")
    await eventually(lambda: agrees(sandbox, service), 20, "the caches are equal to the server")
    await other.stop(signal.SIGTERM)
    await eventually(lambda: service.reconciler.leading, 20, "the reconciler in this process leads")
    await eventually(lambda: not otherwise(service.state), 60, "nothing is expected that nobody shows")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    watching.cancel()
    assert watch.broken == []
    assert len(watch.evicted) > SECONDS / 10, "the load did lead to evictions"
    assert max(watch.evicted.values()) == 1, "nobody is evicted twice"


def begin(sandbox, text: str, options: ReconcilerOptions) -> tuple[ReconcilerService, asyncio.Task[None]]:
    """A reconciler in this process, whose caches can be looked into."""
    loaded = load_texts([("soak.yaml", text)])
    service = ReconcilerService(sandbox.client, loaded.policies, options, tell=lambda *_, **_fields: None)
    return service, asyncio.create_task(service.run())


def settled(watch: Watch) -> bool:
    pods = [pod for pod in watch.cache.items().values() if not pod.spec.node_name]
    return not any(pod.status.nominated_node_name or PLAN in (pod.metadata.annotations or {}) for pod in pods)


async def agrees(sandbox, service: ReconcilerService) -> bool:
    pods, _ = await sandbox.client.list(POD.path(), Pod)
    kept = SharedPods()
    there = {key_of(pod): kept(pod) for pod in pods}
    return there == dict(service.state.pods.items())
