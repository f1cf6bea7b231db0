"""How long honest reviews wait beside reviews that are made to keep the expressions of the policies busy."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from pathlib import Path

from tests.admission.builders import make_pod, make_review
from tests.bench.load import Load, drive
from tests.bench.measuring import ServerFiles, server, verdict

EXPRESSIONS = (
    "object.spec.containers.map(c, c.name).size() > 0",
    "object.spec.containers.filter(c, c.name != 'x').map(c, c.image).size() > 0",
    "object.spec.containers.all(c, !c.image.matches('^(a|b)*b(a|b){8}c$'))",
    "object.spec.containers.all(c, c.env.all(e, object.spec.volumes.all(v, !e.value.contains(v.name))))",
    "object.spec.containers.all(c, object.spec.containers.exists(d, d.name == c.name))",
)
"""Each as dear as an expression may be; every one stands in the policies four times."""
SECONDS, HONEST, HEAVY = 10.0, 4, 3
WAIT_MS = 50.0
"""Milliseconds that a review may keep another one waiting."""
PRIORITY = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}


def main() -> None:
    """Print how long honest reviews take alone, beside a pod of 3 MiB, and beside the dearest pod that is evaluated."""
    with tempfile.TemporaryDirectory(prefix="giveway-bench-") as directory:
        files, policies = ServerFiles(Path(directory)), Path(directory, "policies")
        policies.mkdir()
        (policies / "rules.yaml").write_text(json.dumps(_policy()))
        with server(*files.with_files(policies)) as (_, port, _):
            alone, *beside = asyncio.run(_measure(files.trust, port))
    rules = 4 * len(EXPRESSIONS)
    print(f"honest reviews on {HONEST} connections, {rules} expressions, {SECONDS:g} s each; times in ms")
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
        return await drive(port, trust, honest, HONEST, SECONDS, path="/validate")

    found = [await drive_honest()]
    for body in _heavy().values():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drive(port, trust, body, HEAVY, SECONDS, path="/validate"))
            found.append(await drive_honest())
    return found
