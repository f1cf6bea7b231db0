"""200 preemptors at once, and how long looking at waiting plans holds up the event loop.

And what an event costs while 10 000 preemptors wait, and a decision behind 200 pods (`tests.bench.waiting`).

The preemptors come to 1 000 nodes full of 4 000 pods, and 200 plans wait on 3 000 nodes with 10 000 persistent volumes.
The first runs in three processes: `giveway cluster`, `giveway reconcile`, and this one, which makes pods.
kube-scheduler's own preemption, on a machine like this: 200 preemptors bound in 6.3 s.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from tests.bench.decision import claim, volume
from tests.bench.measuring import POLICY, beside, best, fetched, processor_seconds, until
from tests.bench.waiting import in_front, waiting
from tests.preemption.parts import ZONE
from tests.reconciler.builders import Setting, node, preemptor
from tests.workloads import pod, priority_class
from webhook.kube.client import Client
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.kube.resources import POD, PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK
from webhook.preemption.snapshot import kinds
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.reconciler import Reconciler as InProcess
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PlanRecord

NODES, PODS_A_NODE, PREEMPTORS = 1000, 4, 200
PATROL_NODES, VOLUMES = 3000, 10_000
PORT = 18082
PODS = POD.path("default")


def main() -> None:
    """Run the benchmark."""
    in_front()
    waiting()
    asyncio.run(_bench())


async def _bench() -> None:
    _patrol()
    with tempfile.TemporaryDirectory() as temporary:
        directory, kubeconfig = Path(temporary), Path(temporary, "kubeconfig")
        options = ("--nodes", NODES, "--kubeconfig", kubeconfig, "--termination-seconds", 0.2)
        with beside("-m", "webhook.cli", "cluster", *options):
            async with await Client.connect(str(kubeconfig)) as client:
                await _burst(client, kubeconfig, directory)


async def _burst(client: Client, kubeconfig: Path, directory: Path) -> None:
    low = priority_class("low", 80)
    low["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    for body in (low, priority_class("high", 100, preemptionPolicy="Never")):
        await client.create(PRIORITY_CLASS.path(), body)
    await _create(
        client,
        [
            pod(f"v-{number}-{place}", cpu="2", node=f"node-{number}", priorityClassName="low")
            for number in range(1, NODES + 1)
            for place in range(PODS_A_NODE)
        ],
    )
    await _until(lambda: _nobody(client, "status.phase!=Running"), 120)
    async with _reconciling(kubeconfig, directory) as pid:
        cpu = processor_seconds(pid)
        begun = time.perf_counter()
        await _create(client, [_preemptor(f"p-{number}", "4") for number in range(PREEMPTORS)])
        await _until(lambda: _nobody(client, "spec.nodeName="), 120)
        took = time.perf_counter() - begun
        cpu = processor_seconds(pid) - cpu
        print(f"{PREEMPTORS} preemptors, {NODES} nodes, {NODES * PODS_A_NODE} pods: all bound in {took:.1f} s")
        _shares(_metrics(), cpu)


async def _nobody(client: Client, field_selector: str) -> bool:
    """Whether there is no pod of these fields."""
    pods, _ = await client.list(PODS, Pod, fieldSelector=field_selector)
    return not pods


def _shares(metrics: dict[str, float], cpu: float) -> None:
    decisions = metrics["giveway_decision_seconds_count"]
    deciding = metrics["giveway_decision_seconds_sum"] / decisions
    rechecking = metrics["giveway_recheck_seconds_sum"] / max(metrics["giveway_recheck_seconds_count"], 1)
    api = sum(value for name, value in metrics.items() if name.startswith("giveway_write_seconds_sum"))
    own = metrics["giveway_decision_seconds_sum"] + metrics["giveway_recheck_seconds_sum"]
    total = (deciding + rechecking) * 1000
    print(f"  deciding and bookkeeping {deciding * 1000:.2f} ms, looking again {rechecking * 1000:.2f} ms:")
    print(f"    {total:.2f} ms a preemptor (target: at most 5), {decisions:.0f} decisions")
    print(f"  this program's work {own:.2f} s, waiting for the API {api:.2f} s: share {own / (own + api):.1%}")
    print(f"  CPU of the process: {cpu / PREEMPTORS * 1000:.1f} ms a preemptor, watch events and HTTP included")


def _patrol() -> None:
    """Let 200 plans wait whose preemptors have a claim that binds late, and look at all of them once."""
    nodes = [node(f"n{number}") for number in range(PATROL_NODES)]
    for number, one in enumerate(nodes):
        one.metadata.labels = {ZONE: f"z{number % 3}"}
    setting = Setting(*nodes)
    snapshot = setting.state.snapshot
    local = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
    snapshot.put(
        kinds.STORAGE_CLASSES, msgspec.convert({**local, "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass)
    )
    for number in range(VOLUMES):
        of_class = "local" if number % 10 == 0 else f"other-{number % 10}"
        snapshot.put(kinds.VOLUMES, msgspec.convert(volume(number, of_class, ZONE, f"z{number % 3}"), PersistentVolume))
    reporter = Reporter(ReconcilerMetrics(CollectorRegistry()), lambda _: None, None)
    reconciler = InProcess(None, setting.state, setting.policy_set, reporter, setting.clock, fence=lambda: 0.0)  # type: ignore[arg-type]
    for number in range(PREEMPTORS):
        made = claim(f"c{number}", "default")
        snapshot.put(kinds.VOLUME_CLAIMS, msgspec.convert(made, PersistentVolumeClaim))
        waits = {"name": "v", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        waiting = preemptor(f"p{number}", "1", spec={"volumes": [waits]})
        setting.add(waiting)
        record = PlanRecord(id=f"x{number}", node=f"n{number}")
        plan = Plan(record, f"default/p{number}", waiting.metadata.uid, 100, 0.0, 300.0, nominated=True)
        reconciler.plan_manager.index.add(plan)
    setting.clock.now = 60.0
    setting.clock.stopwatch = time.perf_counter  # type: ignore[method-assign]  # turns end by the time that passes
    stalls: list[float] = []
    while not stalls or reconciler.plan_manager.unchecked:
        stalls.append(best(reconciler.turn, 1))
    assert len(reconciler.plans) == PREEMPTORS, "every plan has its room"
    print(f"{PREEMPTORS} waiting plans looked at, {PATROL_NODES} nodes, {VOLUMES} persistent volumes:")
    longest, total = max(stalls), sum(stalls) / 1e3
    print(f"  longest stall of the event loop {longest:.1f} ms (target: at most 50), {total:.2f} s in all")


@asynccontextmanager
async def _reconciling(kubeconfig: Path, directory: Path) -> AsyncIterator[int]:
    """`giveway reconcile` in a process of its own, as soon as it leads; its number."""
    policies, log = directory / "policies", directory / "reconcile.log"
    policies.mkdir(exist_ok=True)
    (policies / "bench.yaml").write_text(POLICY)
    command = ("-m", "webhook.cli", "reconcile", "--kubeconfig", kubeconfig, "--policies", policies)
    ports = ("--bind-address", "127.0.0.1", "--health-port", PORT, "--debug-port", -1)
    with beside(*command, *ports, "--system-namespace", "kube-system", log=log) as (process, _):
        await asyncio.to_thread(until, lambda: "leads" in log.read_text(), process, 60)
        yield process.pid


def _metrics() -> dict[str, float]:
    text = (fetched(f"http://127.0.0.1:{PORT}/metrics") or b"").decode()
    return {name: float(value) for name, value in re.findall(r"^(giveway_\S+) (\S+)$", text, re.MULTILINE)}


def _preemptor(name: str, cpu: str) -> dict[str, object]:
    return pod(name, cpu=cpu, labels={MARK: MANAGED}, priorityClassName="high")


async def _create(client: Client, bodies: list[dict[str, object]]) -> None:
    gate = asyncio.Semaphore(32)

    async def create(body: dict[str, object]) -> None:
        async with gate:
            await client.create(PODS, body)

    await asyncio.gather(*(create(body) for body in bodies))


async def _until(check: Callable[[], Awaitable[bool]], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not await check():  # noqa: ASYNC110 - the API server is asked
            await asyncio.sleep(0.2)
