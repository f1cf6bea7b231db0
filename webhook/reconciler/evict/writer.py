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
from webhook.kube.resources import POD
from webhook.reconciler.state.annotations import (
    DECISION,
    PLAN,
    DecisionRecord,
    PlanRecord,
    PlanVictim,
    UnreadableError,
    encode,
    plan_of,
)

__all__ = ["DeposedError", "EvictionResult", "StaleError", "Writer", "always"]

_CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
_WITHOUT_PLAN: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}}
_TRIES = 4
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_AT_ONCE = 32
"""Nominations, clearings and reads under way at a time; more would only wait in the API server instead of here."""
_EVICTIONS_AT_ONCE = 256
"""Evictions under way at a time, over all plans. An eviction waits in the API server for up to 100 ms and does next to
nothing there, so this is 2560 a second. More would only wait there: service accounts share about 245 seats
(the priority level `workload-low`)."""
_LONGEST_WRITE = 5.0
"""Seconds."""
_LONGEST_EVICTION = 12.0
"""Seconds. Admission webhooks have 10 by default, and the API server's own answer is worth more than none."""
_AWAY_PAUSE = 1.0
"""Seconds, at least, between two tries while the API server is away or the victim is on its way out."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those say who answer an eviction with 429 because they have begun to move the pod: KubeVirt's words are
"Evacuation in progress" and "Eviction triggered evacuation of VMI" (the latter is what the descheduler looks for)."""

T = TypeVar("T")


class DeposedError(Exception):
    """This process does not hold the lease: it must not write."""


class StaleError(Exception):
    """The preemptor is no longer what the plan was made for."""


class EvictionResult(StrEnum):
    """What became of a request to leave.

    BEGUN and UNWANTED: nobody wanted it any more before it was granted, and the server had said, or had not, that the
    pod was on its way out.
    """

    ASKED = "asked"
    GONE = "gone"
    REFUSED = "refused"
    BEGUN = "begun"
    UNWANTED = "unwanted"


def always() -> bool:
    """Whether an eviction is still wanted: come what may."""
    return True


class Writer:
    """Writes through `client`. Methods raise DeposedError if this process does not lead.

    `fence()` is asked before every request: for how many seconds from now nobody else may lead, 0 if this process
    does not. A request takes no longer than that.
    `wrote` is told of every answer: the kind of write and the seconds it took.
    """

    def __init__(self, client: Client, fence: Callable[[], float], wrote: Callable[[str, float], None]) -> None:
        self._client = client
        self._fence = fence
        self._wrote = wrote
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._evictions = asyncio.Semaphore(_EVICTIONS_AT_ONCE)

    async def nominate(
        self, pod: Pod, record: PlanRecord, decision: DecisionRecord, still_wanted: Callable[[Pod], object]
    ) -> Pod:
        """Write nomination, plan and decision in one patch (docs/kubernetes-behaviour.md K20); returns the new pod.

        If the pod has changed meanwhile it is read again, and written if `still_wanted`. Raises StaleError if
        it is not, or carries another plan; ApiError if the API refuses.
        """
        body = {
            "metadata": {"annotations": {PLAN: encode(record), DECISION: encode(decision)}},
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
        """Take plan and nomination off a preemptor; False if they are not there any more.

        A nomination to another node than the plan's is somebody else's and stays. Goes on until it is done or the pod
        no longer carries this plan. Raises ApiError if trying again would not help.
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
        """Take the nomination of a pod of lower priority, and a plan behind it (docs/semantics.md E2)."""
        for attempt in itertools.count():
            try:
                await self._patch_status("displace", pod, _CLEARED)
            except ApiError as error:
                await self._pause(error, attempt)
            else:
                return

    async def evict(
        self, victim: PlanVictim, grace_period: int | None, wanted: Callable[[], bool] = always
    ) -> EvictionResult:
        """Ask a victim to leave through the Eviction API, which keeps budgets.

        Goes on while `wanted()` as long as the API server is away or says that the pod is on its way out. Raises
        ApiError if the server, which answers otherwise, does not let the victim go.
        """
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

        async def post() -> None:
            await self._removing("evict", lambda: self._client.create(path, body))

        return await self._leaving(victim, post, wanted)

    async def delete(
        self,
        victim: PlanVictim,
        seen: Pod,
        grace_period: int | None,
        now: float,
        wanted: Callable[[], bool] = always,
    ) -> EvictionResult:
        """Mark a victim with the condition DisruptionTarget and delete it as it was seen; budgets are not asked.

        Goes on and raises as `evict` does; ApiError with 409 if the victim has changed since.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        version = seen.metadata.resource_version

        async def mark_and_delete() -> None:
            nonlocal version
            for left in reversed(range(_TRIES)):
                try:
                    await self._mark_and_delete(victim, version, condition, grace_period)
                except ApiError as error:
                    if error.status != 409 or not left:
                        raise
                    version = await self._version_if_same(victim, seen, error)
                else:
                    return

        return await self._leaving(victim, mark_and_delete, wanted)

    async def _mark_and_delete(
        self, victim: PlanVictim, version: str, condition: dict[str, Any], grace_period: int | None
    ) -> None:
        """Give the victim the condition, then delete it if it is still as it was then."""
        meta = {"uid": victim.uid, "resourceVersion": version}
        patch = {"metadata": meta, "status": {"conditions": [condition]}}
        path = POD.path(victim.namespace, victim.name)
        ask = self._client.patch
        pod = await self._removing("mark", lambda: ask(f"{path}/status", patch, kind="strategic", as_=Pod))
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": victim.uid, "resourceVersion": pod.metadata.resource_version},
        }
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        await self._removing("delete", lambda: self._client.delete(path, options))

    async def _version_if_same(self, victim: PlanVictim, seen: Pod, conflict: ApiError) -> str:
        """The victim's resourceVersion now, if only its status has changed since it was seen; else raise `conflict`."""
        try:
            fresh = (await self._read(victim)).metadata
        except StaleError:
            raise ApiError(404, "NotFound", f"{victim.key} is gone") from conflict
        same = (fresh.labels, fresh.annotations) == (seen.metadata.labels, seen.metadata.annotations)
        if fresh.deletion_timestamp or not same:
            raise conflict
        return fresh.resource_version

    async def _leaving(
        self, victim: PlanVictim, ask: Callable[[], Awaitable[Any]], wanted: Callable[[], bool]
    ) -> EvictionResult:
        """Ask until there is an answer. Raises ApiError if the server answers that the victim stays.

        An eviction that got no answer in all its time is not tried again: the server is asked for the pod instead.
        """
        tries, begun, pause = 0, False, 0.0
        while wanted():
            try:
                await ask()
            except ApiError as error:
                if error.status == 404:
                    return EvictionResult.GONE
                if error.status == 429 and "DisruptionBudget" in error.causes():
                    return EvictionResult.REFUSED
                tries += 1
                if error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY):
                    tries, begun, pause = 0, True, max(_AWAY_PAUSE, 2 * pause)
                elif _may_pass(error) and error.reason != "Timeout" and tries < _TRIES:
                    pause = _FIRST_PAUSE * 3 ** (tries - 1)
                else:
                    left = await self._fate(victim, error)
                    if left is not None:
                        return left
                    tries, pause = 0, max(_AWAY_PAUSE, 2 * pause)
                pause = min(_LONGEST_PAUSE, pause)
                await asyncio.sleep(min(_LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))
            else:
                return EvictionResult.ASKED
        return EvictionResult.BEGUN if begun else EvictionResult.UNWANTED

    async def _fate(self, victim: PlanVictim, error: ApiError) -> EvictionResult | None:
        """What became of a victim after this error, by the server's own word; None while the server is away.

        Raises the error if the server answers and the victim stays.
        """
        if error.reason == "Unreachable":
            return None
        try:
            pod = await self._read(victim)
        except StaleError:
            return EvictionResult.GONE
        except ApiError as another:
            if _may_pass(another):
                return None
            raise error from another
        if pod.metadata.deletion_timestamp:
            return EvictionResult.ASKED
        raise error

    async def _pause(self, error: ApiError, attempt: int, also: tuple[int, ...] = ()) -> None:
        """Wait before another try if one may help; raise the error if none does or none is left."""
        if not (_may_pass(error) or error.status in also) or attempt >= _TRIES - 1:
            raise error
        pause = _FIRST_PAUSE * 3**attempt if attempt or error.status != 409 else 0.0
        await asyncio.sleep(min(_LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))

    async def _patch_status(self, what: str, pod: Pod, body: dict[str, Any]) -> Pod:
        """Patch the pod as it is known; a bound one, which gets no further plan, whatever the kubelet has written."""
        meta = pod.metadata
        guard = {"uid": meta.uid} if pod.spec.node_name else {"uid": meta.uid, "resourceVersion": meta.resource_version}
        guarded = {**body, "metadata": {**body["metadata"], **guard}}
        path = POD.path(meta.namespace, meta.name, "status")
        return await self._timely(what, lambda: self._client.patch(path, guarded, as_=Pod))

    async def _read(self, known: ObjectMeta | PlanVictim) -> Pod:
        """The pod as the server has it. Raises StaleError if it is gone or another of its name."""
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

    async def _removing(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._timely(what, ask, self._evictions, _LONGEST_EVICTION)

    async def _timely(
        self,
        what: str,
        ask: Callable[[], Awaitable[T]],
        gate: asyncio.Semaphore | None = None,
        longest: float = _LONGEST_WRITE,
    ) -> T:
        """A request in its turn, if this process still leads then; one that hangs must not outlast the lease."""
        async with gate or self._gate:
            patience = min(self._fence(), longest)
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


def _may_pass(error: ApiError) -> bool:
    """Whether trying again may help: no answer, throttled, or a server in trouble."""
    return error.status in {NO_ANSWER, 429} or error.status >= 500


def _plan_id(pod: Pod) -> str:
    """The id of the plan on a pod; the annotation itself if it cannot be read; empty without one."""
    try:
        plan = plan_of(pod)
    except UnreadableError:
        return (pod.metadata.annotations or {}).get(PLAN, "")
    return plan.id if plan else ""
