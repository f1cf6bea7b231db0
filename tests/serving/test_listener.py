"""Which addresses a server listens on, and what connections and bodies leave behind."""

import asyncio
import gc
import socket
import subprocess
import sys
import tracemalloc

import pytest

from tests.policy.builders import table
from tests.serving.conftest import trusting
from webhook.component_base.listener import bind


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_by_default_pods_of_either_family_are_reached(address):
    """`::` answers on IPv4 and on IPv6: a pod of an IPv6 cluster has no other address."""
    with bind("::", 0) as listening:
        there = address, listening.getsockname()[1]
        with socket.create_connection(there, timeout=2) as reached:
            assert reached.getpeername()[:2] == there


def test_a_node_without_ipv6_is_no_obstacle(monkeypatch):
    """`::` falls back to IPv4 where the kernel has no IPv6."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bind("::", 0) as listening:
        assert listening.family == socket.AF_INET
        socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=2).close()


def test_one_address_is_one_address():
    """An address that is named is the only one."""
    with bind("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


async def test_an_idle_connection_costs_little(start, authority):
    """Hundreds of connections, one for each review under way, fit into the memory of the pod; both ends count here."""
    count = 20
    async with start() as running:
        tracemalloc.start()
        opened = [
            await asyncio.open_connection("127.0.0.1", running.server.secure_port, ssl=trusting(authority))
            for _ in range(count)
        ]
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for _, writer in opened:
            writer.close()
    assert used / count < 2 * 16 * 1024 + 40_000


@table("sent, tls", {"no-tls": (b"GET / HTTP/1.1\r\n\r\n", False), "no-http": (b"\0" * 100 + b"\r\n\r\n", True)})
async def test_a_client_that_fails_leaves_nothing(start, authority, sent, tls):
    """Its buffers are free at once, and not when the collector comes."""
    count = 20
    async with start() as running:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(count):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", running.server.secure_port, ssl=trusting(authority) if tls else None
                )
                writer.write(sent)
                await reader.read()  # until the server has ended the connection
                writer.close()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept / count < 20_000


def test_large_memory_goes_back():
    """What a large body took is the system's again, also after one that was larger, and with small pieces behind it."""
    script = """
import re
from webhook.serving.bodies import give_back_large_memory
def resident(): return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
give_back_large_memory()
bytearray(16 << 20)
before, pieces = resident(), [bytearray(size) for _ in range(100) for size in (1 << 20, 2000)]
full = resident()
pieces = pieces[1::2]
print(full - before, resident() - before)
"""
    full, left = map(int, subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert full > 95
    assert left < 5
