"""The writes of the reconciler, each behind the fence: nominate, clear a nomination, mark a victim, have it leave.

The preemptor's resourceVersion goes with every nomination, so that of two writers one fails: never two plans for one
pod. The victim's uid goes with every eviction, so that its successor of the same name is never hit.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects import ObjectMeta, Pod, key_of
from webhook.kube.paths import POD
from webhook.reconciler.record import DECISION, PLAN, PlanRecord, PlanVictim, UnreadableError, encode, plan_of

__all__ = ["DeposedError", "Left", "StaleError", "Writer"]

_CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
_WITHOUT_PLAN: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}}
_TRIES = 4
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_AT_ONCE = 32
"""Requests under way at a time; more would only wait in the API server instead of here."""
_LONGEST_WRITE = 5.0
"""Seconds."""

T = TypeVar("T")


class DeposedError(Exception):
    """This process does not hold the lease: it must not write."""


class StaleError(Exception):
    """The preemptor is no longer what the plan was made for."""


class Left(StrEnum):
    """What became of a request to leave."""

    ASKED = "asked"
    GONE = "gone"
    REFUSED = "refused"


class Writer:
    """Writes through `client`. Methods raise DeposedError where this process does not lead.

    `fence()` is asked before every request: for how many seconds from now nobody else may lead, 0 where this process
    does not. A request takes no longer than that.
    `wrote` is told of every answer: the kind of write and the seconds it took.
    """

    def __init__(self, client: Client, fence: Callable[[], float], wrote: Callable[[str, float], None]) -> None:
        self._client = client
        self._fence = fence
        self._wrote = wrote
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def nominate(self, pod: Pod, record: PlanRecord, decision: str, still_wanted: Callable[[Pod], bool]) -> Pod:
        """Write nomination, plan and decision in one patch (FACTS 13); returns the pod as written.

        Where the pod has changed meanwhile it is read again, and written if `still_wanted`. Raises StaleError where
        it is not, or carries another plan; ApiError where the API refuses.
        """
        body = {
            "metadata": {"annotations": {PLAN: encode(record), DECISION: decision}},
            "status": {"nominatedNodeName": record.node},
        }
        for attempt in range(_TRIES):
            try:
                return await self._patch_status("nominate", pod, body)
            except ApiError as error:
                await self._pause(error, attempt, also=(409,))
            pod = await self._read(pod.metadata)
            if _plan_id(pod) == record.id:
                return pod
            if _plan_id(pod) or not still_wanted(pod):
                raise StaleError(f"{key_of(pod)} has changed since the decision")
        raise StaleError(f"{key_of(pod)} keeps changing")

    async def clear(self, pod: Pod, plan_id: str, node: str) -> bool:
        """Take plan and nomination off a preemptor; False where they are not there any more.

        A nomination to another node than the plan's is somebody else's and stays. Goes on until it is done or the pod
        no longer carries this plan. Raises ApiError where trying again would not help.
        """
        known: Pod | None = pod
        for attempt in itertools.count():
            try:
                current = known or await self._read(pod.metadata)
                if _plan_id(current) == plan_id:
                    ours = current.status.nominated_node_name in {"", node}
                    await self._patch_status("clear", current, _CLEARED if ours else _WITHOUT_PLAN)
                    return True
                if known is None:
                    return False
            except StaleError:
                return False
            except ApiError as error:
                if error.status == 404:
                    return False
                await self._pause(error, min(attempt, _TRIES - 2), also=(409,))
            known = None
        return False

    async def displace(self, pod: Pod) -> None:
        """Take the nomination of a pod of lower priority, with the plan that may stand behind it (SEMANTICS E)."""
        await self._retrying(lambda: self._patch_status("displace", pod, _CLEARED))

    async def evict(self, victim: PlanVictim, grace_period: int | None) -> Left:
        """Ask a victim to leave through the Eviction API, which keeps budgets. Raises ApiError where it fails."""
        options: dict[str, Any] = {"preconditions": {"uid": victim.uid}}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": victim.name, "namespace": victim.namespace},
            "deleteOptions": options,
        }
        path = POD.path(victim.namespace, victim.name, "eviction")
        return await self._leaving(victim, lambda: self._timely("evict", lambda: self._client.create(path, body)))

    async def delete(self, victim: PlanVictim, seen: Pod, grace_period: int | None, now: float) -> Left:
        """Mark a victim with the condition DisruptionTarget and delete it as it was seen; budgets are not asked.

        Raises ApiError with 409 where it has changed since.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        marked: list[str] = [seen.metadata.resource_version]

        async def mark_and_delete() -> None:
            meta = {"uid": victim.uid, "resourceVersion": marked[0]}
            status = {"conditions": [condition]}
            path = POD.path(victim.namespace, victim.name, "status")
            patch = {"metadata": meta, "status": status}
            pod = await self._timely("mark", lambda: self._client.patch(path, patch, kind="strategic", as_=Pod))
            marked[0] = pod.metadata.resource_version
            options: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": victim.uid, "resourceVersion": marked[0]},
            }
            if grace_period is not None:
                options["gracePeriodSeconds"] = grace_period
            path = POD.path(victim.namespace, victim.name)
            await self._timely("delete", lambda: self._client.delete(path, options))

        return await self._leaving(victim, mark_and_delete)

    async def _leaving(self, victim: PlanVictim, ask: Callable[[], Awaitable[Any]]) -> Left:
        try:
            await self._retrying(ask)
        except ApiError as error:
            if error.status == 404 or (error.status == 409 and await self._is_gone(victim)):
                return Left.GONE
            if error.status == 429 and "DisruptionBudget" in error.causes():
                return Left.REFUSED
            raise
        return Left.ASKED

    async def _retrying(self, ask: Callable[[], Awaitable[Any]]) -> None:
        for attempt in range(_TRIES):
            try:
                await ask()
            except ApiError as error:
                await self._pause(error, attempt)
            else:
                return

    async def _pause(self, error: ApiError, attempt: int, also: tuple[int, ...] = ()) -> None:
        """Wait before another try where one may help; raise the error where none does or none is left."""
        passing = error.status == NO_ANSWER or error.status >= 500 or error.status in also
        throttled = error.status == 429 and "DisruptionBudget" not in error.causes()
        if not (passing or throttled) or attempt >= _TRIES - 1:
            raise error
        pause = _FIRST_PAUSE * 3**attempt if attempt or error.status != 409 else 0.0
        await asyncio.sleep(min(_LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))

    async def _patch_status(self, what: str, pod: Pod, body: dict[str, Any]) -> Pod:
        meta = pod.metadata
        guarded = {**body, "metadata": {**body["metadata"], "uid": meta.uid, "resourceVersion": meta.resource_version}}
        path = POD.path(meta.namespace, meta.name, "status")
        return await self._timely(what, lambda: self._client.patch(path, guarded, as_=Pod))

    async def _is_gone(self, victim: PlanVictim) -> bool:
        """Whether the victim is gone or another pod has its name; how the conflict words it is not relied upon."""
        try:
            await self._read(victim)
        except StaleError:
            return True
        return False

    async def _read(self, known: ObjectMeta | PlanVictim) -> Pod:
        """The pod as the server has it. Raises StaleError where it is gone or another of its name."""
        path = POD.path(known.namespace, known.name)
        try:
            fresh = await self._timely("read", lambda: self._client.get(path, Pod))
        except ApiError as error:
            if error.status == 404:
                raise StaleError(f"{known.namespace}/{known.name} is gone") from error
            raise
        if fresh.metadata.uid != known.uid:
            raise StaleError(f"{known.namespace}/{known.name} is another pod of that name now")
        return fresh

    async def _timely(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """A request in its turn, if this process still leads then; one that hangs must not outlast the lease."""
        async with self._gate:
            patience = min(self._fence(), _LONGEST_WRITE)
            if patience <= 0:
                raise DeposedError("this process does not hold the lease")
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(patience):
                    return await ask()
            except TimeoutError as error:
                raise ApiError(NO_ANSWER, "Timeout", f"no answer within {patience:.3g} s") from error
            finally:
                self._wrote(what, time.perf_counter() - begun)


def _plan_id(pod: Pod) -> str:
    """The id of the plan on a pod; the annotation itself where it cannot be read; empty without one."""
    try:
        plan = plan_of(pod)
    except UnreadableError:
        return (pod.metadata.annotations or {}).get(PLAN, "")
    return plan.id if plan else ""
