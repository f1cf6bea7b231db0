"""Where the log of evictions outlives pods and leaders: in a Lease.

It is written within a second of a change, and before anybody is told or asked to leave: a new
leader reads it before it decides, and finds every eviction and every plan. Its text takes
milliseconds, also in a busy cluster. Nobody compares the clocks of two leaders: for the next
one no time has passed since.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import Clock
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.kube.transport import BEFORE_SENDING
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.log import MOST_KEPT, EvictionLog, InVain, PodEviction

log = logging.getLogger(__name__)

EVICTIONS = "giveway.dev/evictions"
"""The annotation of that Lease."""
_LONGEST_REQUEST = 10.0
"""Seconds, as long as a renewal of the lease may take."""
_RETRY = 1.0
"""Seconds before a request that failed is made again."""
_GAP = 0.05
"""Seconds, at least, between two writes."""
_UNHURRIED = 0.95
"""Seconds for which changes gather that nobody waits for."""
_AGAIN = 30.0
"""Seconds after which it is written again: evictions have become older."""
_ROOM = 192 * 1024
"""Bytes that are written at most: an object may have 256 KiB of annotations."""
_AIM = _ROOM * 15 // 16
"""Bytes that are tried if it is too long: so few tries are enough."""
_LONGEST_TEXT = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""
_MOST_RETURNING = 400
"""Owners that are written at most, those that are excluded for longest."""


class EvictionRecord(msgspec.Struct, frozen=True):
    """What is written at `wall`, in seconds since the epoch; other times are by a clock that says `now`.

    `intended` are evictions that plans have yet to ask for, by the uid of the pod, `evictions`
    those that happened, the newest first. `plans` are the digests of plans on pods, by uid of
    the pod. `returning` are owners that put their pods back.
    """

    wall: float = 0.0
    now: float = 0.0
    intended: dict[str, PodEviction] = {}
    evictions: Annotated[tuple[PodEviction, ...], msgspec.Meta(max_length=MOST_KEPT)] = ()
    plans: dict[str, frozenset[str]] = {}
    returning: dict[str, InVain] = {}
    version: Literal[3] = 3

    def when(self, row: PodEviction) -> float:
        """When an eviction was, in seconds since the epoch, for people."""
        return self.wall - (self.now - row.at) - row.unled


NOTHING = EvictionRecord()
_RECORD = msgspec.json.Decoder(EvictionRecord)


def record_of(log: EvictionLog, at: Now) -> EvictionRecord:
    """What is known now."""
    returning = sorted(log.returning.items(), key=lambda row: -row[1].until)
    return EvictionRecord(
        at.wall,
        at.monotonic,
        {uid: row._replace(at=at.monotonic) for uid, row in log.intended().items()},
        tuple(islice(reversed(log.past), MOST_KEPT)),
        {**log.earlier_plans, **log.plans},
        dict(returning[:_MOST_RETURNING]),
    )


def encode(record: EvictionRecord) -> str:
    """The text of a record, of at most 192 KiB; empty for nothing.

    Beyond that the oldest evictions go, then the oldest that plans intend: the server
    would refuse all of it.
    """
    if replace(record, wall=0.0, now=0.0) == NOTHING:
        return ""
    text = base64.b64encode(zlib.compress(msgspec.json.encode(record))).decode()
    intended, evictions = record.intended, record.evictions
    count = len(intended) + len(evictions)
    if len(text) <= _ROOM or not count:
        return text
    rest = len(encode(replace(record, intended={}, evictions=())))
    count = count * max(0, _AIM - rest) // max(1, len(text) - rest)
    intended = dict(islice(intended.items(), max(0, len(intended) - count), None))
    evictions = evictions[: count - len(intended)]
    return encode(replace(record, intended=intended, evictions=evictions))


def decode(text: str) -> EvictionRecord:
    """What a leader wrote. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST_TEXT)
        if not unpacking.eof:
            raise ValueError(f"it has more than {_LONGEST_TEXT} bytes, or is cut off")  # noqa: TRY301
        return _RECORD.decode(raw)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the record of evictions has values that giveway never writes: {error}") from error


def evictions_lease(lease_name: str) -> str:
    """The name of the Lease with the evictions, by the leader's."""
    return f"{lease_name}-evictions"


T = TypeVar("T")


class DeposedError(Exception):
    """This process does not hold the lease: it must not write."""


async def fenced(ask: Callable[[], Awaitable[T]], fence: Callable[[], float], longest: float) -> T:
    """The answer to a request of at most `longest` seconds, while this process leads.

    `fence()` says for how many seconds that is. It is asked first, and again just before the
    request is sent: until there is a connection the process may stand still. Raises
    DeposedError, and ApiError also without an answer in time.
    """

    def check() -> None:
        if fence() <= 0:
            raise DeposedError("this process does not hold the lease")

    check()
    patience, before = min(fence(), longest), BEFORE_SENDING.set(check)
    try:
        async with asyncio.timeout(patience):
            return await ask()
    except TimeoutError as error:
        raise ApiError(NO_ANSWER, "Timeout", f"no answer within {patience:.3g} s") from error
    finally:
        BEFORE_SENDING.reset(before)


class EvictionStore:
    """Reads the record when a term begins, and writes what the log knows while it lasts.

    `place` is namespace and name of the Lease, None to keep nothing. `fence()` is for how many
    seconds this process may write.
    """

    def __init__(
        self,
        client: Client,
        place: tuple[str, str] | None,
        known: EvictionLog,
        clock: Clock,
        fence: Callable[[], float],
    ) -> None:
        self._client, self._place, self._known = client, place, known
        self._clock, self._fence = clock, fence
        self._lease: Lease | None = None
        """As it was last seen."""
        self.hurried = asyncio.Event()
        """Set if somebody waits for what is new."""
        self._written = -1.0
        """The version written last; infinite if the server refuses it."""
        self._ended = asyncio.Event()
        """Set when the next write has ended."""

    async def read(self) -> EvictionRecord:
        """What earlier leaders have written; a server that is away is asked again.

        What none of them would have written is told, and counts nothing.
        """
        while self._place is not None:
            try:
                self._lease = await fenced(partial(self._get, *self._place), lambda: math.inf, _LONGEST_REQUEST)
                return decode(_text(self._lease))
            except (ApiError, ValueError) as error:
                self._warn(error)
                if _is_final(error):
                    break
            await asyncio.sleep(_RETRY)
        return NOTHING

    async def keep(self) -> None:
        """Write what is new within a second, and now and then without news."""
        due, time = -math.inf, asyncio.get_running_loop().time
        while self._place is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNHURRIED):
                    await self.hurried.wait()
            self.hurried.clear()
            if self._known.version > self._written or time() >= due:
                due = time() + _AGAIN
                await asyncio.sleep(_GAP if await self.write() else _RETRY)

    async def write(self) -> bool:
        """Write what is known, if this process may; whether it did. Logs errors."""
        if self._place is None or self._fence() <= 0:
            return False
        version, now = self._known.version, Now(self._clock.monotonic(), self._clock.wall())
        try:
            text = await asyncio.to_thread(encode, record_of(self._known, now))
            await fenced(partial(self._put, *self._place, text), self._fence, _LONGEST_REQUEST)
        except (ApiError, DeposedError) as error:
            self._written = math.inf if _is_final(error) else min(self._written, version - 1)
            self._warn(error)
        except Exception:
            log.exception("the evictions cannot be written")
        else:
            self._written = version
            return True
        finally:
            self._ended.set()
            self._ended = asyncio.Event()
        return False

    async def wait_until_written(self, version: int) -> bool:
        """Wait until that version is written or refused; whether that took time."""
        waited = False
        while self._place is not None and self._written < version:
            self.hurried.set()
            await self._ended.wait()
            waited = True
        return waited

    async def _put(self, namespace: str, name: str, text: str) -> None:
        lease, self._lease = self._lease or await self._get(namespace, name), None  # until there is an answer
        if not text and not _text(lease):
            self._lease = lease
            return
        known = lease or Lease(metadata=ObjectMeta(name=name))
        annotations = {**(known.metadata.annotations or {}), EVICTIONS: text}
        wanted = replace(known, metadata=replace(known.metadata, annotations=annotations))
        if lease is None:
            self._lease = await self._client.create(LEASE.path(namespace), wanted, Lease)
        else:
            self._lease = await self._client.replace(LEASE.path(namespace, name), wanted, Lease)

    async def _get(self, namespace: str, name: str) -> Lease | None:
        return await unless_absent(self._client.get(LEASE.path(namespace, name), Lease))

    def _warn(self, error: Exception) -> None:
        log.warning("the evictions in Lease %s/%s: %s", *(self._place or ("", "")), error)


def _text(lease: Lease | None) -> str:
    return (lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else ""


def _is_final(error: Exception) -> bool:
    """Whether the server has answered, and would not answer otherwise."""
    passes = {NO_ANSWER, 404, 409, 429}
    if isinstance(error, ApiError):
        return error.status not in passes and error.status < 500
    return isinstance(error, ValueError)
