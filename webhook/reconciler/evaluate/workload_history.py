"""How often each workload was evicted, when and for whom: over weeks, and longer than its pods and the leader last.

Times are in monotonic seconds, so that a jump of the system clock changes no count; the text has those since the epoch.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.state.packed_text import pack, unpack

MOST_WORKLOADS = 10_000
"""Beyond that the one that was not evicted for the longest time is forgotten."""
MOST_EVICTIONS = 64
"""Evictions of one workload that are remembered, the latest."""
KEPT_SECONDS = 30 * 86_400.0
"""How long an eviction is remembered."""
_MOST_EVICTORS = 1000
_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""


class PastEviction(NamedTuple):
    """When a pod of the workload was asked to leave, and for which preemptor's workload, empty if nobody knows."""

    at: float
    preemptor: str


class WrittenHistory(NamedTuple):
    """What a leader wrote, and when: seconds since the epoch, as those of the evictions; minus infinity for never."""

    at: float = -math.inf
    workloads: Mapping[str, list[PastEviction]] = MappingProxyType({})


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """A workload by number, and of each eviction the whole seconds since the epoch and the preemptor's number."""

    workload: Annotated[int, msgspec.Meta(ge=0)]
    evictions: tuple[tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**53)], Annotated[int, msgspec.Meta(ge=0)]], ...]


class _Text(msgspec.Struct, frozen=True):
    at: str
    names: tuple[str, ...] = ()
    rows: tuple[_Row, ...] = ()
    version: int = 1


_TEXT = msgspec.json.Decoder(_Text)


class WorkloadHistory:
    """The evictions of the workloads, those that were evicted last at the end. Names are `Kind/namespace/name`."""

    def __init__(self) -> None:
        self._workloads: Newest[str, deque[PastEviction]] = Newest(MOST_WORKLOADS)
        self.changes = 0
        """How many evictions were noted."""
        self.written = -math.inf
        """Up to when what was loaded is complete, in seconds since the epoch."""

    def note(self, workload: str, at: float, preemptor: str) -> None:
        """A pod of the workload was asked to leave for one of the workload `preemptor`. A bare pod has no workload."""
        if not workload:
            return
        known = self._workloads.made(workload, lambda: deque(maxlen=MOST_EVICTIONS))
        known.append(PastEviction(at, preemptor))
        self.changes += 1

    def of(self, workload: str, now: float, window: float = KEPT_SECONDS) -> list[PastEviction]:
        """The evictions of a workload within the window, the oldest first."""
        return [eviction for eviction in self._workloads.get(workload, ()) if eviction.at + window > now]

    def counts(self, window: float, now: float) -> dict[str, int]:
        """How often each workload was evicted within the window; those that were not are left out."""
        counts: dict[str, int] = {}
        for workload, evictions in self._within(window, now):
            inside = evictions[0].at + window > now
            counts[workload] = len(evictions) if inside else sum(eviction.at + window > now for eviction in evictions)
        return counts

    def times(self, window: float, now: float) -> Iterator[tuple[str, list[float]]]:
        """When the evictions of each workload were within the window, the oldest first."""
        for workload, evictions in self._within(window, now):
            yield workload, [eviction.at for eviction in evictions if eviction.at + window > now]

    def _within(self, window: float, now: float) -> Iterator[tuple[str, deque[PastEviction]]]:
        """The workloads that were evicted within the window, the last one first."""
        for workload, evictions in reversed(self._workloads.items()):
            if evictions[-1].at + window <= now:
                return
            yield workload, evictions

    def evictors(self, workload: str, window: float, now: float) -> dict[str, str]:
        """The workloads for which pods of this one were evicted within the window, and so on from each of them.

        The nearest to this one come first, a thousand or a few more at most. Each has the workload that was evicted
        for it. This workload is not among them.
        """
        evictors: dict[str, str] = {workload: ""}
        for evicted in (queue := [workload]):
            for eviction in self.of(evicted, now, window) if len(evictors) <= _MOST_EVICTORS else ():
                if eviction.preemptor and eviction.preemptor not in evictors:
                    evictors[eviction.preemptor] = evicted
                    queue.append(eviction.preemptor)
        del evictors[workload]
        return evictors

    def most_evicted(self, count: int, window: float, now: float) -> list[tuple[str, int]]:
        """The workloads that were evicted most often within the window, and how often; equal ones by name."""
        return heapq.nsmallest(count, self.counts(window, now).items(), key=lambda row: (-row[1], row[0]))

    def load(self, known: WrittenHistory, now: float, wall: float, *, keep_later: bool = False) -> None:
        """Remember just what an earlier leader wrote; `now` is in monotonic seconds, `wall` since the epoch.

        With `keep_later` also what was noted here and happened after that was written.
        """
        rows = [
            (workload, PastEviction(now - max(0.0, wall - eviction.at), eviction.preemptor))
            for workload, evictions in known.workloads.items()
            for eviction in evictions
            if wall - KEPT_SECONDS < eviction.at
        ]
        if keep_later:
            rows += [
                (name, eviction)
                for name, known_here in self._workloads.items()
                for eviction in known_here
                if eviction.at - now + wall > known.at
            ]
        self._workloads.clear()
        self.written = known.at
        for workload, eviction in sorted(rows, key=lambda row: row[1].at):
            self.note(workload, eviction.at, eviction.preemptor)

    def rows(self, now: float) -> list[tuple[str, list[PastEviction]]]:
        """The evictions that are remembered by workload, the one that was evicted last first."""
        return [
            (workload, [eviction for eviction in known if eviction.at + KEPT_SECONDS > now])
            for workload, known in self._within(KEPT_SECONDS, now)
        ]


def written_text(rows: list[tuple[str, list[PastEviction]]], now: float, wall: float) -> str:
    """What a later leader is to read: of as many workloads as there is room for, the first ones."""
    while True:
        text = _encoded(rows, now, wall)
        if len(text) <= _ROOM or not rows:
            return text
        rows = rows[: len(rows) * _ROOM // (len(text) + 1)]


def _encoded(rows: list[tuple[str, list[PastEviction]]], now: float, wall: float) -> str:
    names: dict[str, int] = {"": 0}
    made = tuple(
        _Row(
            names.setdefault(workload, len(names)),
            tuple(
                (math.floor(eviction.at - now + wall), names.setdefault(eviction.preemptor, len(names)))
                for eviction in evictions
            ),
        )
        for workload, evictions in rows
        if evictions
    )
    if not made:
        return ""
    return pack(_Text(rfc3339_micro(wall), tuple(names)[1:], made))


def read_history(text: str) -> WrittenHistory:
    """What a leader wrote, with times in seconds since the epoch. Raises ValueError for what none would write."""
    if not text:
        return WrittenHistory()
    read = unpack(text, _TEXT, "the history of evictions")
    try:
        names = ("", *read.names)
        at = epoch(read.at)
        workloads = {
            names[row.workload]: [PastEviction(float(at), names[preemptor]) for at, preemptor in row.evictions]
            for row in read.rows[:MOST_WORKLOADS]
        }
    except (IndexError, InstantError) as error:
        raise ValueError(f"the history of evictions has values that giveway never writes: {error}") from error
    if read.version != 1:
        raise ValueError(f"the history of evictions is of version {read.version}, and 1 is known")
    return WrittenHistory(at, workloads)
