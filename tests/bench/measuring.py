"""What the benches have in common: times and memory, the cluster that they read, and processes beside themselves."""

from __future__ import annotations

import multiprocessing
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.kube.server import write_kubeconfig
from tests.ports import free_port
from tests.serving.certificates import Authority
from tests.serving.conftest import trusting

ROOT = Path(__file__).parents[2]
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: bench}
spec: {preemptors: {priorityClasses: [high]}, victims: {mode: opt-in}}
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


def forget_peak(pid: int) -> None:
    """Let VmHWM of a process count from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid: int) -> float:
    """Seconds of the processor that all threads of a process have taken, in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def verdict(good: bool) -> str:
    """Whether a target is met, in a word."""
    return "ok" if good else "MISSED"


def until(check: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    """Wait for something that a process brings about within ten minutes."""
    end = time.monotonic() + 600
    while not check():
        if process.poll() is not None:
            sys.exit(f"{process.args} ended with {process.returncode}")
        if time.monotonic() > end:
            sys.exit(f"{process.args}: not within ten minutes")
        time.sleep(0.1)


def fetched(url: str, method: str = "GET", seconds: float = 60) -> bytes | None:
    """What a server answers; None if it does not in that time, or refuses."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=seconds) as answer:
            return bytes(answer.read())
    except OSError:
        return None


def apart(work: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns that runs in a process of its own: the peak of its memory is that of this work alone."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


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
def large_cluster(pods: int = 0, nodes: int = 0, classes: int = 2, namespaces: int = 200) -> Iterator[tuple[str, Path]]:
    """The URL and a kubeconfig of an API server in another process that has so many objects."""
    counts = (pods, nodes, classes, namespaces)
    with tempfile.TemporaryDirectory() as directory, beside("-m", "tests.bench.large_cluster", *counts) as (_, url):
        yield url, Path(write_kubeconfig(Path(directory, "kubeconfig"), url, {}))


@contextmanager
def giveway(
    command: str, kubeconfig: Path, policies: Path | str, *options: object, log: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server of ours in another process, once it is ready, and the URL of its probes.

    Policies are a directory, or the text of one policy.
    """
    probes = free_port()
    with tempfile.TemporaryDirectory() as directory:
        if isinstance(policies, str):
            Path(directory, "bench.yaml").write_text(policies)
        given = ("--kubeconfig", kubeconfig, "--policies", directory if isinstance(policies, str) else policies)
        ports = ("--bind-address", "127.0.0.1", "--health-port", probes)
        log = log or Path(os.devnull)
        with beside("-m", "webhook.cli", command, *given, *ports, *options, log=log) as (process, _):
            until(lambda: fetched(f"http://127.0.0.1:{probes}/readyz"), process)
            yield process, f"http://127.0.0.1:{probes}"


class Served(NamedTuple):
    """A server over TLS in another process, and what its clients trust."""

    process: subprocess.Popen[bytes]
    port: int
    trust: ssl.SSLContext


@contextmanager
def tls() -> Iterator[tuple[Path, Path, ssl.SSLContext]]:
    """A server's certificate and key, and what trusts it."""
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority()
        yield *authority.issue(Path(directory), "server"), trusting(authority)


@contextmanager
def serving(policies: Path | str = ROOT / "policies", log: Path | None = None) -> Iterator[Served]:
    """`giveway serve` on an API server with 1000 PriorityClasses and 10 000 Namespaces; nobody writes its entries."""
    with large_cluster(classes=1_000, namespaces=10_000) as (_, kubeconfig), tls() as (certificate, key, trust):
        port = free_port()
        files = ("--tls-cert-file", certificate, "--tls-private-key-file", key)
        options = ("--secure-port", port, "--entries", "none")
        with giveway("serve", kubeconfig, policies, *files, *options, log=log) as (process, _):
            yield Served(process, port, trust)
