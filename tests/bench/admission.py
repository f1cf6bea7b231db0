"""Reviews per second against a bare handler in the same run, and memory."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench import under_attack
from tests.bench.load import CONNECTIONS, Load, drive
from tests.bench.measuring import Served, beside, memory, processor_seconds, serving, tls, verdict
from tests.ports import free_port

ROUNDS, SECONDS = 15, 1.0
MEMORY_REVIEWS = 200_000
TARGET, LIMIT_MB = 0.70, 100.0


def main() -> None:
    """Print every figure, and which of them miss their target."""
    with serving() as ours, bare_handler() as theirs:
        _throughput({"giveway serve": ours, "bare aiohttp": theirs})
    _memory()
    under_attack.main([])


@contextmanager
def bare_handler() -> Iterator[Served]:
    """`tests.bench.bare` in a process of its own."""
    port = free_port()
    with tls() as (*files, trust), beside("-m", "tests.bench.bare", *files, port) as (process, _):
        yield Served(process, port, trust)


def driven(server: Served, **more: float) -> Load:
    """Reviews, each of which was answered."""
    load = asyncio.run(drive(server, **more))
    assert not load.lost, load.lost
    return load


def _throughput(servers: dict[str, Served]) -> None:
    loads: dict[str, list[Load]] = {name: [] for name in servers}
    spent = dict.fromkeys(servers, 0.0)
    for server in servers.values():
        driven(server, seconds=1.0)
    for _ in range(ROUNDS):
        for name, server in servers.items():
            before = processor_seconds(server.process.pid)
            loads[name].append(driven(server, seconds=SECONDS))
            spent[name] += processor_seconds(server.process.pid) - before
    print(f"one pod review, {CONNECTIONS} keep-alive TLS connections, {ROUNDS} x {SECONDS:g} s")
    costs = []
    for name, rounds in loads.items():
        costs.append(spent[name] / sum(len(load.times) for load in rounds))
        rate = statistics.median(load.rate for load in rounds)
        p50, p99 = (statistics.median(load.percentile(share) for load in rounds) for share in (0.5, 0.99))
        times = f"p50 {p50:5.2f} ms   p99 {p99:5.2f} ms   {costs[-1] * 1e6:5.1f} us of the processor each"
        print(f"  {name:14} {rate:6.0f} reviews/s   {times}")
    # Round by round, so that what else runs on the machine weighs on both.
    ratios = [ours.rate / theirs.rate for ours, theirs in zip(*loads.values(), strict=True)]
    ratio, span = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"  ratio          {ratio:6.2f} (target {TARGET}) {verdict(ratio >= TARGET)}; rounds {span}")
    print(f"  by processor   {costs[1] / costs[0]:6.2f}, which hardly depends on what else runs here")


def _memory() -> None:
    print("resident memory with 1000 PriorityClasses and 10 000 Namespaces from an API server")
    sizes = []
    with serving() as server:
        for share in range(6):
            if share:
                driven(server, count=MEMORY_REVIEWS / 5)
            sizes.append(memory(server.process.pid)["VmRSS"])
            print(f"  {MEMORY_REVIEWS * share // 5:7} reviews {sizes[-1]:6.1f} MB", flush=True)
    growth = sizes[-1] - sizes[1]
    good = verdict(sizes[-1] < LIMIT_MB and growth < 2.0)
    print(f"  growth after the first fifth: {growth:+.1f} MB (limit {LIMIT_MB:g} MB, flat) {good}")
