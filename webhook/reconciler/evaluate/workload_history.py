"""How often each workload was evicted, when and for whom: over weeks, and longer than its pods and the leader last.

Times are in monotonic seconds, so that a jump of the system clock changes no count; the text has those since the epoch.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.kube.bounded import Newest

MOST_WORKLOADS = 10_000
"""Beyond that the one that was not evicted for the longest time is forgotten."""
MOST_EVICTIONS = 64
"""Evictions of one workload that are remembered, the latest."""
MOST_WRITTEN = 16_000
"""Evictions that are written: more than have room, about 13 bytes each."""
KEPT_SECONDS = 30 * 86_400.0
"""How long an eviction is remembered."""
_MOST_EVICTORS = 1000


class PastEviction(NamedTuple):
    """When a pod of the workload was asked to leave, and for which preemptor's workload, empty if nobody knows."""

    at: float
    preemptor: str


class WorkloadHistory:
    """The evictions of the workloads, those that were evicted last at the end. Names are `Kind/namespace/name`."""

    def __init__(self) -> None:
        self._workloads: Newest[str, deque[PastEviction]] = Newest(MOST_WORKLOADS)

    def note(self, workload: str, at: float, preemptor: str) -> None:
        """A pod of the workload was asked to leave for one of the workload `preemptor`. A bare pod has no workload."""
        if not workload:
            return
        known = self._workloads.made(workload, lambda: deque(maxlen=MOST_EVICTIONS))
        known.append(PastEviction(at, preemptor))

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

    def load(self, workloads: Mapping[str, Sequence[PastEviction]], now: float, wall: float) -> None:
        """Remember just what an earlier leader wrote, with times in seconds since the epoch, as `wall`.

        `now` is the same in monotonic seconds.
        """
        rows = sorted(
            (eviction.at, workload, eviction.preemptor)
            for workload, evictions in workloads.items()
            for eviction in evictions
            if wall - KEPT_SECONDS < eviction.at
        )
        self._workloads.clear()
        for at, workload, preemptor in rows:
            self.note(workload, now - max(0.0, wall - at), preemptor)

    def rows(self, now: float) -> list[tuple[str, list[PastEviction]]]:
        """The latest evictions by workload, the one that was evicted last first: as many as have room on a Lease."""
        rows, left = list[tuple[str, list[PastEviction]]](), MOST_WRITTEN
        for workload, known in self._within(KEPT_SECONDS, now):
            if (left := left - len(known)) < 0:
                break
            rows.append((workload, [eviction for eviction in known if eviction.at + KEPT_SECONDS > now]))
        return rows
