"""Honest reviews beside one attack after the other: their time, how many are lost, and what the server takes of memory.

`python -m tests.bench.under_attack`, with words of the attacks that are wanted, and `clients=512` if each attack is to
have that many; the end of `admission`. The attackers come from another address than the API server, and once more
from the same one, as behind a proxy. Memory is the most that the server has resident.
"""

from __future__ import annotations

import asyncio
import sys

from tests.bench.attacks import KINDS
from tests.bench.load import CONNECTIONS, Load, drive
from tests.bench.measuring import Served, beside, forget_peak, memory, serving, verdict

REVIEWS, EVERY = 10_000, 50
"""Honest reviews in all, and after how many each connection begins again on a fresh one."""
PAUSE = 0.005
"""Seconds from an answer to the connection's next review."""
_CLIENTS = "clients="
P99_MS, MEMORY_MB = 200.0, 256.0
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


def main(words: list[str]) -> None:
    """Print the figures of each attack that one of the words names, or of all, and which miss their limit."""
    clients = next((word.removeprefix(_CLIENTS) for word in words if word.startswith(_CLIENTS)), "")
    kinds = [kind for kind in KINDS if any(word in kind for word in words)] or list(KINDS)
    rounds = [(kind, address) for address in (APART, TOGETHER) for kind in kinds]
    lost, slow, most = 0, 0.0, 0.0
    with serving(POLICY) as server:
        print(f"honest reviews on {CONNECTIONS} connections, each {PAUSE * 1e3:g} ms after the last answer")
        _honest(server, "alone", "", REVIEWS // 10)
        for kind, address in rounds:
            with beside("-m", "tests.bench.attacks", server.port, kind, address, clients):
                where = "from there" if address == TOGETHER else "apart"
                found, p99, size = _honest(server, kind, where, max(REVIEWS // len(rounds), REVIEWS // 20))
            lost, slow, most = lost + len(found.lost), max(slow, p99), max(most, size)
            if server.process.poll() is not None:
                sys.exit(f"the server ended: {server.process.returncode}")
    print(f"  lost {lost} {verdict(not lost)}")
    print(f"  p99 at most {slow:.1f} ms (limit {P99_MS:g} ms) {verdict(slow <= P99_MS)}")
    print(f"  memory at most {most:.0f} MB (limit {MEMORY_MB:g} MB) {verdict(most <= MEMORY_MB)}")


def _honest(server: Served, kind: str, where: str, count: int) -> tuple[Load, float, float]:
    """What became of so many reviews, their p99 in milliseconds, and the most memory since the ones before."""
    load = asyncio.run(drive(server, count=count, pause=PAUSE, requests=EVERY))
    taken = memory(server.process.pid)["VmHWM"]
    forget_peak(server.process.pid)
    p50, p99 = load.percentile(0.5), load.percentile(0.99)
    lost = f"{len(load.lost)} lost of {len(load.times)}" + (f" ({load.lost[0]})" if load.lost else "")
    print(f"  {kind:42} {where:10} p50 {p50:7.1f}   p99 {p99:7.1f} ms   {taken:4.0f} MB   {lost}", flush=True)
    return load, p99, taken


if __name__ == "__main__":
    main(sys.argv[1:])
