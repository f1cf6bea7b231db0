"""Background tasks that are kept running: one that ends is started again, and one that keeps ending is reported."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection

from webhook.kube.backoff import Backoff

log = logging.getLogger(__name__)

_RETURNED = "it returned, although it is meant to run until the process ends"
_STEADY = 60.0
"""Seconds after which a task that still runs counts as healthy again; longer than the longest back-off."""
_TOLERATED = 8
"""Failures in a row, about 40 s of trying, after which only a new process may help."""


class _Task(Backoff):
    """One kept task: its failures in a row, the last one's text, and since when it runs, infinite if it does not."""

    error, running_since = "", math.inf

    def forgive(self) -> None:
        """End the row if it has run for long."""
        if time.monotonic() - self.running_since >= _STEADY:
            self.reset()


class Supervisor:
    """Keeps the background tasks of one process running; `failed(name)` is called for each time that one ends.

    Work that is kept never ends by itself: a return is a failure too. The work must be able to begin again, so what
    it may not forget belongs to its object and not to its local variables.
    """

    def __init__(self, failed: Callable[[str], object] = str) -> None:
        self._failed = failed
        self._tasks: dict[str, _Task] = {}

    async def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run the work, again and again, until cancelled. Never raises anything else."""
        task = self._tasks.setdefault(name, _Task())
        while True:
            task.running_since = time.monotonic()
            # A cancellation from within is an end of the work as any
            # other; one of this task is raised
            [end] = await asyncio.gather(work(), return_exceptions=True)
            error = end if isinstance(end, BaseException) else RuntimeError(_RETURNED)
            task.forgive()
            task.running_since = math.inf
            task.error = str(error) or type(error).__name__
            delay = task.next()
            log.error("task %s ended and is started again in %.1f s", name, delay, exc_info=error)
            self._failed(name)
            await asyncio.sleep(delay)

    def problem(self) -> str:
        """The tasks that cannot be kept running and why, for a liveness probe; empty without any."""
        failing = []
        for name, task in self._tasks.items():
            task.forgive()
            if task.failures >= _TOLERATED:
                failing.append(f"task {name} ended {task.failures} times in a row: {task.error}")
        return "; ".join(failing)


async def cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
