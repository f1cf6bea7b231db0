"""The truth of simulations: the same start and the same load, once on a cluster in real time and once simulated.

The same pods are placed on the same nodes, the same victims go, plans are made in the same order, and the times differ
by no more than what API, scheduler and kubelet take. On any cluster with kube-scheduler's default profile.
"""

import asyncio
import copy
import random
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import LABEL, MAY_GO, TOLERANT, Sandbox
from tests.e2e.software import policies
from tests.workloads import Json, condition, eventually, pod
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.instants import epoch
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.resources import NODE
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PROTECTION_DURATION
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService
from webhook.simulation.cluster_file.format import collect, read_cluster
from webhook.simulation.simulation import Options, Running, simulate
from webhook.simulation.whatif import Apply

TERMINATION = 0.2
"""Seconds that a pod takes to end on the embedded control plane of these tests."""
TOLERANCE = 2.5
"""Seconds by which real times may differ: instants in objects are whole seconds, and every step takes its time."""
LONGEST = 60.0


class Real:
    """A scenario of a seed on a cluster: what was there, what came when, and what the reconciler did."""

    def __init__(self, sandbox: Sandbox, dice: random.Random) -> None:
        self.sandbox, self.dice = sandbox, dice
        self.decisions: list[tuple[float, Json]] = []
        self.arrivals: list[tuple[float, Json]] = []
        self.policies = Policies()

    async def prepare(self) -> None:
        """Full nodes, room elsewhere for some of the victims, and workloads with budgets and windows."""
        dice, sandbox = self.dice, self.sandbox
        self.low = await sandbox.priority_class("low", 10, preemptionPolicy="Never")
        self.high = [await sandbox.priority_class(f"high{n}", 100 + n, preemptionPolicy="Never") for n in range(2)]
        self.policies = self._policies()
        nodes = [await sandbox.node(f"n{number}", cpu="4") for number in range(dice.randint(2, 3))]
        for name in nodes:
            await sandbox.client.patch(NODE.path(None, name), {"metadata": {"labels": {"pool": "main"}}})
        count = 4 * len(nodes)
        first = dice.randint(2, count - 2)
        for name, replicas in (("a", first), ("b", count - first)):
            window = {PROTECTION_DURATION: str(dice.randint(3, 9))} if dice.random() < 0.3 else {}
            grace = dice.choice((1, 30))
            more = {"annotations": MAY_GO | window, "terminationGracePeriodSeconds": grace}
            await sandbox.workload(name, replicas, "1", self.low, "ReplicaSet", **more)
            if dice.random() < 0.4:
                await sandbox.budget(name, {"app": name}, maxUnavailable=dice.randint(1, 2))
        await eventually(lambda: self._settled(count), 30, "all pods of the workloads run")
        if dice.random() < 0.7:
            await sandbox.node("spare", cpu=str(dice.randint(1, 4)))

    async def _settled(self, count: int) -> bool:
        pods, _ = await self.sandbox.client.list(self.sandbox.pods, dict)
        return sum(condition(one, "Ready").get("status") == "True" for one in pods) == count

    def _policies(self) -> Policies:
        dice, limits = self.dice, {}
        for name in ("perOwner", "perNode", "perCluster"):
            if dice.random() < 0.35:
                limits[name] = {"evictions": dice.randint(1, 3), "window": f"{dice.randint(4, 7)}s"}
        spec = {
            "preemptors": {"priorityClasses": self.high},
            "victims": {"mode": "opt-in"},
            "limits": limits,
            "waitForTerminating": dice.choice(("0s", "10s")),
        }
        loaded = load_texts([("p.yaml", policies("", **spec))])
        assert not loaded.errors, loaded.errors
        return loaded.policies

    async def snapshot(self, file: Path) -> ClusterObjects:
        """The cluster in a file, and read again: of it the nodes, pods and workloads of this sandbox."""
        with file.open("wb") as stream:
            await collect(self.sandbox.client, stream, {CAN_BE_PREEMPTED, PROTECTION_DURATION}, None, lambda *_: None)
        found = read_cluster([file])
        for kind in found.objects.keys() - {"Namespace", "PriorityClass", "StorageClass"}:
            objects = found.objects[kind]
            found.objects[kind] = {key: one for key, one in objects.items() if self._is_here(one.metadata)}
        self.taken_at = found.taken_at = time.time()
        return found

    def _is_here(self, metadata: ObjectMeta) -> bool:
        return self.sandbox.id in (metadata.namespace, (metadata.labels or {}).get(LABEL))

    async def live(self) -> None:
        """Let preemptors come, and wait until nothing has happened for a while."""
        for number in range(self.dice.randint(1, 4)):
            name, cpu = f"p{number}", self.dice.choice((1, 1, 2, 3))
            body = pod(
                name,
                cpu=str(cpu),
                labels={"app": name, MARK: MANAGED},
                priorityClassName=self.dice.choice(self.high),
                nodeSelector={LABEL: self.sandbox.id, "pool": "main"},
                tolerations=TOLERANT,
            )
            body["metadata"]["namespace"] = self.sandbox.id
            self.arrivals.append((time.time() - self.taken_at, copy.deepcopy(body)))
            await self.sandbox.client.create(self.sandbox.pods, body)
            await asyncio.sleep(self.dice.choice((0.6, 1.5)))
        end, changed, before = time.monotonic() + LONGEST, time.monotonic(), ""
        while time.monotonic() < end and time.monotonic() - changed < 12.0:
            now = await self._versions()
            if now != before:
                changed, before = time.monotonic(), now
            waiting = [one for one in self.placed.values() if not one]
            if not waiting and time.monotonic() - changed > 2.0:
                return
            await asyncio.sleep(0.2)

    async def _versions(self) -> str:
        pods, _ = await self.sandbox.client.list(self.sandbox.pods, dict)
        preemptors = {one["metadata"]["name"]: one for one in pods if one["metadata"]["name"].startswith("p")}
        self.placed = {name: one["spec"].get("nodeName", "") for name, one in preemptors.items()}
        self.bound = {
            name: epoch(condition(preemptors[name], "PodScheduled")["lastTransitionTime"]) - self.taken_at
            for name, node in self.placed.items()
            if node
        }
        self.alive = {one["metadata"]["uid"] for one in pods if not one["metadata"].get("deletionTimestamp")}
        return str(sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in pods))


async def holds(sandbox: Sandbox, seed: int, file: Path) -> None:
    """One scenario, both ways."""
    real = Real(sandbox, random.Random(seed))
    await real.prepare()
    # What other tests have evicted a moment ago is in another Lease, and counts for no rate here
    options = ReconcilerOptions(leader_elect=False, lease_namespace=sandbox.id)
    lines: list[tuple[float, Json]] = []
    service = ReconcilerService(
        sandbox.client,
        real.policies,
        options,
        tell=lambda message, **line: lines.append((time.time(), {"message": message, **line})),
    )
    acting = asyncio.create_task(service.run())
    try:
        await eventually(lambda: service.reconciler.leading)
        objects = await real.snapshot(file)
        await real.live()
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
    steps = [Apply(at, "preemptor", (body,)) for at, body in real.arrivals]
    result = await asyncio.to_thread(
        simulate, objects, real.policies, steps, Options(until=600.0, termination=TERMINATION)
    )
    assert not result.errors, result.errors
    decided = [(at - real.taken_at, line) for at, line in lines if line["message"] == "decision"]
    compared(real, decided, objects, result, f"seed {seed}")


def compared(
    real: Real, decided: list[tuple[float, Json]], objects: ClusterObjects, result: Running, what: str
) -> None:
    """Plans in their order and at their times, victims, and who was placed where and when are the same."""
    told = [(round(at, 1), one["preemptor"], one["node"]) for at, one in decided]
    story = f"{what}: {told} not {[(at, _plan(line)) for at, line in result.history.decisions]}"
    last = max((at for at, _ in decided), default=0.0)
    seen = max(last, time.time() - real.taken_at - 12.0)
    foretold = [(at, line) for at, line in result.history.decisions if at <= seen]
    assert [_plan(line) for _, line in decided] == [_plan(line) for _, line in foretold], story
    for (at, _), (simulated_at, _) in zip(decided, foretold, strict=True):
        assert abs(at - simulated_at) <= TOLERANCE, story
    gone = {key for key, one in objects.of("Pod").items() if one.metadata.uid not in real.alive}
    pods = result.history.pods.values()
    assert gone == {key_of(row.pod) for row in pods if row.eviction and row.eviction.at <= last + TOLERANCE}, story
    placed = {
        row.pod.metadata.name: row for row in pods if row.placed is not None and (row.pod.spec.priority or 0) >= 100
    }
    assert {name: node for name, node in real.placed.items() if node} == {
        name: row.pod.spec.node_name for name, row in placed.items()
    }, story
    for name, at in real.bound.items():
        assert abs(at - placed[name].placed) <= TOLERANCE, (name, at, placed[name].placed, story)


def _plan(line: Json) -> tuple[str, str, list[str]]:
    return line["preemptor"], line["node"], sorted(victim["pod"] for victim in line.get("victims", ()))


@pytest.mark.parametrize("seed", range(3))
async def test_a_simulation_foretells_what_happens(another_cluster, sandbox, tmp_path, seed):
    """Same placed, same victims, same plans in the same order, at the same times."""
    await holds(sandbox, seed, tmp_path / "snapshot.gz")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
async def test_the_same_for_more_scenarios(sandbox, tmp_path, seed):
    """Fifty of them, on the embedded control plane, too."""
    await holds(sandbox, seed, tmp_path / "snapshot.gz")
