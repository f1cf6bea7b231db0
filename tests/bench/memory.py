"""Memory of the reconciler at 150 000 pods of ordinary size: after its start, and over relists.

Two processes: an API server that renders pods from templates (`large_cluster`), and `giveway reconcile --dry-run` with
all its caches and the snapshot. Every figure is the kernel's: VmRSS is what is resident, VmHWM the most that was.
Targets at 150 000 pods (GIVEWAY_BENCH_PODS sets another number): at most 1 GiB resident, at most 1.3 GiB at the peak of
a relist.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from tests.bench.measuring import KUBECONFIG, POLICY, beside, fetched, memory, processor_seconds, until, verdict

PODS, NODES = int(os.environ.get("GIVEWAY_BENCH_PODS", "150000")), 5000
PORT = 18084
RELISTS = (
    ("a relist, 1 pod in 50 changed and 1 in 100 replaced", "changed=50&replaced=100"),
    ("a relist, every pod changed", "changed=1"),
    ("a relist, every pod replaced by another", "replaced=1"),
)


def main() -> None:
    """Run the benchmark."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        beside("-m", "tests.bench.large_cluster", PODS, NODES) as (_, url),
    ):
        policies, kubeconfig = Path(temporary, "policies"), Path(temporary, "kubeconfig")
        policies.mkdir()
        (policies / "bench.yaml").write_text(POLICY)
        kubeconfig.write_text(KUBECONFIG % url)
        _measure(url, policies, kubeconfig)


def _measure(url: str, policies: Path, kubeconfig: Path) -> None:
    def watched() -> int:
        return int(json.loads(fetched(f"{url}/status") or b"{}").get("watched", 0))

    def report(what: str) -> None:
        took = time.monotonic() - begun
        time.sleep(2)
        figures = memory(process.pid)
        resident, peak = figures["VmRSS"], figures["VmHWM"]
        took_cpu = f"{took:.1f} s ({processor_seconds(process.pid):.1f} s of CPU since the start)"
        met = verdict(resident <= 1024 and peak <= 1.3 * 1024)
        print(f"  {what}: {resident:.0f} MiB resident, {peak:.0f} MiB at the peak {met}, in {took_cpu}", flush=True)

    command = ("-m", "webhook.cli", "reconcile", "--dry-run", "--kubeconfig", kubeconfig, "--policies", policies)
    begun = time.monotonic()
    address = ("--bind-address", "127.0.0.1", "--health-port", PORT)
    with beside(*command, *address, log=policies.with_name("log")) as (process, _):
        until(lambda: fetched(f"http://127.0.0.1:{PORT}/readyz"), process)
        print(f"{PODS} pods on {NODES} nodes:")
        report("started")
        for what, query in RELISTS:
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak counts from here
            before, begun = watched(), time.monotonic()
            fetched(f"{url}/expire?{query}", "POST")
            until(lambda seen=before: watched() > seen, process)  # type: ignore[misc]
            report(what)
