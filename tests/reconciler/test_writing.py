"""How many requests go out at a time, and what becomes of those that wait when the lease is lost."""

from __future__ import annotations

import asyncio

import pytest

from webhook.reconciler.record import PlanVictim
from webhook.reconciler.writing import DeposedError, Left, Writer


class Slow:
    """An API server that answers no eviction until it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def create(self, path: str, body: dict) -> dict:
        self.asked += 1
        await self.answer.wait()
        return {}


def evictions(writer: Writer, count: int) -> list[asyncio.Task]:
    victims = [PlanVictim("default", f"v-{number}", f"uid-{number}") for number in range(count)]
    return [asyncio.create_task(writer.evict(victim, None)) for victim in victims]


async def test_many_writes_take_turns():
    """Of a hundred evictions at once a bounded number is under way; the others follow, and only answers are timed."""
    server, times = Slow(), []
    tasks = evictions(Writer(server, lambda: True, lambda kind, seconds: times.append((kind, seconds))), 100)
    await asyncio.sleep(0.2)
    assert server.asked == 32
    server.answer.set()
    assert await asyncio.gather(*tasks) == [Left.ASKED] * 100
    assert server.asked == 100
    assert sum(seconds > 0.1 for _, seconds in times) == 32, "waiting for a turn is not waiting for the server"


async def test_lease_lost_while_waiting_for_a_turn():
    """A write that comes to its turn after the lease was lost is not sent."""
    server, leads = Slow(), [True]
    tasks = evictions(Writer(server, lambda: leads[0], lambda *_: None), 40)
    await asyncio.sleep(0.05)
    leads[0] = False
    server.answer.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Left] * 32 + [DeposedError] * 8
    assert server.asked == 32


async def test_no_write_without_the_lease():
    """Without the lease nothing is sent at all."""
    server = Slow()
    with pytest.raises(DeposedError):
        await Writer(server, lambda: False, lambda *_: None).evict(PlanVictim("default", "v", "u"), None)
    assert not server.asked
