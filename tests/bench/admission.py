"""Reviews per second against a bare handler in the same run, and memory (`policy` has the cost of rules)."""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.admission.builders import make_pod, make_review
from tests.bench.load import Load, drive
from tests.bench.measuring import ROOT, ServerFiles, memory, on_cluster, processor_seconds, server, verdict
from webhook.clusters.demo.recorded_reviews import recorded

CONNECTIONS, ROUNDS, SECONDS = 16, 15, 1.0
MEMORY_REVIEWS = 200_000
TARGET, LIMIT_MB = 0.70, 100.0
CLASSES, NAMESPACES = 1_000, 10_000
EXPRESSIONS = (
    "object.spec.containers.map(c, c.name).size() > 0",
    "object.spec.containers.filter(c, c.name != 'x').map(c, c.image).size() > 0",
    "object.spec.containers.all(c, !c.image.matches('^(a|b)*b(a|b){8}c$'))",
    "object.spec.containers.all(c, c.env.all(e, object.spec.volumes.all(v, !e.value.contains(v.name))))",
    "object.spec.containers.all(c, object.spec.containers.exists(d, d.name == c.name))",
)
"""Each as dear as an expression may be; every one stands in the policies four times."""
HEAVY_SECONDS, HONEST, HEAVY = 10.0, 4, 3
WAIT_MS = 50.0
"""Milliseconds that a review may keep another one waiting."""
PRIORITY = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}


def main() -> None:
    """Print every figure, and which of them miss their target."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        files = ServerFiles(Path(directory))
        asyncio.run(_throughput(files))
        _memory(files)
        _beside_dear(files)
    subprocess.run([sys.executable, "-m", "tests.bench.under_attack"], cwd=ROOT, check=True)


def review_body(name: str = "mutate-CREATE-Pod-low", plugin: str = "off") -> bytes:
    """One recorded review, compact as the API server sends it."""
    row = next(row for row in recorded() if row.name == name and row.plugin == plugin)
    return json.dumps(row.review, separators=(",", ":")).encode()


async def _throughput(files: ServerFiles) -> None:
    body, commands = review_body(), {"giveway serve": files.with_files()}
    commands["bare aiohttp"] = ["-m", "tests.bench.bare", files.certificate, files.key]
    loads: dict[str, list[Load]] = {name: [] for name in commands}
    spent = dict.fromkeys(commands, 0.0)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(server(*command)) for name, command in commands.items()}
        for _, port, _ in servers.values():
            await drive(port, files.trust, body, CONNECTIONS, 1.0)
        for _ in range(ROUNDS):
            for name, (process, port, _) in servers.items():
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


def _beside_dear(files: ServerFiles) -> None:
    """How long honest reviews wait beside reviews that are made to keep the expressions of the policies busy."""
    policies = files.objects.with_name("expressions")
    policies.mkdir()
    (policies / "rules.yaml").write_text(json.dumps(_policy()))
    with server(*files.with_files(policies)) as (_, port, _):
        alone, *beside = asyncio.run(_measure(files.trust, port))
    print(f"honest reviews on {HONEST} connections, {4 * len(EXPRESSIONS)} expressions; times in ms")
    for name, load in zip(("alone", *_heavy()), (alone, *beside), strict=True):
        times = f"p50 {load.p50 * 1e3:6.2f}   p99 {load.p99 * 1e3:6.2f}   longest {load.longest * 1e3:6.2f}"
        longer = (load.p99 - alone.p99) * 1e3
        print(f"  {name:30} {load.rate:5.0f} reviews/s   {times}   {longer:+.1f} {verdict(longer <= WAIT_MS)}")


def _policy() -> dict[str, object]:
    rules = [
        {"name": f"r{number}", "enforcement": "audit", "validate": {"expression": expression, "message": "no"}}
        for number, expression in enumerate(4 * EXPRESSIONS)
    ]
    head = {"apiVersion": "giveway.dev/v1alpha1", "kind": "PriorityPolicy", "metadata": {"name": "busy"}}
    return {**head, "spec": {"rules": rules}}


def _pod(containers: int, value: int, volumes: int) -> bytes:
    """The review of a pod with so many containers and volumes, and values of so many bytes."""
    env = [{"name": "a", "value": "v" * value}]
    made = [{"name": f"c{number}", "image": "ab" * 20, "env": env} for number in range(containers)]
    named = [{"name": f"v{number}"} for number in range(volumes)]
    return json.dumps(make_review(make_pod(**PRIORITY, containers=made, volumes=named))).encode()


def _heavy() -> dict[str, bytes]:
    return {"beside pods of 3 MiB": _pod(30, 100_000, 30), "beside the dearest pods": _pod(200, 20, 30)}


async def _measure(trust: ssl.SSLContext, port: int) -> list[Load]:
    honest = _pod(2, 20, 2)

    async def drive_honest() -> Load:
        return await drive(port, trust, honest, HONEST, HEAVY_SECONDS, path="/validate")

    found = [await drive_honest()]
    for body in _heavy().values():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drive(port, trust, body, HEAVY, HEAVY_SECONDS, path="/validate"))
            found.append(await drive_honest())
    return found
