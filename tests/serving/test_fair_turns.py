"""Turns: so many at a time, address by address, and within an address share by share."""

import asyncio

from tests.policy.builders import table
from webhook.serving.fair_turns import FairTurns


class Waiting:
    """Those who wait for a turn, in the order in which they got one."""

    def __init__(self, most: int) -> None:
        self.turns, self.order, self.tasks = FairTurns(most), list[str](), dict[str, asyncio.Task[None]]()

    async def ask(self, name: str, address: str, share: str = "") -> None:
        async def enter() -> None:
            await self.turns.enter(address, share)
            self.order.append(name)

        self.tasks[name] = asyncio.create_task(enter())
        await asyncio.sleep(0)

    async def leave(self) -> None:
        self.turns.leave()
        for _ in range(3):
            await asyncio.sleep(0)


@table(
    "asked, order",
    {
        "by address": (["a1 a", "a2 a", "a3 a", "b1 b", "c1 c"], "a1 b1 c1 a2 a3"),
        "by share within": (["a1 a x", "a2 a x", "a3 a y", "b1 b x", "b2 b x"], "a1 b1 a3 b2 a2"),
    },
)
async def test_who_asks_for_many_waits_for_his_own(asked, order):
    """One of each address has its turn before any has a second one, and so within an address by share."""
    waiting = Waiting(1)
    await waiting.ask("first", "z")
    for words in asked:
        await waiting.ask(*words.split())
    for _ in asked:
        await waiting.leave()
    assert " ".join(waiting.order) == f"first {order}"


async def test_so_many_at_a_time():
    """Nobody waits while there is room, and a turn that is given back is there again."""
    waiting = Waiting(2)
    for name in ("a", "b", "c"):
        await waiting.ask(name, "10.0.0.1")
    assert waiting.order == ["a", "b"]
    for _ in range(3):
        await waiting.leave()
    for name in ("d", "e", "f"):
        await waiting.ask(name, "10.0.0.1")
    assert waiting.order == ["a", "b", "c", "d", "e"]


async def test_whoever_gives_up_takes_no_turn():
    """Neither while it waits, nor when its turn comes at that very moment."""
    waiting = Waiting(1)
    for name in ("a", "b", "c", "d"):
        await waiting.ask(name, "10.0.0.1")
    waiting.tasks["b"].cancel()
    await asyncio.sleep(0)
    waiting.turns.leave()
    waiting.tasks["c"].cancel()
    await asyncio.gather(*waiting.tasks.values(), return_exceptions=True)
    assert waiting.order == ["a", "d"]
