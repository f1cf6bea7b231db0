"""200 preemptors at once, and what waiting preemptors and pods in front cost (`tests.bench.waiting`).

The preemptors come to 1 000 nodes full of 4 000 pods. Three processes: `giveway cluster`, `giveway reconcile`, and this
one, which makes pods. kube-scheduler's own preemption, on a machine like this: 200 preemptors bound in 6.3 s.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from tests.bench.measuring import POLICY, beside, fetched, giveway, processor_seconds
from tests.bench.waiting import in_front, waiting
from tests.workloads import Json, eventually, pod, priority_class
from webhook.kube.client import Client
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD, PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

NODES, PODS_A_NODE, PREEMPTORS = 1000, 4, 200
PODS = POD.path("default")


def main() -> None:
    """Run the benchmark."""
    in_front()
    waiting()
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory, "kubeconfig")
        options = ("--nodes", NODES, "--kubeconfig", kubeconfig, "--termination-seconds", 0.2)
        with beside("-m", "webhook.cli", "cluster", *options):
            asyncio.run(_prepare(kubeconfig))
            with giveway("reconcile", kubeconfig, POLICY, "--system-namespace", "kube-system") as (process, probes):
                cpu, took = processor_seconds(process.pid), asyncio.run(_burst(kubeconfig))
                cpu = processor_seconds(process.pid) - cpu
                text = (fetched(f"{probes}/metrics") or b"").decode()
    print(f"{PREEMPTORS} preemptors, {NODES} nodes, {NODES * PODS_A_NODE} pods: all bound in {took:.1f} s")
    _shares({name: float(value) for name, value in re.findall(r"^(giveway_\S+) (\S+)$", text, re.MULTILINE)})
    print(f"  CPU of the process: {cpu / PREEMPTORS * 1000:.1f} ms a preemptor, watch events and HTTP included")


async def _prepare(kubeconfig: Path) -> None:
    """Fill the nodes."""
    places = [(number, place) for number in range(1, NODES + 1) for place in range(PODS_A_NODE)]
    low = priority_class("low", 80)
    low["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    async with await Client.connect(str(kubeconfig)) as client:
        for body in (low, priority_class("high", 100, preemptionPolicy="Never")):
            await client.create(PRIORITY_CLASS.path(), body)
        victims = [pod(f"v-{n}-{place}", cpu="2", node=f"node-{n}", priorityClassName="low") for n, place in places]
        await _create(client, victims)
        await _nobody(client, "status.phase!=Running")


async def _burst(kubeconfig: Path) -> float:
    """Seconds until all preemptors are bound."""
    names = [f"p-{number}" for number in range(PREEMPTORS)]
    async with await Client.connect(str(kubeconfig)) as client:
        begun = time.perf_counter()
        made = [pod(name, cpu="4", labels={MARK: MANAGED}, priorityClassName="high") for name in names]
        await _create(client, made)
        await _nobody(client, "spec.nodeName=")
        return time.perf_counter() - begun


async def _create(client: Client, bodies: list[Json]) -> None:
    gate = asyncio.Semaphore(32)

    async def create(body: Json) -> None:
        async with gate:
            await client.create(PODS, body)

    await asyncio.gather(*map(create, bodies))


async def _nobody(client: Client, field_selector: str) -> None:
    """Wait until there is no pod of these fields."""

    async def there_is_none() -> bool:
        pods, _ = await client.list(PODS, Pod, fieldSelector=field_selector)
        return not pods

    await eventually(there_is_none, 120)


def _shares(metrics: dict[str, float]) -> None:
    decisions = metrics["giveway_decision_seconds_count"]
    deciding = metrics["giveway_decision_seconds_sum"] / decisions
    rechecking = metrics["giveway_recheck_seconds_sum"] / max(metrics["giveway_recheck_seconds_count"], 1)
    api = sum(value for name, value in metrics.items() if name.startswith("giveway_write_seconds_sum"))
    own = metrics["giveway_decision_seconds_sum"] + metrics["giveway_recheck_seconds_sum"]
    total = (deciding + rechecking) * 1000
    print(f"  deciding and bookkeeping {deciding * 1000:.2f} ms, looking again {rechecking * 1000:.2f} ms:")
    print(f"    {total:.2f} ms a preemptor (target: at most 5), {decisions:.0f} decisions")
    print(f"  this program's work {own:.2f} s, waiting for the API {api:.2f} s: share {own / (own + api):.1%}")
