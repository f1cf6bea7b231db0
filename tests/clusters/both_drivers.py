"""What tests of both drivers share: the embedded control plane over HTTP and the simulation in virtual time."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import msgspec

from tests.preemption.building import NOW
from tests.simulation.clusters import added
from tests.workloads import pod
from webhook.clusters.acting.kubelet import RUN_SECONDS
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster, node
from webhook.clusters.simulated.api import SimulatedClient
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.resources import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    STATEFUL_SET,
    Resource,
)
from webhook.policy.model.policies import Policies
from webhook.simulation.simulation import Options, Running, simulate
from webhook.simulation.whatif import Apply

Json = dict[str, Any]
View = dict[str, Any]
NS = "default"
_USED = (DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, POD_DISRUPTION_BUDGET, REPLICA_SET, STATEFUL_SET)
RESOURCES = {row.kind: row for row in _USED}
POD_NAME = "statefulset.kubernetes.io/pod-name"
INDEX = "batch.kubernetes.io/job-completion-index"
GRACE = 30
NODES = ("node-1", "node-2")


def view(pods: Iterable[Json], budgets: Iterable[Json], jobs: Iterable[Json]) -> View:
    """What both must agree on: pods by application, version and state; budgets; how Jobs have ended."""
    found: Counter[str] = Counter()
    named: dict[str, set[str]] = {}
    for one in pods:
        meta, status = one["metadata"], one.get("status") or {}
        ready = any(row["type"] == "Ready" and row["status"] == "True" for row in status.get("conditions") or ())
        state = status.get("phase", "Pending").lower()
        if meta.get("deletionTimestamp"):
            state = "leaving"
        elif state == "running" and ready:
            state = "ready"
        labels = meta.get("labels") or {}
        version = f"-{labels['v']}" if "v" in labels else ""
        found[f"{labels['app']}{version} {state}"] += 1
        own = labels.get(POD_NAME) or (f"{labels['app']}-{labels[INDEX]}" if INDEX in labels else "")
        if own and (version or INDEX in labels):
            named.setdefault(labels["app"], set()).add(own)
    shown: View = {**found, **{f"names {app}": " ".join(sorted(names)) for app, names in named.items()}}
    for one in budgets:
        status = one["status"]
        numbers = [status.get(key, 0) for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")]
        shown[f"budget {one['metadata']['name']}"] = (*numbers, len(status.get("disruptedPods") or ()))
    for one in jobs:
        ends = [row["type"] for row in one["status"].get("conditions") or () if row["status"] == "True"]
        if ended := {"Complete", "Failed"}.intersection(ends):
            shown[f"job {one['metadata']['name']}"] = ended.pop()
    return shown


class Cluster:
    """What is done to the embedded control plane, a simulated one or any other one, by its administrator's requests."""

    def __init__(self, admin: Any, namespace: str = NS, now: Callable[[], float] = time.time) -> None:
        self.admin, self.namespace, self.now = admin, namespace, now

    async def apply(self, body: Json) -> None:
        resource = RESOURCES[body["kind"]]
        namespace, name = (self.namespace if resource.namespaced else None), body["metadata"]["name"]
        try:
            await self.admin.create(resource.path(namespace), body)
        except ApiError:
            await self.admin.patch(resource.path(namespace, name), {"spec": body["spec"]})

    async def pods(self, app: str) -> list[Json]:
        found, _ = await self.admin.list(POD.path(self.namespace), dict, labelSelector=f"app={app}")
        return sorted(
            (one for one in found if not one["metadata"].get("deletionTimestamp")),
            key=lambda one: one["metadata"]["name"],
        )

    async def evict(self, app: str) -> None:
        with suppress(ApiError):
            await self.evict_one((await self.pods(app))[0]["metadata"]["name"])

    async def evict_one(self, name: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await self.admin.create(POD.path(self.namespace, name, "eviction"), body)

    async def evict_two(self, app: str) -> None:
        await self.evict(app)
        await self.evict(app)

    async def fail(self, app: str, phase: str = "Failed") -> None:
        for one in await self.pods(app):
            if one["status"]["phase"] == "Running":
                path = POD.path(self.namespace, one["metadata"]["name"], "status")
                await self.admin.patch(path, {"status": {"phase": phase}}, kind="strategic")

    async def succeed(self, app: str) -> None:
        await self.fail(app, "Succeeded")

    async def grant(self, app: str) -> None:
        """A pod's eviction was granted, and then nobody deleted it."""
        name = (await self.pods(app))[0]["metadata"]["name"]
        status = {"disruptedPods": {name: rfc3339(self.now())}, "disruptionsAllowed": 0}
        await self.admin.patch(POD_DISRUPTION_BUDGET.path(self.namespace, app, "status"), {"status": status})

    async def look(self) -> View:
        async def listed(resource: Resource) -> list[Json]:
            return (await self.admin.list(resource.path(self.namespace), dict))[0]

        return view(await listed(POD), await listed(POD_DISRUPTION_BUDGET), await listed(JOB))


class SimulatedAdmin:
    """The administrator's requests to a cluster in virtual time, as far as `Cluster` makes them."""

    def __init__(self, running: Running) -> None:
        self._running, self._client = running, SimulatedClient(running.api, "test")
        self.patch = self._client.patch

    async def create(self, path: str, body: Json) -> None:
        if path.endswith("/eviction"):
            await self._client.create(path, body)
        else:
            Apply(0.0, "test", (body,)).make(self._running)

    async def list(self, path: str, _: type, **query: str) -> tuple[list[Json], str]:
        kind = next(kind for kind, row in RESOURCES.items() if row.plural == path.rpartition("/")[2])
        found = [{"status": {}, **msgspec.to_builtins(one)} for one in self._running.tracker.all(kind).values()]
        wanted = query.get("labelSelector", "")
        return [one for one in found if not wanted or wanted == f"app={one['metadata']['labels']['app']}"], ""


@dataclass
class Doing:
    """Something that is done in a simulation at that time, by requests that nobody has to wait for."""

    at: float
    what: Callable[[Cluster], Coroutine[Any, Any, None]]

    def make(self, running: Running) -> None:
        with suppress(StopIteration):
            self.what(Cluster(SimulatedAdmin(running), now=running.clock.wall)).send(None)
            raise AssertionError("it waits for something")


def in_simulation(scenario: Scenario) -> list[View]:
    """The views after each action, at its times."""
    objects = ClusterObjects(NOW)
    added(objects, "Namespace", {"metadata": {"name": NS}})
    added(objects, "Node", *(node(name) for name in NODES))
    seen: list[View] = []

    async def look(cluster: Cluster) -> None:
        seen.append(await cluster.look())

    steps = []
    for number, (verb, what, _) in enumerate(scenario.steps):
        begins = 1000.0 * (number + 1)
        steps.append(Doing(begins, methodcaller(verb, copy.deepcopy(what))))
        steps += [Doing(begins + seconds, look) for seconds in scenario.times.get(number, SETTLED)]
    result = simulate(objects, Policies(), steps, Options(until=1000.0 * (len(scenario.steps) + 1)))
    assert not result.errors
    assert all(key.startswith("Job/") for key in result.history.refused)
    return seen


def job(name: str, *, run: str = "", **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": name}, **({"annotations": {RUN_SECONDS: run}} if run else {})},
        "spec": pod(name, restartPolicy="Never")["spec"],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


DURING = (5.0, 900.0)
"""While an evicted pod has its grace period, and after it."""
SETTLED = (900.0,)
"""When nothing moves any more."""
BIG = "100"
"""CPUs that no node has: the pods of that template wait, and the rollout stands where its strategy lets it."""


class Scenario:
    """Actions, each with the views that must follow it one after the other; in virtual time at `times`."""

    def __init__(self, *steps: tuple[Any, ...], times: dict[int, tuple[float, ...]] | None = None) -> None:
        self.steps: list[tuple[str, Any, list[View]]] = [(verb, what, list(views)) for verb, what, *views in steps]
        self.times = times or {}


async def embedded_does(scenario: Scenario) -> None:
    """Each action is followed by its views, one after the other, over HTTP."""
    async with EmbeddedCluster(nodes=len(NODES), termination_seconds=float(GRACE)) as running:
        cluster = Cluster(running.api.local())
        for verb, what, views in scenario.steps:
            await getattr(cluster, verb)(copy.deepcopy(what))
            for one in views:
                await reaches(cluster, one)
        assert not running.failures()


async def reaches(cluster: Cluster, expected: View, seconds: float = 200.0) -> None:
    """The cluster shows this within so many seconds."""
    for _ in range(int(seconds / 0.5)):
        if (seen := await cluster.look()) == expected:
            break
        await asyncio.sleep(0.5)
    assert seen == expected, f"there is {seen}, expected {expected}"
