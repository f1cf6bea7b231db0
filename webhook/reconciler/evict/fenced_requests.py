"""Requests to the API server, each behind the fence, in its turn and in time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.kube.resources import POD
from webhook.kube.transport import BEFORE_SENDING
from webhook.reconciler.plans.tries import FIRST_PAUSE, LONGEST_PAUSE, TRIES, may_pass
from webhook.reconciler.state.annotations import PlanVictim, plans_growth

_AT_ONCE = 32
"""Nominations, clearings and reads under way at a time; more would only wait in the API server instead of here."""
_EVICTIONS_AT_ONCE = 256
"""Evictions under way at a time, over all plans. An eviction waits in the API server for up to 100 ms and does next to
nothing there, so this is 2560 a second. More would only wait there: service accounts share about 245 seats
(the priority level `workload-low`)."""
_LONGEST_WRITE = 10.0
"""Seconds, as long as a renewal of the lease may take."""
_DOUBT_PAUSE = 0.1
"""Seconds between two looks at a lease that is in doubt."""
_LONGEST_EVICTION = 12.0
"""Seconds. Admission webhooks have 10 by default, and the API server's own answer is worth more than none."""

T = TypeVar("T")


class DeposedError(Exception):
    """This process does not hold the lease: it must not write."""


class StaleError(Exception):
    """The preemptor, or its node, is no longer what the plan was made for."""


class FencedRequests:
    """Asks through `client`. Methods raise DeposedError if this process does not lead.

    `fence()` is asked before every request, and when it is about to be sent: for how many seconds from now nobody else
    may lead, 0 if this process does not. A request takes no longer than that. As long as it is `in_doubt()` whether
    this process leads, it waits.
    `wrote` is told of every answer: the kind of write and the seconds it took.
    """

    def __init__(
        self,
        client: Client,
        fence: Callable[[], float],
        wrote: Callable[[str, float], None],
        in_doubt: Callable[[], bool] = bool,
    ) -> None:
        self._client = client
        self._fence = fence
        self._in_doubt = in_doubt
        self._wrote = wrote
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._evictions = asyncio.Semaphore(_EVICTIONS_AT_ONCE)

    def is_in_doubt(self) -> bool:
        """Whether a request would wait until it is known whether this process leads."""
        return self._fence() <= 0 and self._in_doubt()

    async def lease_left(self) -> float:
        """For how many seconds this process may write, once that is not in doubt; 0 if it does not lead."""
        while (left := self._fence()) <= 0 and self._in_doubt():  # noqa: ASYNC110 - a clock
            await asyncio.sleep(_DOUBT_PAUSE)  # whoever loses the lease is cancelled here
        return left

    async def pause(self, error: ApiError, attempt: int, also: tuple[int, ...] = ()) -> None:
        """Wait before another try if one may help; raise the error if none does or none is left."""
        if not (may_pass(error) or error.status in also) or attempt >= TRIES - 1:
            raise error
        pause = FIRST_PAUSE * 3**attempt if attempt or error.status != 409 else 0.0
        await asyncio.sleep(min(LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))

    async def until_written(self, pod: Pod, write: Callable[[Pod], Awaitable[T]], *, patient: bool = False) -> T:
        """What `write` comes to for a pod as it is known, and after each failure for the pod as it is read again.

        It goes on for some tries, if it is `patient` as long as trying again may help. Raises StaleError if the pod is
        gone, ApiError if trying again would not help.
        """
        for attempt in itertools.count():
            try:
                return await write(pod if attempt == 0 else await self.read(pod.metadata))
            except ApiError as error:
                if error.status == 404:
                    raise StaleError(f"{key_of(pod)} is gone") from error
                await self.pause(error, min(attempt, TRIES - 2) if patient else attempt, also=(409,))
        raise AssertionError("it is tried until it is written or fails")

    async def patch_status(self, what: str, pod: Pod, body: dict[str, Any]) -> Pod:
        """Patch the pod as it is known; one that gets no further plan, whatever the kubelet has written."""
        meta = pod.metadata
        guard = {"uid": meta.uid}
        if not pod.spec.node_name or is_deferred(pod) or plans_growth(pod):
            guard["resourceVersion"] = meta.resource_version
        guarded = {**body, "metadata": {**body["metadata"], **guard}}
        path = POD.path(meta.namespace, meta.name, "status")
        return await self.timely(what, lambda: self._client.patch(path, guarded, as_=Pod))

    async def patch_as_it_is(
        self,
        what: str,
        pod: Pod,
        annotations: dict[str, str | None],
        condition: dict[str, Any],
        *,
        whatever: bool = False,
    ) -> None:
        """Write annotations and a condition of a pod, if it is still as it is known, or whatever it is by now."""
        meta = pod.metadata
        known = {"uid": meta.uid} if whatever else {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": {**known, "annotations": annotations}, "status": {"conditions": [condition]}}
        path = POD.path(meta.namespace, meta.name, "status")
        await self.timely(what, lambda: self._client.patch(path, body, kind="strategic"))

    async def read(self, known: ObjectMeta | PlanVictim) -> Pod:
        """The pod as the server has it. Raises StaleError if it is gone or another of its name."""
        path = POD.path(known.namespace, known.name)
        fresh = await unless_absent(self.timely("read", lambda: self._client.get(path, Pod)))
        if fresh is None:
            raise StaleError(f"{known.namespace}/{known.name} is gone")
        if fresh.metadata.uid != known.uid:
            raise StaleError(f"{known.namespace}/{known.name} is another pod of that name now")
        return fresh

    async def removing(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """A request that removes a pod, which may take longer than others, and for which there are turns of its own."""
        return await self.timely(what, ask, self._evictions, _LONGEST_EVICTION)

    async def timely(
        self,
        what: str,
        ask: Callable[[], Awaitable[T]],
        gate: asyncio.Semaphore | None = None,
        longest: float = _LONGEST_WRITE,
    ) -> T:
        """A request in its turn, if this process still leads then; one that hangs must not outlast the lease."""
        async with gate or self._gate:
            if (patience := min(await self.lease_left(), longest)) <= 0:
                raise DeposedError("this process does not hold the lease")
            begun = time.perf_counter()
            before = BEFORE_SENDING.set(self._check)
            try:
                async with asyncio.timeout(patience):
                    return await ask()
            except TimeoutError as error:
                raise ApiError(NO_ANSWER, "Timeout", f"no answer within {patience:.3g} s") from error
            finally:
                BEFORE_SENDING.reset(before)
                self._wrote(what, time.perf_counter() - begun)

    def _check(self) -> None:
        """Until there was a connection this process may have stood still, and lost the lease."""
        if self._fence() <= 0:
            raise DeposedError("this process does not hold the lease any more")
