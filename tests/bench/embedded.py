"""The embedded control plane at size: loading, memory, and a burst of pending pods."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.bench.measuring import memory
from tests.workloads import namespace, pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster, node
from webhook.kube.client import Client
from webhook.kube.resources import NAMESPACE, NODE, POD, PRIORITY_CLASS

NODES = 1000
PODS = 10_000
BURST = 200
CONNECTIONS = 16


def main() -> None:
    """Print the figures."""
    asyncio.run(_run())


async def _run() -> None:
    started = time.perf_counter()
    async with EmbeddedCluster(nodes=0) as cluster:
        print(f"start: {time.perf_counter() - started:.2f} s")
        worked = time.process_time()
        await _elsewhere(_load, cluster)
        print(f"of which the control plane computed {time.process_time() - worked:.1f} s")
        await _settle(cluster)
        await _elsewhere(_burst, cluster)
        _print_memory("at the end")


async def _elsewhere(work: Callable[[Client], Awaitable[None]], cluster: EmbeddedCluster) -> None:
    """Run a client's part in a process of its own, so that time and memory are the server's."""
    arguments = (work, cluster.url, cluster.token, str(cluster.ca))
    process = multiprocessing.get_context("spawn").Process(target=_as_client, args=arguments)
    process.start()
    await asyncio.to_thread(process.join)
    if process.exitcode:
        raise SystemExit(f"the client's process ended with {process.exitcode}")


def _as_client(work: Callable[[Client], Awaitable[None]], url: str, token: str, ca_file: str) -> None:
    async def run() -> None:
        async with Client.for_server(url, token=token, ca_file=ca_file) as client:
            await work(client)

    asyncio.run(run())


async def _load(client: Client) -> None:
    started = time.perf_counter()
    await client.create(NAMESPACE.path(), namespace("load"))
    await _each([lambda n=n: client.create(NODE.path(), node(f"n{n}")) for n in range(NODES)])
    print(f"{NODES} nodes over TLS: {time.perf_counter() - started:.1f} s")
    begun = time.perf_counter()
    await _each([lambda n=n: client.create(POD.path("load"), _pod(f"p{n}", f"n{n % NODES}")) for n in range(PODS)])
    print(f"{PODS} pods over TLS: {time.perf_counter() - begun:.1f} s ({PODS / (time.perf_counter() - begun):.0f}/s)")
    print(f"loaded in {time.perf_counter() - started:.1f} s (wanted: under 30)")


async def _settle(cluster: EmbeddedCluster) -> None:
    """Wait until every pod is Running, as the kubelet stand-in says."""
    begun = time.perf_counter()
    running = 0
    while running < PODS:
        running = Counter(one["status"]["phase"] for one in await _pods(cluster))["Running"]
    print(f"all Running after another {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    await _pods(cluster)
    print(f"list of all pods over TLS: {time.perf_counter() - begun:.2f} s")
    _print_memory("loaded (wanted: under 500 MB)")


async def _pods(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    client = cluster.client()
    try:
        return (await client.list(POD.path(), dict))[0]
    finally:
        await client.close()


async def _burst(client: Client) -> None:
    """Create pods that fit at once, then pods that fit nowhere, and time the scheduler stand-in."""
    await client.create(PRIORITY_CLASS.path(), priority_class("never", 100, preemptionPolicy="Never"))
    for name, cpu, path in (("fit", "100m", ("spec", "nodeName")), ("stuck", "64", ("status", "conditions"))):
        begun = time.perf_counter()
        made = [_pod(f"{name}{n}", "", cpu, priorityClassName="never") for n in range(BURST)]
        await _each([lambda body=body: client.create(POD.path("load"), body) for body in made])
        while True:
            burst, _ = await client.list(POD.path("load"), dict, labelSelector=f"burst={name}")
            if all(one[path[0]].get(path[1]) for one in burst):
                break
            await asyncio.sleep(0.02)
        outcome = "bound" if name == "fit" else "found unschedulable"
        print(f"{BURST} pending pods on {NODES} nodes {outcome} in {time.perf_counter() - begun:.2f} s")


def _pod(name: str, node_name: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, node=node_name, labels={"app": "load", "burst": name.rstrip("0123456789")}, **spec)


async def _each(calls: list[Any]) -> None:
    """Make all calls, CONNECTIONS at a time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


def _print_memory(when: str) -> None:
    gc.collect()
    figures = memory()
    print(f"resident {when}: {figures['VmRSS']:.0f} MB, at most {figures['VmHWM']:.0f} MB")
