"""The log of evictions, and what was learned from them, as a text that outlives pods and leaders.

Nobody compares the clocks of two leaders: for the next one no time has passed since it was written.
"""

from __future__ import annotations

import base64
import bz2
import math
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.backoff import EvictionBackoff, ReturningOwner
from webhook.reconciler.evictions.log import EvictionLog, LoggedEviction, PodEviction

_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""
_LONGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""
_MOST_READ = 100_000
"""Evictions that are read at most."""
_MOST_RETURNING = 400
"""Owners that are written at most, those that are excluded for longest."""


class EvictionRecord(msgspec.Struct, frozen=True):
    """What is written at an instant, by a clock that said `now`; other times are by that clock, too.

    `intended` are the evictions that plans have yet to ask for, by the uid of the pod, `evictions` those that have
    happened, the newest first, and `uids` the pods that went a moment ago. `plans` are those on pods, by id, with the
    digests of what is written there. `returning` are owners that put their pods back.
    """

    at: str = ""
    now: float = 0.0
    intended: dict[str, PodEviction] = {}
    evictions: Annotated[tuple[LoggedEviction, ...], msgspec.Meta(max_length=_MOST_READ)] = ()
    uids: tuple[str, ...] = ()
    plans: dict[str, tuple[str, ...]] = {}
    returning: tuple[ReturningOwner, ...] = ()
    version: Literal[2] = 2

    @property
    def wall(self) -> float:
        """When it was written, in seconds since the epoch by the clock of who wrote it."""
        return epoch(self.at) if self.at else -math.inf

    def when(self, row: LoggedEviction) -> float:
        """When an eviction was, for people: as `wall`."""
        return self.wall - (self.now - row.at) - row.unled

    def of_workloads(self) -> dict[str, list[LoggedEviction]]:
        """The evictions that have happened, by workload: the one that was evicted last first, of each the oldest."""
        workloads: dict[str, list[LoggedEviction]] = {}
        for row in self.evictions:
            if not row.eviction.is_bare:
                workloads.setdefault(row.eviction.workload, []).insert(0, row)
        return workloads


NOTHING = EvictionRecord()
_RECORD = msgspec.json.Decoder(EvictionRecord)


def record_of(log: EvictionLog, backoff: EvictionBackoff, at: Now) -> EvictionRecord:
    """What is known now."""
    returning = sorted(backoff.returning(), key=lambda owner: -owner.until)[:_MOST_RETURNING]
    return EvictionRecord(
        rfc3339_micro(at.wall),
        at.monotonic,
        log.intended(),
        tuple(log.past()),
        tuple(log.uids_since(at.monotonic)),
        {**log.earlier_plans, **log.plans},
        tuple(returning),
    )


def recall(record: EvictionRecord, log: EvictionLog, backoff: EvictionBackoff, at: Now, there: Collection[str]) -> None:
    """Note what an earlier leader has written; the pods `there`, by uid, have not been asked to leave.

    When a pod went that was yet to be asked is not known, so that counts as of now: nobody gets a rate back too early.
    """
    ahead, unled = at.monotonic - record.now, max(0.0, at.wall - record.wall)
    for then, before, eviction in reversed(record.evictions):
        log.note(eviction, min(then + ahead, at.monotonic), before + unled)
    log.have_gone(record.uids, at.monotonic)
    for uid in record.intended.keys() - there:
        log.asked(uid, record.intended[uid], at.monotonic)
    log.earlier_plans = dict(record.plans)
    for owner in record.returning:
        backoff.recall(owner._replace(until=owner.until + ahead), at.monotonic)


def encode(record: EvictionRecord) -> str:
    """The text of a record, of at most 192 KiB; empty for nothing.

    If that is too little room, the oldest evictions are left out.
    """
    if not (record.intended or record.evictions or record.plans or record.returning):
        return ""
    text = _packed(record)
    while len(text) > _ROOM and record.evictions:
        kept = len(record.evictions) * _ROOM // (len(text) + 1)
        record = msgspec.structs.replace(record, evictions=record.evictions[:kept])
        text = _packed(record)
    return text


def _packed(record: EvictionRecord) -> str:
    return base64.b64encode(bz2.compress(msgspec.json.encode(record))).decode()


def decode(text: str) -> EvictionRecord:
    """What a leader wrote. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    try:
        unpacking = bz2.BZ2Decompressor()
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST)
        if not unpacking.eof:
            raise ValueError(f"it has more than {_LONGEST} bytes, or is cut off")  # noqa: TRY301
        record = _RECORD.decode(raw)
        epoch(record.at)
    except (ValueError, OSError, msgspec.DecodeError, InstantError) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error
    return record
