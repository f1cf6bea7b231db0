"""The log of evictions, and what was learned from them, as a text that outlives pods and leaders.

Nobody compares the clocks of two leaders: for the next one no time has passed since it was written.

It is written before a victim is asked, so the text takes milliseconds also in a busy cluster.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Collection
from itertools import accumulate, islice
from operator import sub
from typing import Annotated, Literal

import msgspec

from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.backoff import EvictionBackoff, ReturningOwner
from webhook.reconciler.evictions.log import EvictionLog, LoggedEviction, PodEviction

_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""
_AIM = _ROOM * 15 // 16
"""Bytes that are tried if it is too long: so it is not packed again and again."""
_LONGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""
_MOST = 16_000
"""Evictions that are written at most, and read: more than have room, 20 to 30 bytes each."""
_MOST_UIDS = 1000
"""Pods that went a moment ago whose uids are written, the latest; each takes 30 bytes. One that is missing may count
twice."""
_LEVEL = 1
"""Of zlib: a better one takes four times as long, and a tenth fewer bytes."""
_Milliseconds = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
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
    evictions: tuple[LoggedEviction, ...] = ()
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


class _Columns(msgspec.Struct, frozen=True, array_like=True):
    """A record as it is packed: what its evictions say of the same is side by side, so it packs well, and fast.

    `ago` is for how many milliseconds each was before the next one, or before the record was written.
    """

    record: EvictionRecord
    ago: Annotated[tuple[_Milliseconds, ...], msgspec.Meta(max_length=_MOST)] = ()
    unled: tuple[float, ...] = ()
    workload: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    labels: tuple[tuple[tuple[str, str], ...], ...] = ()
    preemptor: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: EvictionRecord) -> _Columns:
        """The columns of a record; no eviction is older by that than it was."""
        rows = record.evictions
        ago = [int((record.now - row.at) * 1000) for row in rows]
        columns = zip(*(row.eviction for row in rows), strict=True)
        unled = tuple(row.unled for row in rows)
        return cls(msgspec.structs.replace(record, evictions=()), tuple(map(sub, ago, (0, *ago))), unled, *columns)

    def rows(self) -> EvictionRecord:
        """The record again. Raises ValueError if the columns are not of one length."""
        columns = (self.workload, self.node, self.namespace, self.labels, self.preemptor)
        rows = tuple(
            LoggedEviction(self.record.now - ago / 1000, unled, PodEviction(*fields))
            for ago, unled, *fields in zip(accumulate(self.ago), self.unled, *columns, strict=True)
        )
        return msgspec.structs.replace(self.record, evictions=rows)


NOTHING = EvictionRecord()
_COLUMNS = msgspec.json.Decoder(_Columns)


def record_of(log: EvictionLog, backoff: EvictionBackoff, at: Now) -> EvictionRecord:
    """What is known now."""
    returning = sorted(backoff.returning(), key=lambda owner: -owner.until)[:_MOST_RETURNING]
    return EvictionRecord(
        rfc3339_micro(at.wall),
        at.monotonic,
        log.intended(),
        tuple(islice(log.past(), _MOST)),
        tuple(log.uids_since(at.monotonic)[:_MOST_UIDS]),
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

    If that is too little room, the oldest evictions are left out, then the uids of pods that went and the oldest of
    what plans intend: without that the server would refuse all of it.
    """
    if not (record.intended or record.evictions or record.plans or record.returning):
        return ""
    text = _packed(record)
    rest = len(_packed(msgspec.structs.replace(record, evictions=()))) if len(text) > _ROOM else 0
    while len(text) > _ROOM and record.evictions:
        kept = len(record.evictions) * max(0, _AIM - rest) // max(1, len(text) - rest)
        record = msgspec.structs.replace(record, evictions=record.evictions[:kept])
        text = _packed(record)
    while len(text) > _ROOM and record.intended:
        left_out = len(record.intended) - len(record.intended) * _AIM // (len(text) + 1)
        intended = dict(islice(record.intended.items(), left_out, None))
        record = msgspec.structs.replace(record, intended=intended, uids=())
        text = _packed(record)
    return text


def _packed(record: EvictionRecord) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(_Columns.of(record)), _LEVEL)).decode()


def decode(text: str) -> EvictionRecord:
    """What a leader wrote. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST)
        if not unpacking.eof:
            raise ValueError(f"it has more than {_LONGEST} bytes, or is cut off")  # noqa: TRY301
        record = _COLUMNS.decode(raw).rows()
        epoch(record.at)
    except (ValueError, zlib.error, msgspec.DecodeError, InstantError) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error
    return record
