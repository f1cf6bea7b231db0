"""`giveway run`: webhook and reconciler in one process, with one private port."""

import asyncio
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from tests.e2e.software import policies
from tests.ports import free_port
from tests.workloads import eventually
from webhook.policy.model.values import MANAGED, MARK


def read(port: int, path: str) -> str:
    """What the private port answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.read().decode()


async def test_both_halves_in_one_process(sandbox, giveway):
    """One process registers, preempts as whoever started it, shows queue and metrics, and takes new policies."""
    node = await sandbox.node("n1", cpu="8")
    low, high = await sandbox.classes()
    await sandbox.victim("victim", low, "6", node=node)
    file = giveway.policies("policies", policies("nobody"))
    secure, health, private = free_port(), free_port(), free_port()
    await giveway.register()
    url = f"https://127.0.0.1:{secure}"
    ports = (*giveway.listening(secure), f"--health-port={health}", f"--debug-port={private}")
    process = await giveway.start("run", f"--policies={file.parent}", *ports, f"--url={url}", "--entries=keep")

    async def says(words: str, port: int, path: str) -> bool:
        with suppress(OSError):
            return words in await asyncio.to_thread(read, port, path)
        return False

    await eventually(lambda: says("[+]reconciler ok", health, "/readyz?verbose"), 20)
    await eventually(lambda: giveway.in_force(f"{url}/"), 20)
    await eventually(lambda: says("[]", private, "/debug/queue"), what="it leads: until then it names the leader")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(read, health, "/debug/queue")
    file.write_text(policies(high))
    await eventually(lambda: says('reloads_total{result="success"} 1.0', health, "/metrics"), 20)
    made = await sandbox.pod("preemptor", cpu="4", priorityClassName=high)
    assert made["metadata"]["labels"][MARK] == MANAGED
    assert await sandbox.bound("preemptor") == node
    metrics = await asyncio.to_thread(read, health, "/metrics")
    assert 'giveway_preemption_attempts_total{result="evicts"} 1.0' in metrics
    assert "giveway_policies_current 1.0" in metrics
    assert await process.stop() == 0
