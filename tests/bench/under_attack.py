"""Honest reviews beside one attack after the other: their time, how many are lost, and what the server takes of memory.

`python -m tests.bench.under_attack`, with words of the attacks that are wanted; the end of `admission`. The attackers
come from another address than the API server, and once more from the same one, as behind a proxy. Memory is the most
that the server has resident.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.admission import CLASSES, NAMESPACES, review_body
from tests.bench.attacks import KINDS
from tests.bench.load import Exchanges, reviewing
from tests.bench.measuring import ServerFiles, beside, memory, on_cluster, verdict

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
        await asyncio.gather(*(self._work(count // CONNECTIONS) for _ in range(CONNECTIONS)))

    async def _work(self, count: int) -> None:
        connection, request = Exchanges(self.port, self.trust), reviewing(self.body)
        for number in range(count):
            began = time.perf_counter()
            try:
                async with asyncio.timeout(TIMEOUT):
                    if number % EVERY == 0:
                        connection.close()
                    status, answer = await connection.send(request)
                if status != 200:
                    raise ConnectionError(answer[:60].decode())
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.lost.append(repr(error))
                connection.close()
            self.times.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)


def measure(kinds: list[str], addresses: tuple[str, ...] = (APART, TOGETHER)) -> None:
    """Print the figures of each attack, and which miss their limit."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        files, policies = ServerFiles(Path(directory)), Path(directory, "policies")
        policies.mkdir()
        (policies / "bench.yaml").write_text(POLICY)
        with on_cluster(files, CLASSES, NAMESPACES, policies) as (process, port):
            print(f"honest reviews on {CONNECTIONS} connections, each {PAUSE * 1e3:g} ms after the last answer")
            _report("alone", "", _honest(port, files.trust, REVIEWS // 10), process.pid)
            rounds = [(kind, address) for address in addresses for kind in kinds]
            lost, slow, most = 0, 0.0, 0.0
            for kind, address in rounds:
                with beside("-m", "tests.bench.attacks", port, kind, address):
                    found = _honest(port, files.trust, max(REVIEWS // len(rounds), REVIEWS // 20))
                p99, size = _report(kind, "from there" if address == TOGETHER else "apart", found, process.pid)
                lost, slow, most = lost + len(found.lost), max(slow, p99), max(most, size)
                if process.poll() is not None:
                    sys.exit(f"the server ended: {process.returncode}")
    print(f"  lost {lost} {verdict(not lost)}")
    print(f"  p99 at most {slow:.1f} ms (limit {P99_MS:g} ms) {verdict(slow <= P99_MS)}")
    print(f"  memory at most {most:.0f} MB (limit {MEMORY_MB:g} MB) {verdict(most <= MEMORY_MB)}")


def _honest(port: int, trust: ssl.SSLContext, count: int) -> _Honest:
    honest = _Honest(port, trust, review_body())
    asyncio.run(honest.send(count))
    return honest


def _report(kind: str, where: str, found: _Honest, pid: int) -> tuple[float, float]:
    """The p99 in milliseconds, and the most memory since the last report."""
    times, taken = sorted(found.times), memory(pid)["VmHWM"]
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    p50, p99 = times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3
    lost = f"{len(found.lost)} lost of {len(times)}" + (f" ({found.lost[0]})" if found.lost else "")
    print(f"  {kind:42} {where:10} p50 {p50:7.1f}   p99 {p99:7.1f} ms   {taken:4.0f} MB   {lost}", flush=True)
    return p99, taken


if __name__ == "__main__":
    measure([kind for kind in KINDS if any(word in kind for word in sys.argv[1:])] or list(KINDS))
