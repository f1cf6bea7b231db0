"""The evictions, and what was learned from them, as a text that outlives pods and leaders.

Each name stands there once. The text is compressed, because the same names are said again and again.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec

from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.evaluate.victim_exclusions import ReturningOwner
from webhook.reconciler.evaluate.workload_history import MOST_WORKLOADS, PastEviction

_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""
_MOST_RECENT = 200_000
"""Evictions that a rate may still count, at most."""
_LONGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""

_Number = Annotated[int, msgspec.Meta(ge=0)]
"""Of a name; 0 is the empty one."""
_Second = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class EvictionRecord(NamedTuple):
    """What is written; times are in seconds since the epoch.

    `recent` are the evictions that a rate may still count, each with when it was and how many there were, the newest
    first. `workloads` are the evictions of each workload, the one that was evicted last first. `returning` are owners
    that put their pods back, those excluded for longest first.
    """

    at: float = -math.inf
    recent: Sequence[tuple[float, PlannedEviction, int]] = ()
    workloads: Mapping[str, Sequence[PastEviction]] = MappingProxyType({})
    returning: Sequence[ReturningOwner] = ()


NOTHING = EvictionRecord()


class _Recent(msgspec.Struct, array_like=True, frozen=True):
    age: Annotated[float, msgspec.Meta(ge=0)]
    node: _Number
    owner: _Number
    plan: _Number
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    groups: tuple[_Number, ...]


class _Workload(msgspec.Struct, array_like=True, frozen=True):
    workload: _Number
    evictions: tuple[tuple[_Second, _Number], ...]


class _Returning(msgspec.Struct, array_like=True, frozen=True):
    owner: _Number
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    left: float


class _Text(msgspec.Struct, frozen=True):
    at: str
    names: tuple[str, ...] = ()
    recent: tuple[_Recent, ...] = ()
    workloads: tuple[_Workload, ...] = ()
    returning: tuple[_Returning, ...] = ()
    version: Literal[1] = 1


_TEXT = msgspec.json.Decoder(_Text)


def record_of(limiter: EvictionLimiter, returning: Sequence[ReturningOwner], now: float, wall: float) -> EvictionRecord:
    """What is known now, which is `now` in monotonic seconds and `wall` in seconds since the epoch."""
    counted = Counter(limiter.recent(now))
    rows = sorted(
        ((at - now + wall, eviction, count) for (eviction, at), count in counted.items()), key=lambda row: -row[0]
    )
    workloads = {
        workload: [eviction._replace(at=eviction.at - now + wall) for eviction in evictions]
        for workload, evictions in limiter.history.rows(now)
    }
    owners = sorted(returning, key=lambda known: -known.until)
    return EvictionRecord(wall, rows, workloads, [known._replace(until=known.until - now + wall) for known in owners])


def encode(record: EvictionRecord) -> str:
    """The text of a record, of at most 192 KiB; empty for nothing.

    If that is too little room, workloads that were not evicted for longest are left out first.
    """
    recent, workloads, returning = list(record.recent), list(record.workloads.items()), list(record.returning)
    while recent or workloads or returning:
        names: dict[str, int] = {"": 0}

        def number(name: str, names: dict[str, int] = names) -> int:
            return names.setdefault(name, len(names))

        rows = tuple(
            _Recent(
                round(max(0.0, record.at - at), 3),
                number(eviction.node),
                number(eviction.owner),
                number(eviction.plan),
                count,
                tuple(map(number, eviction.groups)),
            )
            for at, eviction, count in recent
        )
        owned = tuple(
            _Workload(number(workload), tuple((math.floor(past.at), number(past.preemptor)) for past in evictions))
            for workload, evictions in workloads
        )
        owners = tuple(
            _Returning(number(owner), min(times, 1000), round(until - record.at, 3))
            for owner, times, until in returning
        )
        raw = msgspec.json.encode(_Text(rfc3339_micro(record.at), tuple(names)[1:], rows, owned, owners))
        text = base64.b64encode(zlib.compress(raw, 6)).decode()
        if len(text) <= _ROOM:
            return text
        share = _ROOM / (len(text) + 1)
        if workloads:
            workloads = workloads[: int(len(workloads) * share)]
        else:
            recent, returning = recent[: int(len(recent) * share)], returning[: int(len(returning) * share)]
    return ""


def decode(text: str) -> EvictionRecord:
    """What a leader wrote. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    try:
        read = _TEXT.decode(_unpacked(text))
        names, at = ("", *read.names), epoch(read.at)
        recent = [
            (
                at - row.age,
                PlannedEviction(names[row.owner], names[row.node], _groups(row, names), names[row.plan]),
                row.count,
            )
            for row in read.recent
        ]
        if sum(row.count for row in read.recent) > _MOST_RECENT:
            raise ValueError(f"more than {_MOST_RECENT} recent evictions")  # noqa: TRY301
        workloads = {
            names[row.workload]: [PastEviction(float(then), names[preemptor]) for then, preemptor in row.evictions]
            for row in read.workloads[:MOST_WORKLOADS]
        }
        returning = [ReturningOwner(names[row.owner], row.times, at + row.left) for row in read.returning]
    except (ValueError, IndexError, zlib.error, msgspec.DecodeError, InstantError) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error
    return EvictionRecord(at, recent, workloads, returning)


def _unpacked(text: str) -> bytes:
    unpacking = zlib.decompressobj()
    raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST)
    if not unpacking.eof:
        raise ValueError(f"it has more than {_LONGEST} bytes, or is cut off")
    return raw


def _groups(row: _Recent, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names[group] for group in row.groups)
