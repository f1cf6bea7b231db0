"""Time and memory of `giveway scan` over 150 000 pods of ordinary size.

Two processes: an API server that renders pods from templates (`large_cluster`), and the command. The peak is the
kernel's (`ru_maxrss`). Target at 150 000 pods (GIVEWAY_BENCH_PODS sets another number): at most 128 MiB, and no
more than at a tenth of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.measuring import ROOT, large_cluster
from tests.bench.memory import NODES, PODS


def main() -> None:
    """Run the benchmark."""
    for pods in sorted({PODS // 10, PODS}):
        with large_cluster(pods, NODES) as (_, kubeconfig):
            for name in ("policies", "policies/examples/teams"):
                _measure(kubeconfig, ROOT / name, pods)


def _measure(kubeconfig: Path, policies: Path, pods: int) -> None:
    """Run the command once; `wait4` tells its peak."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "webhook.cli", "scan", "--format=json", "--fail-on=never"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig), "--policies", str(policies)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    assert report["judged"]["Pod"] == pods
    seconds = time.monotonic() - begun
    print(
        f"{pods} pods, {policies.relative_to(ROOT)}: {seconds:.0f} s ({usage.ru_utime:.0f} s of CPU),"
        f" peak {usage.ru_maxrss / 1024:.0f} MiB, {len(report['rows'])} rows"
    )
