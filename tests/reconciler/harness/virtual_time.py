"""A loop and clocks in whose minutes nobody waits."""

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from tests.reconciler.builders import START
from webhook.clusters.simulated.clock import VirtualLoop

_SPAN, _MOST_ROUNDS = 0.1, 20_000
"""Seconds, and rounds of the loop in them: who takes more does not wait for anything, and keeps a processor busy."""


class _Loop(VirtualLoop):
    """Each round takes a microsecond, so that time passes for who asks again and again, too; but not without end."""

    def __init__(self) -> None:
        super().__init__()
        self.drag = 0.0
        """Seconds that pass whenever somebody looks at a clock of the machine: it is busy."""
        self._span = self._rounds = 0

    def look(self, *_which: int) -> float:
        """What a clock of the machine shows."""
        self._virtual += self.drag
        return self._virtual

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run it at once: a thread would need real time."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def _run_once(self) -> None:
        self._virtual += 1e-6
        span, self._rounds = int(self._virtual / _SPAN), self._rounds + 1
        if span != self._span:
            self._span, self._rounds = span, 0
        if self._rounds > _MOST_ROUNDS:
            self._rounds = 0  # what is still to be ended may go on
            raise RuntimeError(f"at {self._virtual:.2f} s somebody asks again and again, without waiting")
        super()._run_once()  # type: ignore[misc]


def now() -> float:
    """Seconds since the loop began."""
    return asyncio.get_running_loop().time()


def later(seconds: float, what: Callable[..., Any], *arguments: Any) -> None:
    """Let something happen after so long."""
    asyncio.get_running_loop().call_later(seconds, what, *arguments)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on a loop whose time all clocks of this process show.

    Ids and what is left to chance are the same each time, since plans of one moment go by their ids.
    """
    loop, dice, before = _Loop(), random.Random(1), random.getstate()
    with ExitStack() as patches:
        patches.callback(random.setstate, before)
        random.seed(1)
        for name in ("monotonic", "perf_counter", "clock_gettime"):
            patches.enter_context(patch(f"time.{name}", loop.look))
        patches.enter_context(patch("time.time", lambda: START + loop.look()))
        patches.enter_context(patch("uuid.uuid4", lambda: uuid.UUID(int=dice.getrandbits(128), version=4)))
        for name in ("collect", "freeze"):  # of the whole test process it takes long
            patches.enter_context(patch(f"gc.{name}"))
        patches.enter_context(asyncio.Runner(loop_factory=lambda: loop)).run(work)
