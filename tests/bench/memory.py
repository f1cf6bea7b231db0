"""Memory of the reconciler at 150 000 pods of ordinary size: after its start, and over relists.

Two processes: an API server that renders pods from templates (`large_cluster`), and `giveway reconcile --dry-run` with
all its caches and the snapshot. Every figure is the kernel's: VmRSS is what is resident, VmHWM the most that was.
Targets at 150 000 pods (GIVEWAY_BENCH_PODS sets another number): at most 1 GiB resident, at most 1.3 GiB at the peak of
a relist.
"""

from __future__ import annotations

import os
import time

from tests.bench.measuring import (
    POLICY,
    fetched,
    forget_peak,
    giveway,
    large_cluster,
    memory,
    processor_seconds,
    verdict,
)

PODS, NODES = int(os.environ.get("GIVEWAY_BENCH_PODS", "150000")), 5000
RELISTS = (
    ("a relist, 1 pod in 50 changed and 1 in 100 replaced", "changed=50&replaced=100"),
    ("a relist, every pod changed", "changed=1"),
    ("a relist, every pod replaced by another", "replaced=1"),
)


def main() -> None:
    """Run the benchmark."""
    begun = time.monotonic()
    with (
        large_cluster(PODS, NODES) as (url, kubeconfig),
        giveway("reconcile", kubeconfig, POLICY, "--dry-run") as (process, _),
    ):
        print(f"{PODS} pods on {NODES} nodes:")
        _report("started", process.pid, begun)
        for what, query in RELISTS:
            forget_peak(process.pid)
            begun = time.monotonic()
            assert fetched(f"{url}/expire?{query}", "POST", 600) is not None
            _report(what, process.pid, begun)


def _report(what: str, pid: int, begun: float) -> None:
    took = time.monotonic() - begun
    time.sleep(2)
    resident, peak = (memory(pid)[name] for name in ("VmRSS", "VmHWM"))
    took_cpu = f"{took:.1f} s ({processor_seconds(pid):.1f} s of CPU since the start)"
    met = verdict(resident <= 1024 and peak <= 1.3 * 1024)
    print(f"  {what}: {resident:.0f} MiB resident, {peak:.0f} MiB at the peak {met}, in {took_cpu}", flush=True)
