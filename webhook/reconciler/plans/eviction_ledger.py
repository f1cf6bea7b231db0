"""The recent evictions, and what was learned from them, as a text that outlives their pods and the leader.

It is kept as an annotation of the reconciler's Lease, which its holder writes every other second anyway: no further
object, right or request. A plan stays on its pod until its evictions are written here (`wait_until_written`). So a new
leader finds every eviction here or in a plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple

import msgspec

from webhook.kube.instants import InstantError, epoch, rfc3339_micro
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.evaluate.victim_exclusions import ReturningOwner
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.packed_text import pack, unpack

log = logging.getLogger(__name__)

EVICTIONS = "giveway.dev/evictions"
"""The annotation of the Lease."""
_ROOM = 32 * 1024
"""Bytes that are written, at most."""
_LONGEST = 64 * 1024
"""Bytes that are read."""
_PAUSE = 0.05
"""Seconds between two looks whether the text is written."""


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """So many evictions, seconds before the text was written; the owner and the plan are empty for none."""

    age: Annotated[float, msgspec.Meta(ge=0)]
    node: str
    owner: str
    plan: str
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    groups: tuple[str, ...] = ()


class _Returning(msgspec.Struct, array_like=True, frozen=True):
    """An owner that put its pods back so many times; for how many seconds yet they are excluded, negative if over."""

    owner: str
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    left: float


class _Text(msgspec.Struct, frozen=True):
    """What is written."""

    at: str
    evictions: tuple[_Row, ...] = ()
    returning: tuple[_Returning, ...] = ()
    version: int = 1


_TEXT = msgspec.json.Decoder(_Text)


class Ledger(NamedTuple):
    """What was read: evictions, each with when it was in seconds since the epoch, by plan; an empty name for none.

    `returning` are the owners that put their pods back, each until when in seconds since the epoch.
    """

    evictions: tuple[tuple[str, float, PlannedEviction], ...] = ()
    returning: tuple[ReturningOwner, ...] = ()


NOTHING = Ledger()


class LedgerStore(NamedTuple):
    """Where the text lies: what is written there, a wish to have it written soon, and the key that leaders share.

    The key is the uid of the Lease: the API server makes it, and who may not read the Lease does not know it.
    """

    written: Callable[[], str]
    write_soon: Callable[[], None]
    key: Callable[[], str] = str


NO_STORE = LedgerStore(str, lambda: None)
"""For a reconciler without a Lease, which reads the plans on pods alone."""


def write_ledger(
    limiter: EvictionLimiter,
    plans: Iterable[Plan],
    now: float,
    wall: float,
    returning: Iterable[ReturningOwner] = (),
    *,
    recalled: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The evictions that some rate still counts, and the owners that put their pods back; empty for none.

    At most 32 KiB, of which the owners have half: the latest evictions, and the owners excluded for longest.

    `recalled` are the plans of evictions that earlier leaders asked for, by ticket: their plans on pods tell of them,
    too, and the next leader is to count them once.

    Victims of the `plans` under way that have not been asked yet are left out. `now` is in monotonic seconds, `wall` in
    seconds since the epoch.
    """
    recent = list(limiter.recent(now))
    plan_of = {ticket: recalled[ticket] for ticket, _, _ in recent if recalled.get(ticket)}
    unasked: set[int] = set()
    for plan in plans:
        for uid, ticket in plan.tickets.items():
            plan_of[ticket] = plan.record.id
            if uid not in plan.gone and uid not in plan.asking:
                unasked.add(ticket)
    counted = Counter(
        (at, eviction, plan_of.get(ticket, "")) for ticket, eviction, at in recent if ticket not in unasked
    )
    rows = sorted(counted.items(), key=lambda row: -row[0][0])
    owners = _within_room(returning, now)
    while rows or owners:
        evictions = tuple(
            _Row(round(max(0.0, now - at), 3), eviction.node, eviction.owner, plan, count, eviction.groups)
            for (at, eviction, plan), count in rows
        )
        text = pack(_Text(rfc3339_micro(wall), evictions, owners))
        if len(text) <= _ROOM:
            return text
        rows = rows[: len(rows) * _ROOM // (len(text) + 1)]
    return ""


def _within_room(returning: Iterable[ReturningOwner], now: float) -> tuple[_Returning, ...]:
    """As many of them as half of the room takes."""
    kept, room = [], _ROOM // 2
    for owner, times, until in sorted(returning, key=lambda entry: -entry.until):
        row = _Returning(owner, min(times, 1000), round(until - now, 3))
        room -= len(msgspec.json.encode(row)) + 1
        if room < 0:
            break
        kept.append(row)
    return tuple(kept)


def read_ledger(text: str) -> Ledger:
    """What an earlier leader wrote; an empty one if there is nothing. Raises ValueError for what none would write."""
    if not text:
        return NOTHING
    if len(text) > _LONGEST:
        raise ValueError(f"annotation {EVICTIONS} has {len(text)} characters, more than {_LONGEST}")
    read = unpack(text, _TEXT, f"annotation {EVICTIONS}")
    try:
        at = epoch(read.at)
    except InstantError as error:
        raise ValueError(f"annotation {EVICTIONS} has values that giveway never writes: {error}") from error
    evictions = tuple(
        (row.plan, at - row.age, PlannedEviction(row.owner, row.node, row.groups))
        for row in read.evictions
        for _ in range(row.count)
    )
    returning = tuple(ReturningOwner(row.owner, row.times, at + row.left) for row in read.returning)
    if read.version != 1:
        raise ValueError(f"annotation {EVICTIONS} is of version {read.version}, and 1 is known")
    return Ledger(evictions, returning)


class EvictionLedger:
    """One process's ledger, term by term: what earlier leaders have left, and what is to be written."""

    def __init__(
        self, evaluator: Evaluator, plans: Mapping[str, Plan], store: LedgerStore, ended: Container[str] = ()
    ) -> None:
        self._evaluator, self._plans, self._store, self._ended = evaluator, plans, store, ended
        self._open = False
        self._last = self._text = ""
        self._texts = 0
        """How many times the text was made."""
        self.recalled: Mapping[int, str] = {}
        """Tickets of the evictions that this term has found, by plan."""

    def begin(self) -> None:
        """A term begins: nothing of this process's last one is written any more."""
        self._last = ""

    def open(self) -> Ledger:
        """What earlier leaders have written, before anything of this term is."""
        self._open = True
        try:
            return read_ledger(self._store.written())
        except ValueError as error:
            log.warning("%s; only what plans on pods tell counts", error)
            return NOTHING

    @property
    def key(self) -> str:
        """What the leaders seal their plans with."""
        return self._store.key()

    def write_soon(self) -> None:
        """Something that was evicted is not written yet."""
        self._store.write_soon()

    async def wait_until_written(self) -> None:
        """Wait until all is written that was evicted so far: then the next leader knows it without the plan."""
        if self._store is NO_STORE:
            return
        before = self._texts
        self._store.write_soon()
        while self._texts == before or self._store.written() != self._text:  # noqa: ASYNC110 - the Lease is polled
            await asyncio.sleep(_PAUSE)

    def close(self) -> None:
        """The term ends: what is written from now on is of this moment."""
        self._last, self._open = self.text() or "", False

    def text(self) -> str | None:
        """What is to be written now; None for what is there already."""
        if not self._open:
            return self._last or None
        limiter, clock = self._evaluator.limiter, self._evaluator.clock
        returning = self._evaluator.eviction_backoff.returning()
        recalled = {ticket: plan for ticket, plan in self.recalled.items() if plan not in self._ended}
        self._texts += 1
        self._text = write_ledger(
            limiter, self._plans.values(), clock.monotonic(), clock.wall(), returning, recalled=recalled
        )
        return self._text
