"""What the benches have in common: times and memory, and the processes that they run beside themselves."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.serving.certificates import Authority

ROOT = Path(__file__).parents[2]
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


def best(work: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest of some runs, in milliseconds: other work on the machine only adds to it."""
    shortest = float("inf")
    for _ in range(runs):
        began = clock()
        work()
        shortest = min(shortest, clock() - began)
    return shortest * 1e3


def memory(pid: int | str = "self") -> dict[str, float]:
    """The kernel's account of a process, in MiB: VmRSS is resident, VmHWM the most that was."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {name: int(size) / 1024 for name, size in rows}


def processor_seconds(pid: int) -> float:
    """Seconds of the processor that all threads of a process have taken, in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def verdict(good: bool) -> str:
    """Whether a target is met, in a word."""
    return "ok" if good else "MISSED"


def until(check: Callable[[], object], process: subprocess.Popen[Any], seconds: float = 600) -> None:
    """Wait for something that a process brings about."""
    end = time.monotonic() + seconds
    while not check():
        if process.poll() is not None:
            sys.exit(f"{process.args} ended with {process.returncode}")
        if time.monotonic() > end:
            sys.exit(f"{process.args}: not within {seconds:g} s")
        time.sleep(0.1)


def fetched(url: str, method: str = "GET") -> bytes | None:
    """What a server answers; None if it does not, or refuses."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return bytes(answer.read())
    except OSError:
        return None


@contextmanager
def beside(*arguments: object, log: Path | None = None) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Python in a process of its own, with the first line that it prints; or, with a `log`, all is written there."""
    command = [sys.executable, *map(str, arguments)]
    if log is None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    else:
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT)
    try:
        line = process.stdout.readline().decode().strip() if process.stdout else ""
        if log is None and not line:
            sys.exit(f"{process.args} did not start")
        yield process, line
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def server(*arguments: object, log: Path | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A server of ours, once it listens, and its two ports."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        log = log or Path(directory, "log")
        with beside(*arguments, log=log) as (process, _):
            ports: list[tuple[bytes, bytes]] = []
            until(lambda: ports or ports.extend(_PORTS.findall(log.read_bytes())) or ports, process, 20)
            yield process, int(ports[0][0]), int(ports[0][1])


_PORTS = re.compile(rb"port (\d+), probes on port (\d+)")


class ServerFiles:
    """Certificate and authority in a directory, for a webhook server and its clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.certificate, self.key = authority.issue(directory, "server")
        self.trust = ssl.create_default_context(cafile=authority.write_ca(directory / "ca.crt"))


@contextmanager
def on_cluster(
    files: ServerFiles,
    classes: int = 1,
    namespaces: int = 1,
    policies: Path = ROOT / "policies",
    log: Path | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`giveway serve` on an API server with so many objects, once it is ready, and its port."""
    with beside("-m", "tests.bench.filled_cluster", classes, namespaces) as (_, line):
        arguments = [
            "-m", "webhook.cli", "serve", "--kubeconfig", line.split()[1], "--policies", policies,
            "--tls-cert-file", files.certificate, "--tls-private-key-file", files.key,
            "--bind-address", "127.0.0.1", "--secure-port", 0, "--health-port", 0,
        ]  # fmt: skip
        with server(*arguments, log=log) as (process, port, health):
            until(lambda: fetched(f"http://127.0.0.1:{health}/readyz"), process, 60)
            yield process, port
