"""The log of evictions, and what was learned from them, as a text that outlives pods and leaders.

Times are ages, so nobody compares the clocks of two leaders: seconds in which nobody led do not count. Each name stands
there once, and the text is compressed, because the same names are said again and again.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec

from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.backoff import EvictionBackoff, ReturningOwner
from webhook.reconciler.evictions.log import EvictionLog, LoggedEviction, PodEviction

_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""
_LONGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""
_MOST_ROWS = 200_000
"""Evictions that are read at most."""
_MOST_RETURNING = 1000
"""Owners that are written at most, those that are excluded for longest."""
_NAMED = 60.0
"""Seconds for which the uid of a pod is written that was asked to leave: watches may still show it."""

_Number = Annotated[int, msgspec.Meta(ge=0)]
"""Of a name; 0 is the empty one."""


class EvictionRecord(NamedTuple):
    """What is written at `wall`, in seconds since the epoch by the clock of who wrote it.

    Other times are on a clock of its own that says `now` then. Of the `evictions` those that are intended come first,
    then the newest. `plans` are those on pods, by id, with the digests of what is written there. `returning` are owners
    that put their pods back, those that are excluded for longest first.
    """

    wall: float = -math.inf
    now: float = 0.0
    evictions: Sequence[LoggedEviction] = ()
    plans: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    returning: Sequence[ReturningOwner] = ()

    def of_workloads(self) -> dict[str, list[LoggedEviction]]:
        """The evictions that have happened, by workload: the one that was evicted last first, of each the oldest."""
        workloads: dict[str, list[LoggedEviction]] = {}
        for row in self.evictions:
            if row.at <= self.now and row.eviction.workload:
                workloads.setdefault(row.eviction.workload, []).insert(0, row)
        return workloads


NOTHING = EvictionRecord()


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """An eviction of so many seconds ago, None if it is intended, and how much earlier it was by the clocks."""

    age: Annotated[float, msgspec.Meta(ge=0)] | None
    shift: int
    workload: _Number
    preemptor: _Number
    node: _Number
    groups: tuple[_Number, ...]
    uid: str


class _Text(msgspec.Struct, frozen=True):
    at: str
    names: tuple[str, ...] = ()
    evictions: Annotated[tuple[_Row, ...], msgspec.Meta(max_length=_MOST_ROWS)] = ()
    plans: dict[str, tuple[str, ...]] = {}
    returning: tuple[tuple[_Number, Annotated[int, msgspec.Meta(ge=1, le=1000)], float], ...] = ()
    version: Literal[2] = 2


_TEXT = msgspec.json.Decoder(_Text)


def record_of(log: EvictionLog, backoff: EvictionBackoff, at: Now) -> EvictionRecord:
    """What is known now."""
    returning = sorted(backoff.returning(), key=lambda owner: -owner.until)
    return EvictionRecord(at.wall, at.monotonic, log.rows(), {**log.earlier_plans, **log.plans}, returning)


def recall(record: EvictionRecord, log: EvictionLog, backoff: EvictionBackoff, at: Now, there: Collection[str]) -> None:
    """Note what an earlier leader has written; the pods `there`, by uid, have not been asked to leave.

    When a pod went that was yet to be asked is not known, so that counts as of now: nobody gets a rate back too early.
    """
    ahead = at.monotonic - record.now
    for then, wall, eviction in reversed(record.evictions):
        if math.isfinite(then):
            log.note(eviction, then + ahead, wall)
        elif eviction.uid not in there:
            log.note(eviction, *at)
    log.earlier_plans = dict(record.plans)
    for owner in record.returning:
        backoff.recall(owner._replace(until=owner.until + ahead), at.monotonic)


def encode(record: EvictionRecord) -> str:
    """The text of a record, of at most 192 KiB; empty for nothing.

    If that is too little room, what comes last is left out: the oldest evictions.
    """
    if not (record.evictions or record.plans or record.returning):
        return ""
    text = _packed(record)
    while len(text) > _ROOM and record.evictions:
        kept = len(record.evictions) * _ROOM // (len(text) + 1)
        record = record._replace(evictions=record.evictions[:kept])
        text = _packed(record)
    return text


def _packed(record: EvictionRecord) -> str:
    names: dict[str, int] = {"": 0}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    rows = []
    for at, wall, eviction in record.evictions:
        age = round(max(0.0, record.now - at), 3) if math.isfinite(at) else None
        shift = 0 if age is None else round(record.wall - age - wall)
        uid = eviction.uid if age is None or age < _NAMED else ""
        groups = tuple(map(number, eviction.groups))
        of = number(eviction.workload), number(eviction.preemptor), number(eviction.node)
        rows.append(_Row(age, shift, *of, groups, uid))
    owners = [
        (number(owner), min(times, 1000), round(until - record.now, 3))
        for owner, times, until in record.returning[:_MOST_RETURNING]
    ]
    text = _Text(rfc3339_micro(record.wall), tuple(names)[1:], tuple(rows), dict(record.plans), tuple(owners))
    return base64.b64encode(zlib.compress(msgspec.json.encode(text), 6)).decode()


def decode(text: str) -> EvictionRecord:
    """What a leader wrote. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    try:
        read = _TEXT.decode(_unpacked(text))
        names, wall, rows = ("", *read.names), epoch(read.at), []
        for row in read.evictions:
            groups = tuple(names[group] for group in row.groups)
            eviction = PodEviction(row.uid, names[row.workload], names[row.node], groups, names[row.preemptor])
            at = math.inf if row.age is None else -row.age
            rows.append(LoggedEviction(at, wall - (row.age or 0.0) - row.shift, eviction))
        returning = [ReturningOwner(names[owner], times, left) for owner, times, left in read.returning]
    except (ValueError, IndexError, zlib.error, msgspec.DecodeError, InstantError) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error
    return EvictionRecord(wall, 0.0, rows, read.plans, returning)


def _unpacked(text: str) -> bytes:
    unpacking = zlib.decompressobj()
    raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST)
    if not unpacking.eof:
        raise ValueError(f"it has more than {_LONGEST} bytes, or is cut off")
    return raw
