"""kube-scheduler's queue: pods to try by priority, pods backing off, and pods that nothing has helped yet."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from webhook.kube.backoff import exponential
from webhook.kube.instants import Clock
from webhook.preemption.snapshot.pod_info import PodInfo

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
FLUSH_SECONDS = 30.0
FORGOTTEN_SECONDS = 300.0
BACKOFF_WINDOW = 1.0
"""Backoffs that end within the same second count as ending together; priority then decides."""


@dataclass(slots=True, eq=False)
class Entry:
    """A pending pod; `order` is when it came, `failed_at` the end of its last attempt (monotonic seconds)."""

    key: str
    incoming: PodInfo
    order: int
    attempts: int = 0
    failed_at: float = 0.0
    error: bool = False
    """Whether the last attempt ended in an error rather than in no node that fits."""
    shape: tuple[tuple[str, int], ...] = ()
    """What it asks for: pods of one shape find room on the same nodes."""
    relative: bool = False
    """Whether its place depends on where others are."""

    def __post_init__(self) -> None:
        self.use(self.incoming)

    def use(self, incoming: PodInfo) -> None:
        """Take over the pod's new state."""
        self.incoming = incoming
        self.shape = tuple(sorted(incoming.amounts.items()))
        self.relative = bool(incoming.affinity or incoming.anti_affinity or incoming.spread)

    @property
    def backoff_until(self) -> float:
        """When its backoff ends: 1 s after the first failure, 2 s after the second, at most 10 s."""
        return self.failed_at + exponential(self.attempts, FIRST_BACKOFF, LONGEST_BACKOFF)

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: priority, then age."""
        return -self.incoming.priority, self.order


class SchedulingQueue:
    """Each pod is in one of three places: active, backing off, or unschedulable until `wake`.

    As kube-scheduler since 1.33, a pod that backs off is tried early when no active one waits, unless its last
    attempt was an error.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._active: list[tuple[tuple[int, int], Entry]] = []
        self._backing_off: dict[str, Entry] = {}
        self._unschedulable: dict[str, Entry] = {}
        self._order = itertools.count()
        self._more = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether every pod waits for an event."""
        return len(self._unschedulable) == len(self._entries)

    def get(self, key: str) -> Entry | None:
        """The entry of a pending pod."""
        return self._entries.get(key)

    def add(self, key: str, incoming: PodInfo) -> None:
        """Queue a new pod."""
        entry = self._entries[key] = Entry(key, incoming, next(self._order))
        self._activate(entry)

    def update(self, key: str, incoming: PodInfo, *, wake: bool) -> None:
        """Take over a pod's new state; `wake` where the change could make it fit."""
        entry = self._entries[key]
        entry.use(incoming)
        if wake and key in self._unschedulable:
            self._move(entry)

    def remove(self, key: str) -> None:
        """Forget a pod: it is bound, deleted or over."""
        self._entries.pop(key, None)
        self._backing_off.pop(key, None)
        self._unschedulable.pop(key, None)

    def wake(self, helps: Callable[[Entry], bool]) -> None:
        """Move the unschedulable pods back that an event could help."""
        for entry in [entry for entry in self._unschedulable.values() if helps(entry)]:
            self._move(entry)

    def failed(self, entry: Entry, *, error: bool = False) -> None:
        """Put a pod back: one that fits nowhere waits for an event, one whose attempt was an error for its backoff."""
        entry.attempts += 1
        entry.failed_at, entry.error = self._clock.monotonic(), error
        if error:
            self._entries[entry.key] = entry
            self._move(entry)
        elif self._entries.get(entry.key) is entry:
            self._unschedulable[entry.key] = entry

    async def pop(self) -> Entry:
        """The next pod to try: the best active one, else the one whose backoff ends first; waits for one."""
        while True:
            now = self._clock.monotonic()
            for entry in [entry for entry in self._backing_off.values() if entry.backoff_until <= now]:
                self._activate(entry)
            while self._active:
                _, entry = heapq.heappop(self._active)
                if self._entries.get(entry.key) is entry:  # else it is gone, or another one by now
                    return entry
            early = [entry for entry in self._backing_off.values() if not entry.error]
            if early:
                first = min(early, key=lambda entry: (entry.backoff_until // BACKOFF_WINDOW, entry.rank))
                del self._backing_off[first.key]
                return first
            self._more.clear()
            ends = [entry.backoff_until for entry in self._backing_off.values()]
            wait = max(0.0, min(ends) - self._clock.monotonic()) if ends else None
            try:
                async with asyncio.timeout(wait):
                    await self._more.wait()
            except TimeoutError:
                continue

    async def flush(self) -> None:
        """Move back, every 30 s, what has been unschedulable for more than 5 min, in case an event was missed."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            limit = self._clock.monotonic() - FORGOTTEN_SECONDS
            for entry in [entry for entry in self._unschedulable.values() if entry.failed_at < limit]:
                self._move(entry)

    def _move(self, entry: Entry) -> None:
        self._unschedulable.pop(entry.key, None)
        if entry.backoff_until > self._clock.monotonic():
            self._backing_off[entry.key] = entry
            self._more.set()
        else:
            self._activate(entry)

    def _activate(self, entry: Entry) -> None:
        self._backing_off.pop(entry.key, None)
        self._unschedulable.pop(entry.key, None)
        heapq.heappush(self._active, (entry.rank, entry))
        self._more.set()
