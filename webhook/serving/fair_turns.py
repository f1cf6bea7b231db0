"""Who is next, if only so many can have something at a time: address by address, and within each share by share."""

import asyncio
from collections import deque


class FairTurns:
    """So many turns at a time. An address that asks for many waits for its own, and so does a share of an address."""

    def __init__(self, most: int) -> None:
        self._free = self._most = most
        self._waiting: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    async def enter(self, address: str, share: str = "") -> None:
        """Wait for a turn. Whoever has it must call `leave`."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, {}).setdefault(share, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Hand a turn on; the share and the address that get it go to the end of their rounds."""
        while self._waiting:
            address, shares = next(iter(self._waiting.items()))
            share, turns = next(iter(shares.items()))
            turn = turns.popleft()
            del self._waiting[address], shares[share]
            if turns:
                shares[share] = turns
            if shares:
                self._waiting[address] = shares
            if not turn.done():  # whoever waited may have given up
                turn.set_result(None)
                return
        self._free += 1


class TurnsOfRound(FairTurns):
    """So many turns, which are there again in the round of the event loop after the last one has gone."""

    def take(self) -> bool:
        """Take a turn without waiting, if one is free."""
        if not self._free:
            return False
        self._free -= 1
        if not self._free:
            asyncio.get_running_loop().call_soon(self._next_round)
        return True

    async def enter(self, address: str, share: str = "") -> None:
        """Wait for a turn. Nobody calls `leave`."""
        if not self.take():
            await super().enter(address, share)

    def _next_round(self) -> None:
        self._free = 0
        for _ in range(self._most):
            self.leave()
        if not self._free:
            asyncio.get_running_loop().call_soon(self._next_round)
