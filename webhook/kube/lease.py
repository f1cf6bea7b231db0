"""Leader election over a Lease: who holds it may act, and knows by its own clock until when.

As in client-go, nobody compares wall clocks: a lease has lapsed when its record has not changed for its duration by
the observer's own clock. The holder counts from *before* it sent its last successful renewal and stops believing
`renew_deadline` after that, whatever its event loop does; as an observer cannot have seen that renewal earlier, the
lease is never believed to be held by two.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339_micro
from webhook.kube.objects import ObjectMeta
from webhook.kube.resources import LEASE

__all__ = ["LeaderElector", "LeadershipLost"]

log = logging.getLogger(__name__)

_JITTER = 1.2
_NEVER = float("-inf")


class LeadershipLost(Exception):  # noqa: N818 - it tells what happened; to the caller it need not be an error
    """The lease is not provably held, so nothing may be written."""


class LeaseSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Who holds a lease; instants are for people to read."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, rename="camel", kw_only=True):
    """A coordination.k8s.io/v1 Lease."""

    api_version: str = LEASE.api_version
    kind: str = LEASE.kind
    metadata: ObjectMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class LeaderElector:
    """One candidate for a lease. `identity` must be unique to this process. Times are in seconds.

    Raises ValueError if the times do not leave room for each other.
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
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not lease_duration > renew_deadline > retry_period * _JITTER > 0:
            raise ValueError(
                f"a lease needs lease_duration > renew_deadline > {_JITTER} * retry_period > 0,"
                f" not {lease_duration:g}, {renew_deadline:g}, {retry_period:g}"
            )
        self.identity = identity
        self._client = client
        self._namespace, self._name = namespace, name
        self._lease_duration, self._renew_deadline, self._retry_period = lease_duration, renew_deadline, retry_period
        # Seconds that go on while the machine sleeps, if there is such a clock
        boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        self._clock = clock or (time.monotonic if boottime is None else partial(time.clock_gettime, boottime))
        self._held_until = _NEVER
        self._observed: Lease | None = None
        self._observed_at = _NEVER
        self._outdated = False

    @property
    def transitions(self) -> int:
        """How often the lease changed hands, as last seen; a number that identifies a term of office."""
        return (self._observed.spec.lease_transitions or 0) if self._observed else 0

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; empty if nobody did."""
        return (self._observed.spec.holder_identity or "") if self._observed else ""

    def remaining(self) -> float:
        """Seconds for which the lease is provably held; 0 if it is not."""
        return max(0.0, self._held_until - self._clock())

    def is_leader(self) -> bool:
        """Whether the lease is provably held right now."""
        return self._clock() < self._held_until

    def fence(self) -> None:
        """To be called right before every write. Raises LeadershipLost unless the lease is provably held."""
        if not self.is_leader():
            raise LeadershipLost(f"lease {self._namespace}/{self._name} is not held by {self.identity}")

    async def run(self, on_started: Callable[[], Awaitable[None]]) -> None:
        """Contend for the lease until cancelled.

        Whenever it is won, `on_started()` runs as a task; when it is lost, that task is cancelled and awaited, and
        this contends again. When `on_started()` ends by itself, the lease is released and this returns or raises what
        it raised.
        """
        while True:
            while not await self._attempt():
                spread = 1 + _JITTER * random.random()  # noqa: S311 - spreads candidates
                await asyncio.sleep(self._retry_period * spread)
            log.info("lease %s/%s: %s leads, term %d", self._namespace, self._name, self.identity, self.transitions)
            work = asyncio.ensure_future(on_started())
            try:
                ended = False
                while self.is_leader() and not ended:
                    await asyncio.wait({work}, timeout=min(self._retry_period, self.remaining()))
                    ended = work.done()
                    if not ended:
                        await self._attempt()
                if not ended:
                    log.warning("lease %s/%s: %s has lost it", self._namespace, self._name, self.identity)
            finally:
                await self._step_down(work)
            if ended:
                return await work

    async def _step_down(self, work: asyncio.Future[None]) -> None:
        """End the work, and let go of the lease only then."""
        ended = work.done()
        work.cancel()
        # The lease is let go only after the work has truly ended.
        await asyncio.wait({work})
        if not ended and not work.cancelled() and (error := work.exception()):
            log.error(
                "the work under lease %s/%s failed while it was stopped", self._namespace, self._name, exc_info=error
            )
        held, self._held_until = self.is_leader(), _NEVER
        if held:
            await self._release()

    async def _attempt(self) -> bool:
        """Try once to take or renew the lease; a failure is logged. Whether it is held now."""
        begun = self._clock()
        patience = self._renew_deadline / 2
        if self.is_leader():
            patience = min(patience, self.remaining())
        try:
            async with asyncio.timeout(patience):
                won = await self._take()
            self._held_until = begun + self._renew_deadline if won else _NEVER
        except (ApiError, TimeoutError) as error:
            # What is on the server now is unknown: a write without an answer may have happened.
            self._outdated = True
            log.warning("lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer in time")
        return self.is_leader()

    async def _take(self) -> bool:
        """Write the lease if that is allowed; whether this candidate holds it then. Raises ApiError."""
        lease = self._observed
        if lease is None or self._outdated or not self.is_leader():
            try:
                lease = await self._client.get(LEASE.path(self._namespace, self._name), Lease)
                self._observe(lease)
            except ApiError as error:
                if error.status != 404:
                    raise
                lease = None
        if not self._is_free():
            return False
        now = rfc3339_micro(time.time())
        before = self._observed.spec if self._observed else LeaseSpec(holder_identity=self.identity)
        same = before.holder_identity == self.identity
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._lease_duration),
            acquire_time=(same and before.acquire_time) or now,
            renew_time=now,
            lease_transitions=self.transitions + (not same),
        )
        wanted = Lease(metadata=lease.metadata if lease else ObjectMeta(name=self._name), spec=spec)
        if lease is None:
            self._observe(await self._client.create(LEASE.path(self._namespace), wanted, Lease))
        else:
            self._observe(await self._client.replace(LEASE.path(self._namespace, self._name), wanted, Lease))
        return True

    def _observe(self, lease: Lease) -> None:
        if self._observed is None or lease.spec != self._observed.spec:
            self._observed_at = self._clock()
        self._observed, self._outdated = lease, False

    def _is_free(self) -> bool:
        """Whether the lease as last seen is this candidate's, nobody's, or has lapsed.

        A lease that was deleted stays its holder's until it would have lapsed: the holder does not know yet.
        """
        if self._observed is None or self.holder in {"", self.identity}:
            return True
        duration = self._observed.spec.lease_duration_seconds or self._lease_duration
        return self._clock() > self._observed_at + duration

    async def _release(self) -> None:
        """Let the lease go, so that the next holder need not wait for it to lapse."""
        assert self._observed is not None
        spec = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            renew_time=rfc3339_micro(time.time()),
            lease_transitions=self.transitions,
        )
        released = Lease(metadata=self._observed.metadata, spec=spec)
        try:
            async with asyncio.timeout(self._retry_period):
                self._observe(await self._client.replace(LEASE.path(self._namespace, self._name), released, Lease))
        except (ApiError, TimeoutError) as error:
            log.info("lease %s/%s was not released and will lapse: %s", self._namespace, self._name, error)
