"""Leader election over a Lease: who holds it may act, and knows by its own clock until when.

As in client-go, nobody compares wall clocks: a lease has lapsed when its record has not changed for its duration by
the observer's own clock. The holder counts from just before it sent its last successful renewal and stops believing
`renew_deadline` after that, whatever its event loop does; as an observer cannot have seen that renewal earlier, the
lease is never believed to be held by two.

A term is something else: as in client-go, a renewal has `renew_deadline` from when it begins, however long its requests
take, and the holder goes on until then. With answers after nine seconds it is in doubt most of the time, and writes
nothing, but it knows what it knew when the server is quick again.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import rfc3339_micro
from webhook.kube.objects.meta import KubeStruct, ObjectMeta
from webhook.kube.resources import LEASE

log = logging.getLogger(__name__)

_JITTER = 1.2
_NEVER = float("-inf")


class LeaseSpec(KubeStruct):
    """Who holds a lease; instants are for people to read."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeStruct, omit_defaults=False):
    """A coordination.k8s.io/v1 Lease."""

    api_version: str = LEASE.api_version
    kind: str = LEASE.kind
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class LeaderElector:
    """One candidate for a lease. `identity` must be unique to this process.

    Times are in seconds; the `clock` goes on while the machine sleeps. Raises ValueError for times without room.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_duration: float = 15,
        renew_deadline: float = 10,
        retry_period: float = 2,
        clock: Callable[[], float],
    ) -> None:
        if not lease_duration > renew_deadline > retry_period * _JITTER > 0:
            raise ValueError(
                f"a lease needs lease_duration > renew_deadline > {_JITTER} * retry_period > 0,"
                f" not {lease_duration:g}, {renew_deadline:g}, {retry_period:g}"
            )
        self.identity = identity
        self._client = client
        self._name, self._title = name, f"{namespace}/{name}"
        self._collection, self._path = LEASE.path(namespace), LEASE.path(namespace, name)
        self._lease_duration = lease_duration
        self._renew_deadline, self._retry_period = renew_deadline, retry_period
        self._clock = clock
        self._held_until = _NEVER
        self._in_term = False
        self._renewal_ends = _NEVER
        self._observed, self._observed_at = Lease(), _NEVER
        self._attempted_at = _NEVER

    @property
    def transitions(self) -> int:
        """How often the lease changed hands, as last seen; it identifies a term of office."""
        return self._observed.spec.lease_transitions or 0

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; empty if nobody did."""
        return self._observed.spec.holder_identity or ""

    def remaining(self) -> float:
        """Seconds for which the lease is provably held; 0 if it is not."""
        return max(0.0, self._held_until - self._clock())

    def is_in_doubt(self) -> bool:
        """Whether the term goes on without proof that the lease is held: a renewal awaits its answer."""
        return self._in_term and not self.remaining()

    async def run(self, on_started: Callable[[], Awaitable[None]]) -> None:
        """Contend for the lease until cancelled.

        Whenever it is won, `on_started()` runs as a task; when it is lost, that task
        is cancelled and awaited, and this contends again. When `on_started()` ends
        by itself, the lease is released and this returns or raises what it raised.
        """
        while True:
            while not await self._attempt():
                spread = 1 + _JITTER * random.random()  # noqa: S311 - spreads candidates
                await asyncio.sleep(self._retry_period * spread)
            log.info("lease %s: %s leads, term %d", self._title, self.identity, self.transitions)
            work = asyncio.ensure_future(on_started())
            try:
                self._in_term = True
                while await self._renew(work):
                    pass
                ended = work.done()
                if not ended:
                    log.warning("lease %s: %s has lost it", self._title, self.identity)
            finally:
                await self._step_down(work)
            if ended:
                return await work

    async def _renew(self, work: asyncio.Future[None]) -> bool:
        """Wait until a renewal is due, and try until its deadline.

        False if the work has ended, if somebody else has the lease, or if the deadline is over.
        An answer that took longer than the period is followed by the next renewal at once.
        """
        await asyncio.wait(
            {work},
            timeout=max(0.0, self._attempted_at + self._retry_period - self._clock()),
        )
        self._renewal_ends = self._clock() + self._renew_deadline
        while not work.done() and not await self._attempt():
            pause = min(self._retry_period, self._renewal_ends - self._clock())
            if not self._in_term or pause <= 0:
                return False
            await asyncio.wait({work}, timeout=pause)
        return not work.done()

    async def _step_down(self, work: asyncio.Future[None]) -> None:
        """End the work, and let go of the lease only then."""
        ended = work.done()
        work.cancel()
        # The lease is let go only after the work has truly ended.
        await asyncio.wait({work})
        if not ended and not work.cancelled() and (error := work.exception()):
            log.error("the work under lease %s failed while it was stopped", self._title, exc_info=error)
        held, self._held_until, self._in_term = self.remaining(), _NEVER, False
        if not held:
            return
        # Let it go, so that the next holder need not wait for it to lapse
        try:
            async with asyncio.timeout(self._retry_period):
                await self._write(self._observed, "")
        except (ApiError, TimeoutError) as error:
            log.info("lease %s was not released and will lapse: %s", self._title, error)

    async def _attempt(self) -> bool:
        """Try to take or renew the lease, or log why not; whether it is held. If others have it, the term ends."""
        self._attempted_at = self._clock()
        try:
            if await self._take():
                return True
            self._held_until, self._in_term = _NEVER, False
        except (ApiError, TimeoutError) as error:
            log.warning("lease %s: %s", self._title, str(error) or "no answer in time")
        return False

    async def _take(self) -> bool:
        """Write the lease if it may be held; whether it may. Raises ApiError or TimeoutError."""
        # 1. A holder renews what it wrote last, without reading it again, as client-go does: one request, not two. If
        #    that is not there any more, because an answer was missed or for another reason, it has to be read.
        if self._in_term:
            try:
                await self._write(self._observed, self.identity)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            else:
                return True
        # 2. Who holds it?
        async with asyncio.timeout(self._patience()):
            lease = await unless_absent(self._client.get(self._path, Lease))
        if lease is not None:
            self._observe(lease)
        # 3. Take it, if it is this candidate's, nobody's, or has lapsed. One that was deleted stays its holder's until
        #    it would have lapsed: the holder does not know yet.
        duration = self._observed.spec.lease_duration_seconds or self._lease_duration
        lapsed = self._clock() > self._observed_at + duration
        if self.holder not in {"", self.identity} and not lapsed:
            return False
        await self._write(lease, self.identity)
        return True

    async def _write(self, lease: Lease | None, holder: str) -> None:
        """Write a holder, empty for nobody, into the lease as it was last seen, None for a new one.

        A candidate holds it if that succeeds. Raises ApiError or
        TimeoutError; a write without an answer may have happened.
        """
        now, before = rfc3339_micro(time.time()), self._observed
        same = self.holder == self.identity or not before.metadata.resource_version
        spec = LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=math.ceil(self._lease_duration) if holder else 1,
            acquire_time=(same and before.spec.acquire_time) or now,
            renew_time=now,
            lease_transitions=self.transitions + (not same),
        )
        metadata = lease.metadata if lease else ObjectMeta(name=self._name)
        wanted = Lease(metadata=metadata, spec=spec)
        sent = self._clock()
        async with asyncio.timeout(self._patience()):
            if metadata.resource_version:
                self._observe(await self._client.replace(self._path, wanted, Lease))
            else:
                self._observe(await self._client.create(self._collection, wanted, Lease))
        self._held_until = sent + self._renew_deadline if holder else _NEVER

    def _patience(self) -> float:
        """Seconds for one request: what is left of the renewal, or the deadline for a candidate."""
        if not self._in_term:
            return self._renew_deadline
        return max(0.0, self._renewal_ends - self._clock())

    def _observe(self, lease: Lease) -> None:
        if lease.spec != self._observed.spec or self._observed_at == _NEVER:
            self._observed_at = self._clock()
        self._observed = lease
