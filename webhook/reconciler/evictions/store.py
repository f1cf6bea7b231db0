"""Where the log of evictions, and what was learned from them, outlives pods and leaders: in a Lease of its own.

It is written within a second of whatever changes in it, and before anybody is told or asked to leave: so a new leader,
which reads it before it decides anything, finds every eviction and every plan there. So its text takes milliseconds
also in a busy cluster. Nobody compares the clocks of two leaders: for the next one no time has passed since then.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import time
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import accumulate, islice
from operator import sub
from typing import Annotated, Literal

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.kube.transport import BEFORE_SENDING
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.backoff import EvictionBackoff, ReturningOwner
from webhook.reconciler.evictions.log import EvictionLog, LoggedEviction, PodEviction

log = logging.getLogger(__name__)

EVICTIONS = "giveway.dev/evictions"
"""The annotation of that Lease."""
_PATIENCE = 10.0
"""Seconds for a request, as long as a renewal of the lease may take."""
_RETRY = 1.0
"""Seconds before a request is made again that failed."""
_GAP = 0.05
"""Seconds, at least, between two writes. It is as long as the text took to make, if that is longer."""
_UNHURRIED = 0.95
"""Seconds for which what nobody waits for gathers."""
_AGAIN = 30.0
"""Seconds after which it is written again though nothing has changed, since evictions have become older."""
_ROOM = 192 * 1024
"""Bytes that are written at most: with all its annotations an object may have 256 KiB of them."""
_AIM = _ROOM * 15 // 16
"""Bytes that are tried if it is too long: so it is not packed again and again."""
_LONGEST_TEXT = 16 * 1024 * 1024
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
    happened, the newest first, and `uids` the pods that went a moment ago. `plans` are those on pods, by the uids of
    these, with the digests of what is written there. `returning` are owners that put their pods back.
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
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST_TEXT)
        if not unpacking.eof:
            raise ValueError(f"it has more than {_LONGEST_TEXT} bytes, or is cut off")  # noqa: TRY301
        record = _COLUMNS.decode(raw).rows()
        epoch(record.at)
    except (ValueError, zlib.error, msgspec.DecodeError, InstantError) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error
    return record


def evictions_lease(lease_name: str) -> str:
    """The name of the Lease with the evictions, by that of the Lease that is led by."""
    return f"{lease_name}-evictions"


class EvictionStore:
    """Reads the record when a term begins, and writes what is `known()`, by its version, while it lasts.

    `place` is the namespace and the name of the Lease, None for a process that keeps nothing. `fence()` is for how many
    seconds this process may write.
    """

    def __init__(
        self,
        client: Client,
        place: tuple[str, str] | None,
        known: Callable[[], tuple[int, EvictionRecord]],
        fence: Callable[[], float],
    ) -> None:
        self._client, self._place, self._known, self._fence = client, place, known, fence
        self._lease: Lease | None = None
        """As it was last seen."""
        self._wanted, self._awaited = asyncio.Event(), asyncio.Event()
        self._written = self._begun = -1
        """The version that was written last, and the one whose write was begun last, unless that has failed."""
        self._refused = False
        """Whether the server refuses to have it written: then nobody waits for that."""
        self._ended = asyncio.Event()
        """Set when the next write has ended."""
        self._took = 0.0
        """Seconds that the last text took to make."""

    async def read(self) -> EvictionRecord:
        """What earlier leaders have written; a server that is away is asked again.

        What none of them would have written is told, and counts for nothing.
        """
        if self._place is None:
            return NOTHING
        while True:
            try:
                self._lease = await self._get(*self._place)
                return decode((self._lease.metadata.annotations or {}).get(EVICTIONS, "") if self._lease else "")
            except ValueError as error:
                self._warn(error)
                return NOTHING
            except (ApiError, TimeoutError) as error:
                self._warn(error)
                if _is_refusal(error):
                    return NOTHING
                await asyncio.sleep(_RETRY)

    def write_soon(self, *, awaited: bool = False) -> None:
        """Something is not written yet; that is done within a second, or at once if somebody waits for it."""
        self._wanted.set()
        if awaited:
            self._awaited.set()

    async def keep(self) -> None:
        """Write what is new, and what there is now and then, until cancelled."""
        while self._place is not None:
            for event, seconds in ((self._wanted, _AGAIN), (self._awaited, _UNHURRIED)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await event.wait()
            self._wanted.clear()
            self._awaited.clear()
            if not await self.write() and not self._refused:
                self.write_soon(awaited=True)
                await asyncio.sleep(_RETRY)
            await asyncio.sleep(max(_GAP, self._took))

    async def write(self) -> bool:
        """Write what is known now, if this process may; whether that succeeded. A failure is logged."""
        if self._place is None or self._fence() <= 0:
            return False
        begun, written, before = time.perf_counter(), False, BEFORE_SENDING.set(self._check)
        try:
            version, record = self._known()
            self._begun = version
            text = await asyncio.to_thread(encode, record)
            self._took = time.perf_counter() - begun
            async with asyncio.timeout(min(_PATIENCE, self._fence())):
                await self._put(*self._place, text)
        except (ApiError, TimeoutError) as error:
            self._refused = _is_refusal(error)
            self._warn(error)
        except Exception:
            log.exception("the evictions cannot be written")
        else:
            self._written, self._refused, written = version, False, True
        finally:
            BEFORE_SENDING.reset(before)
            self._begun = self._written
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
        return written

    async def wait_until_written(self, version: int) -> bool:
        """Wait until what was known at that version is written, unless the server refuses to have it written.

        Returns whether that took any time.
        """
        waited = False
        while self._place is not None and self._written < version and not self._refused:
            if self._begun < version:
                self.write_soon(awaited=True)
            await self._ended.wait()
            waited = True
        return waited

    async def _put(self, namespace: str, name: str, text: str) -> None:
        lease, self._lease = self._lease or await self._get(namespace, name), None  # until there is an answer
        known = (lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else ""
        if not text and not known:
            self._lease = lease
            return
        metadata = lease.metadata if lease is not None else ObjectMeta(name=name)
        metadata = msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), EVICTIONS: text})
        if lease is None:
            self._lease = await self._client.create(LEASE.path(namespace), Lease(metadata=metadata), Lease)
        else:
            wanted = msgspec.structs.replace(lease, metadata=metadata)
            self._lease = await self._client.replace(LEASE.path(namespace, name), wanted, Lease)

    def _check(self) -> None:
        """Until there was a connection this process may have stood still, and lost the lease."""
        if self._fence() <= 0:
            raise ApiError(NO_ANSWER, "Deposed", "this process does not hold the lease any more")

    async def _get(self, namespace: str, name: str) -> Lease | None:
        async with asyncio.timeout(_PATIENCE):
            return await unless_absent(self._client.get(LEASE.path(namespace, name), Lease))

    def _warn(self, error: Exception) -> None:
        log.warning("the evictions in Lease %s/%s: %s", *(self._place or ("", "")), error or type(error).__name__)


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered, and would not answer otherwise if it was asked again."""
    passes = {NO_ANSWER, 404, 409, 429}
    return isinstance(error, ApiError) and error.status not in passes and error.status < 500
