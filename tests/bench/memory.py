"""Memory of the reconciler at 150 000 pods of ordinary size: after its start, and over relists.

Two processes: an API server that renders pods from templates (`large_cluster`), and `giveway reconcile --dry-run` with
all its caches and the snapshot. Every figure is the kernel's: VmRSS is what is resident, VmHWM the most that was.
Targets at 150 000 pods (GIVEWAY_BENCH_PODS sets another number): at most 1 GiB resident, at most 1.3 GiB at the peak of
a relist.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PODS, NODES = int(os.environ.get("GIVEWAY_BENCH_PODS", "150000")), 5000
PORT = 18084
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: bench}
spec: {preemptors: {priorityClasses: [high]}, victims: {mode: opt-in}}
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "%s"}}]
users: [{name: bench, user: {}}]
"""
RELISTS = (
    ("a relist, 1 pod in 50 changed and 1 in 100 replaced", "changed=50&replaced=100"),
    ("a relist, every pod changed", "changed=1"),
    ("a relist, every pod replaced by another", "replaced=1"),
)


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "policies").mkdir()
        (directory / "policies" / "bench.yaml").write_text(POLICY)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.large_cluster", str(PODS), str(NODES)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            (directory / "kubeconfig").write_text(KUBECONFIG % url)
            _measure(url, directory)
        finally:
            server.kill()
            server.wait(20)


def _measure(url: str, directory: Path) -> None:
    begun = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "webhook.cli", "reconcile", "--dry-run", "--log-format", "text"),
            *("--kubeconfig", str(directory / "kubeconfig"), "--policies", str(directory / "policies")),
            *("--bind-address", "127.0.0.1", "--health-port", str(PORT)),
        ],
        stdout=(directory / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        _until(_is_ready, process)
        size = _status(url)["bytes"] / PODS
        print(f"{PODS} pods of {size / 1e3:.1f} kB (JSON) on {NODES} nodes:")
        _report("started", process.pid, begun)
        for what, query in RELISTS:
            _reset_peak(process.pid)
            watched, begun = _status(url)["watched"], time.monotonic()
            urllib.request.urlopen(urllib.request.Request(f"{url}/expire?{query}", method="POST"), timeout=60).read()
            _until(lambda seen=watched: _status(url)["watched"] > seen, process)
            _report(what, process.pid, begun)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _report(what: str, pid: int, begun: float) -> None:
    took = time.monotonic() - begun
    time.sleep(2)
    figures = _memory(pid)
    resident, peak = figures["VmRSS"], figures["VmHWM"]
    took_cpu = f"{took:.1f} s ({_cpu_seconds(pid):.1f} s of CPU since the start)"
    met = "" if resident <= 1024 and peak <= 1.3 * 1024 else ": the target is MISSED"
    print(f"  {what}: {resident:.0f} MiB resident, {peak:.0f} MiB at the peak{met}, in {took_cpu}", flush=True)


def _memory(pid: int) -> dict[str, float]:
    """The kernel's account of a process, in MiB."""
    rows = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows if row[0] in ("VmRSS:", "VmHWM:")}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _status(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/status", timeout=60) as answer:
        told: dict[str, int] = json.load(answer)
        return told


def _until(check, process: subprocess.Popen[bytes], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not check():
        if process.poll() is not None:
            raise RuntimeError(f"the reconciler ended with {process.returncode}")
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
