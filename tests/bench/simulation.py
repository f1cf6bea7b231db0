"""Simulations: a large cluster to rest, and a large cluster to a file."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests.bench.measuring import apart, large_cluster, memory
from tests.simulation.clusters import POLICY, large, loaded, write
from webhook.kube.client import Client
from webhook.policy.model.values import DECISION, PLAN
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS
from webhook.simulation.cluster_file.format import collect, read_cluster
from webhook.simulation.report.summary import summarize
from webhook.simulation.simulation import simulate

NODES, PODS, PREEMPTORS = 5000, 150_000, 2000


def main() -> None:
    """Run the benchmark; what is large runs in processes of its own, so that its memory is its own."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "cluster.gz")
        apart(_write, file)
        apart(full, file)
    with large_cluster(PODS, NODES) as (url, _):
        apart(snapshot, url)


def _write(file: Path) -> None:
    write(file, large(NODES, PODS, PREEMPTORS))


def full(file: Path) -> None:
    """5000 nodes, 150 000 pods, 2000 preemptors with two victims each, whose replacements find room."""
    begun, cpu = time.perf_counter(), time.process_time()
    summary = summarize("", simulate(read_cluster([file]), loaded(POLICY)))
    took, cpu, most = time.perf_counter() - begun, time.process_time() - cpu, memory()["VmHWM"]
    assert summary.at_rest
    assert (summary.metrics["evictions"], summary.metrics["waiting"]) == (2 * PREEMPTORS, 0), summary.metrics
    print(f"{NODES} nodes, {PODS} pods, {PREEMPTORS} preemptors of two victims each, all placed again, at rest:")
    print(f"  {took:.1f} s, loading included, {cpu:.1f} s of CPU (target: 60 s); {most:.0f} MB (target: 1500)")


def snapshot(url: str) -> None:
    """A cluster of ordinary pods, listed from a server, to a file."""
    asyncio.run(_collected(url))


async def _collected(url: str) -> None:
    keys = KEPT_ANNOTATIONS | {PLAN, DECISION}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "snapshot.gz"
        begun, cpu = time.perf_counter(), time.process_time()
        async with Client.for_server(url) as client:
            with file.open("wb") as stream:
                count, _ = await collect(client, stream, keys, None, lambda *_: None)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
        size = file.stat().st_size / 1e6
        print(f"a snapshot of {count} objects: {took:.1f} s, {cpu:.1f} s of it own work (target: 120 s),", end=" ")
        print(f"{memory()['VmHWM']:.0f} MB of memory (target: 500), a file of {size:.1f} MB (target: 100)")
        begun = time.perf_counter()
        read_cluster([file])
        print(f"  read again in {time.perf_counter() - begun:.1f} s")
