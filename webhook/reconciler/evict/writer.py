"""The writes of the reconciler, each behind the fence: nominate, clear a nomination, mark a victim, have it leave.

The preemptor's resourceVersion goes with every nomination, so that of two writers one fails: never two plans for one
pod. The victim's uid goes with every eviction, so that its successor of the same name is never hit.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.kube.resources import POD
from webhook.kube.transport import BEFORE_SENDING
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.plans.actions import FIRST_PAUSE, LONGEST_PAUSE, TRIES, Effect, is_on_its_way, may_pass
from webhook.reconciler.state.annotations import (
    DecisionRecord,
    PlanRecord,
    digest_of,
    encode,
    plan_id_of,
    plans_growth,
)

log = logging.getLogger(__name__)

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
_CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
_WITHOUT_PLAN: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}}


class DeposedError(Exception):
    """This process does not hold the lease: it must not write."""


class StaleError(Exception):
    """The pod is gone."""


class Writer:
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

    async def until_written(
        self,
        pod: Pod,
        write: Callable[[Pod], Awaitable[T]],
        *,
        patient: bool = False,
        alone: AbstractAsyncContextManager[None] | None = None,
    ) -> T:
        """What `write` comes to for a pod as it is known, and after each failure for the pod as it is read again.

        It goes on for some tries, or if it is `patient` until it is done; `alone` is held while it is read and written.
        Raises StaleError if the pod is gone, ApiError if trying again would not help.
        """
        for attempt in itertools.count():
            try:
                async with alone or nullcontext():
                    return await write(pod if attempt == 0 else await self.read(pod.metadata))
            except ApiError as error:
                if error.status == 404:
                    raise StaleError(f"{key_of(pod)} is gone") from error
                helps = may_pass(error) or error.status == 409
                if not patient and not (helps and attempt < TRIES - 1):
                    raise
                if not helps:
                    log.warning("what is written on %s cannot be taken off yet: %s", key_of(pod), error)
                pause = FIRST_PAUSE * 3 ** min(attempt, TRIES) if attempt or error.status != 409 else 0.0
                await asyncio.sleep(
                    min(LONGEST_PAUSE, max(pause, error.retry_after or 0.0)) if helps else LONGEST_PAUSE
                )
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
        known = _known(pod, "" if whatever else meta.resource_version)
        body = {"metadata": {**known, "annotations": annotations}, "status": {"conditions": [condition]}}
        path = POD.path(meta.namespace, meta.name, "status")
        await self.timely(what, lambda: self._client.patch(path, body, kind="strategic"))

    async def read(self, known: ObjectMeta) -> Pod:
        """The pod as the server has it. Raises StaleError if it is gone or another of its name."""
        path = POD.path(known.namespace, known.name)
        fresh = await unless_absent(self.timely("read", lambda: self._client.get(path, Pod)))
        if fresh is None:
            raise StaleError(f"{known.namespace}/{known.name} is gone")
        if fresh.metadata.uid != known.uid:
            raise StaleError(f"{known.namespace}/{known.name} is another pod of that name now")
        return fresh

    async def timely(self, what: str, ask: Callable[[], Awaitable[T]], *, removes: bool = False) -> T:
        """A request in its turn, if this process still leads then; one that hangs must not outlast the lease.

        One that removes a pod may take longer than others, and there are turns of its own for these.
        """
        gate, longest = (self._evictions, _LONGEST_EVICTION) if removes else (self._gate, _LONGEST_WRITE)
        async with gate:
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

    async def nominate(
        self, pod: Pod, record: PlanRecord, decision: DecisionRecord | None, noted: Callable[[str], None]
    ) -> None:
        """Write nomination, plan and decision, if there is one, in one patch (docs/kubernetes-behaviour.md K20).

        The digest of it is `noted` before, together with the decision that is on the pod then. Raises ApiError.
        """
        told = encode(decision) if decision else (pod.metadata.annotations or {}).get(DECISION, "")
        texts = {PLAN: encode(record)} | ({DECISION: told} if told else {})
        noted(digest_of(pod, texts))
        status = {} if record.resize else {"nominatedNodeName": record.node}
        await self.patch_status("nominate", pod, {"metadata": {"annotations": texts}, "status": status})

    async def clear(self, pod: Pod, plan_id: str, node: str) -> Pod | None:
        """Take plan and nomination off a preemptor; returns it without them, None if it is gone.

        A nomination to another node than the plan's is somebody else's and stays. Goes on until it is done or the pod
        no longer carries this plan.
        """

        async def write(current: Pod) -> Pod:
            if current is pod and plan_id_of(pod) != plan_id:
                current = await self.read(pod.metadata)
            if plan_id_of(current) != plan_id:
                return current
            ours = current.status.nominated_node_name in {"", node}
            return await self.patch_status("clear", current, _CLEARED if ours else _WITHOUT_PLAN)

        try:
            return await self.until_written(pod, write, patient=True)
        except StaleError:
            return None

    async def displace(self, pod: Pod) -> Effect:
        """Take the nomination of a pod of lower priority, and a plan behind it (docs/semantics.md E2).

        GONE if the pod is not nominated to that node any more, UNKNOWN if it is bound to the node: then the room is
        taken. Raises ApiError if trying again would not help.
        """
        node = pod.status.nominated_node_name

        async def write(current: Pod) -> Effect:
            if current.spec.node_name or current.status.nominated_node_name != node:
                return Effect.UNKNOWN if current.spec.node_name == node else Effect.GONE
            await self.patch_status("displace", current, _CLEARED)
            return Effect.DONE

        try:
            return await self.until_written(pod, write)
        except StaleError:
            return Effect.GONE

    async def evict(
        self, pod: Pod, grace_period: int | None, version: str, *, delete: bool = False, dry_run: bool = False
    ) -> Effect:
        """Ask a victim to leave if it is of that resourceVersion, without one whatever it is by now.

        The Eviction API keeps budgets, and to `delete` asks none. With `dry_run` nothing happens
        (docs/kubernetes-behaviour.md K49). Raises ApiError if no answer says what becomes of it.
        """
        meta = pod.metadata
        path = POD.path(meta.namespace, meta.name)
        query: dict[str, Any] = {"dryRun": "All"} if dry_run else {}
        grace = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
        options: dict[str, Any] = {"preconditions": _known(pod, version), **grace}
        deletion = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        named = {"name": meta.name, "namespace": meta.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named, "deleteOptions": options}

        async def ask() -> None:
            if delete:
                await self._client.delete(path, deletion, **query)
            else:
                await self._client.create(f"{path}/eviction", eviction, **query)

        try:
            await self.timely("try" if dry_run else "delete" if delete else "evict", ask, removes=True)
        except ApiError as error:
            if error.status == 404:
                return Effect.GONE
            if error.status == 429 and "DisruptionBudget" in error.causes():
                return Effect.REFUSED
            if dry_run and (is_on_its_way(error) or (error.status == 400 and "dry run" in error.message)):
                return Effect.UNKNOWN
            raise
        return Effect.DONE

    async def mark(self, pod: Pod, now: float, version: str) -> Pod:
        """Write the condition DisruptionTarget on a victim of that resourceVersion, or whatever it is without one."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
        patch = {"metadata": _known(pod, version), "status": {"conditions": [condition]}}
        ask = partial(self._client.patch, path, patch, kind="strategic", as_=Pod)
        return await self.timely("mark", ask, removes=True)


def _known(pod: Pod, version: str) -> dict[str, Any]:
    """This victim and no successor of its name, of that resourceVersion if there is one."""
    uid = pod.metadata.uid
    return {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
