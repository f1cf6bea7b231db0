"""Honest reviews beside one attack after the other: their time, how many are lost, and what the server takes of memory.

`python -m tests.bench.under_attack`, with words of the attacks that are wanted; the end of `admission`. The attackers
come from another address than the API server, and once more from the same one, as behind a proxy. Memory is what the
server has resident, the most of it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.admission import _cluster, _files, _options, _process, _wait_ready, review_body
from tests.bench.attacks import KINDS

ROOT = Path(__file__).parents[2]
REVIEWS, CONNECTIONS, EVERY = 10_000, 16, 50
"""Honest reviews in all, connections that they come on, and after how many each begins again on a fresh one."""
PAUSE = 0.005
"""Seconds from an answer to the connection's next review."""
P99_MS, MEMORY_MB = 200.0, 256.0
TIMEOUT = 10.0
APART, TOGETHER = "127.0.0.2", "127.0.0.1"
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: bench}
spec:
  rules:
  - {name: env, validate: {message: m, expression: "object.spec.containers.all(c, c.name != 'forbidden')"}}
  - {name: image, validate: {message: m, expression: "object.spec.containers.all(c, c.image != 'forbidden')"}}
"""


@dataclass
class _Honest:
    """Reviews as an API server sends them: each on a connection of its own while it lasts."""

    port: int
    trust: ssl.SSLContext
    body: bytes
    times: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    async def send(self, count: int) -> None:
        """Send so many reviews over all connections."""
        head = (
            "POST /mutate?timeout=10s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        )
        request = head.encode() + self.body
        await asyncio.gather(*(self._work(request, count // CONNECTIONS) for _ in range(CONNECTIONS)))

    async def _work(self, request: bytes, count: int) -> None:
        reader = writer = None
        for number in range(count):
            began = time.perf_counter()
            try:
                async with asyncio.timeout(TIMEOUT):
                    if writer is None or reader is None or reader.at_eof() or number % EVERY == 0:
                        if writer is not None:
                            writer.transport.abort()
                        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
                    writer.write(request)
                    answer = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", answer.lower())
                    assert length
                    await reader.readexactly(int(length[1]))
                    if not answer.startswith(b"HTTP/1.1 200"):
                        raise ConnectionError(answer[:60].decode())
                    if b"connection: close" in answer.lower():
                        writer.close()
                        writer = None
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.lost.append(repr(error))
                writer = None
            self.times.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)


class _Memory:
    """The most that a process and its children have had resident together, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._ended = pid, 0.0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self) -> float:
        """Megabytes since the last call."""
        most, self._most = self._most, 0.0
        return most

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            parts = [_resident(pid) for pid in _family(self._pid)]
            files = max((files for _, files in parts), default=0.0)
            self._most = max(self._most, files + sum(own for own, _ in parts))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *map(int, children)]


def _resident(pid: int) -> tuple[float, float]:
    """Megabytes of a process's own, and of files."""
    try:
        found = dict(re.findall(r"Rss(\w+):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()))
    except OSError:
        return 0.0, 0.0
    own, files, shared = (int(found.get(part, 0)) / 1024 for part in ("Anon", "File", "Shmem"))
    return own + shared, files


@contextmanager
def _attack(port: int, kind: str, address: str) -> Iterator[None]:
    arguments = [sys.executable, "-m", "tests.bench.attacks", str(port), kind, address]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def measure(kinds: list[str], addresses: tuple[str, ...] = (APART, TOGETHER)) -> None:
    """Print the figures of each attack, and which miss their limit."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        files = _files(Path(directory))
        policies = Path(directory, "policies")
        policies.mkdir()
        (policies / "bench.yaml").write_text(POLICY)
        options = _options({**files})
        options[options.index("--policies") + 1] = str(policies)
        with (
            _cluster() as kubeconfig,
            _process("-m", "webhook.cli", "serve", *options, "--kubeconfig", kubeconfig) as (process, port, health),
        ):
            _wait_ready(health)
            trust = ssl.create_default_context(cafile=files["ca"])
            memory = _Memory(process.pid)
            print(f"honest reviews on {CONNECTIONS} connections, each {PAUSE * 1e3:g} ms after the last answer")
            _report("alone", "", _honest(port, trust, REVIEWS // 10), memory)
            rounds = [(kind, address) for address in addresses for kind in kinds]
            lost, slow, most = 0, 0.0, 0.0
            for kind, address in rounds:
                with _attack(port, kind, address):
                    found = _honest(port, trust, max(REVIEWS // len(rounds), REVIEWS // 20))
                p99, taken = _report(kind, "from there" if address == TOGETHER else "apart", found, memory)
                lost, slow, most = lost + len(found.lost), max(slow, p99), max(most, taken)
                if process.poll() is not None:
                    sys.exit(f"the server ended: {process.returncode}")
            memory.end()
    print(f"  lost {lost} {'ok' if not lost else 'MISSED'}")
    print(f"  p99 at most {slow:.1f} ms (limit {P99_MS:g} ms) {'ok' if slow <= P99_MS else 'MISSED'}")
    print(f"  memory at most {most:.0f} MB (limit {MEMORY_MB:g} MB) {'ok' if most <= MEMORY_MB else 'MISSED'}")


def _honest(port: int, trust: ssl.SSLContext, count: int) -> _Honest:
    honest = _Honest(port, trust, review_body())
    asyncio.run(honest.send(count))
    return honest


def _report(kind: str, where: str, found: _Honest, memory: _Memory) -> tuple[float, float]:
    times, taken = sorted(found.times), memory.take()
    p50, p99 = times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3
    lost = f"{len(found.lost)} lost of {len(times)}" + (f" ({found.lost[0]})" if found.lost else "")
    print(f"  {kind:42} {where:10} p50 {p50:7.1f}   p99 {p99:7.1f} ms   {taken:4.0f} MB   {lost}", flush=True)
    return p99, taken


def main() -> None:
    """Every attack, from another address and from the same one; or those that an argument names."""
    measure([kind for kind in KINDS if any(word in kind for word in sys.argv[1:])] or list(KINDS))


if __name__ == "__main__":
    main()
