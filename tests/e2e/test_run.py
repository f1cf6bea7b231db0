"""`giveway run`: webhook and reconciler in one process, with one private port."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from tests.e2e.software import policies
from tests.ports import free_port
from tests.workloads import eventually
from webhook.policy.model.values import MANAGED, MARK


def read(port: int, path: str) -> str:
    """What the private port answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.read().decode()


async def test_both_halves_in_one_process(sandbox, giveway, tmp_path):
    """One process registers, preempts as whoever started it, shows queue and metrics, and takes new policies."""
    node = await sandbox.node("n1", cpu="8")
    low, high = await sandbox.classes()
    await sandbox.victim("victim", low, "6", node=node)
    directory = tmp_path / "policies"
    directory.mkdir()
    file = directory / "policies.yaml"
    file.write_text(policies("nobody"))
    secure, health, private = free_port(), free_port(), free_port()
    await giveway.register()
    url = f"https://127.0.0.1:{secure}"
    ports = (*giveway.listening(secure), f"--health-port={health}", f"--debug-port={private}")
    process = await giveway.start("run", f"--policies={directory}", *ports, f"--url={url}", "--entries=keep")

    async def ready() -> bool:
        try:
            return "[+]reconciler ok" in await asyncio.to_thread(read, health, "/readyz?verbose")
        except OSError:
            return False

    await eventually(ready, 20)
    await eventually(lambda: giveway.in_force(f"{url}/"), 20)

    async def leads() -> bool:
        try:
            return json.loads(await asyncio.to_thread(read, private, "/debug/queue")) == []
        except OSError:  # until it leads, it names the leader
            return False

    await eventually(leads)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(read, health, "/debug/queue")
    file.write_text(policies(high))

    async def reloaded() -> bool:
        return 'reloads_total{result="success"} 1.0' in await asyncio.to_thread(read, health, "/metrics")

    await eventually(reloaded, 20)
    made = await sandbox.pod("preemptor", cpu="4", priorityClassName=high)
    assert made["metadata"]["labels"][MARK] == MANAGED
    assert await sandbox.bound("preemptor") == node
    metrics = await asyncio.to_thread(read, health, "/metrics")
    assert 'giveway_preemption_attempts_total{result="evicts"} 1.0' in metrics
    assert "giveway_policies_current 1.0" in metrics
    assert await process.stop() == 0
