"""Reviews per second against a bare handler in the same run, and memory."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.load import Load, drive
from tests.bench.measuring import ROOT, ServerFiles, memory, on_cluster, processor_seconds, server, verdict
from webhook.clusters.demo.recorded_reviews import recorded

CONNECTIONS, ROUNDS, SECONDS = 16, 15, 1.0
MEMORY_REVIEWS = 200_000
TARGET, LIMIT_MB = 0.70, 100.0
CLASSES, NAMESPACES = 1_000, 10_000


def main() -> None:
    """Print every figure, and which of them miss their target."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        files = ServerFiles(Path(directory))
        asyncio.run(_throughput(files))
        _memory(files)
    subprocess.run([sys.executable, "-m", "tests.bench.under_attack"], cwd=ROOT, check=True)


def review_body(name: str = "mutate-CREATE-Pod-low", plugin: str = "off") -> bytes:
    """One recorded review, compact as the API server sends it."""
    row = next(row for row in recorded() if row.name == name and row.plugin == plugin)
    return json.dumps(row.review, separators=(",", ":")).encode()


async def _throughput(files: ServerFiles) -> None:
    body, names = review_body(), ("giveway serve", "bare aiohttp")
    loads: dict[str, list[Load]] = {name: [] for name in names}
    spent = dict.fromkeys(names, 0.0)
    with on_cluster(files) as ours, server("-m", "tests.bench.bare", files.certificate, files.key) as bare:
        servers = dict(zip(names, (ours, bare[:2]), strict=True))
        for _, port in servers.values():
            await drive(port, files.trust, body, CONNECTIONS, 1.0)
        for _ in range(ROUNDS):
            for name, (process, port) in servers.items():
                before = processor_seconds(process.pid)
                loads[name].append(await drive(port, files.trust, body, CONNECTIONS, SECONDS))
                spent[name] += processor_seconds(process.pid) - before
    print(f"one pod review ({len(body)} bytes), {CONNECTIONS} keep-alive TLS connections, {ROUNDS} x {SECONDS:g} s")
    costs = []
    for name, rounds in loads.items():
        rate, p50, p99 = (statistics.median(getattr(load, key) for load in rounds) for key in ("rate", "p50", "p99"))
        costs.append(spent[name] / sum(load.count for load in rounds))
        times = f"p50 {p50 * 1e3:5.2f} ms   p99 {p99 * 1e3:5.2f} ms   {costs[-1] * 1e6:5.1f} us of the processor each"
        print(f"  {name:14} {rate:6.0f} reviews/s   {times}")
    # Round by round, so that what else runs on the machine weighs on both.
    ratios = [ours.rate / theirs.rate for ours, theirs in zip(*loads.values(), strict=True)]
    ratio, span = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"  ratio          {ratio:6.2f} (target {TARGET}) {verdict(ratio >= TARGET)}; rounds {span}")
    print(f"  by processor   {costs[1] / costs[0]:6.2f}, which hardly depends on what else runs here")


def _memory(files: ServerFiles) -> None:
    with on_cluster(files, CLASSES, NAMESPACES) as (process, port):
        figures, done = [(0, memory(process.pid)["VmRSS"])], 0
        while done < MEMORY_REVIEWS:
            done += asyncio.run(
                drive(port, files.trust, review_body(), CONNECTIONS, 600.0, most=MEMORY_REVIEWS // 5)
            ).count
            figures.append((done, memory(process.pid)["VmRSS"]))
    print(f"resident memory with {CLASSES} PriorityClasses and {NAMESPACES} Namespaces from an API server")
    for count, megabytes in figures:
        print(f"  {count:7} reviews {megabytes:6.1f} MB")
    growth, last = figures[-1][1] - figures[1][1], figures[-1][1]
    good = verdict(last < LIMIT_MB and growth < 2.0)
    print(f"  growth after the first {figures[1][0]}: {growth:+.1f} MB (limit {LIMIT_MB:g} MB, flat) {good}")
