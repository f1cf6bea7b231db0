"""Which addresses a server listens on, and what a connection costs."""

import asyncio
import socket
import tracemalloc

import pytest

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
    assert used / count < 2 * 64 * 1024 + 40_000
