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
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.kube.resources import POD
from webhook.kube.transport import BEFORE_SENDING
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.plans.plan import FIRST_PAUSE, LONGEST_PAUSE, TRIES, is_on_its_way, may_pass
from webhook.reconciler.state.annotations import (
    DecisionRecord,
    PlanRecord,
    PlanVictim,
    digest_of,
    encode,
    plan_id_of,
    plans_growth,
)

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
    """The preemptor, or its node, is no longer what the plan was made for."""


class EvictionResult(StrEnum):
    """What the API server says to a request to leave, or what the pod says after it.

    ASKED: it was granted. GONE: the pod is not there any more. REFUSED: a budget does not allow it now. UNKNOWN: the
    server cannot say whether it would grant it.
    """

    ASKED = "asked"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


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
                tried = min(attempt, TRIES - 2) if patient else attempt
                if not (may_pass(error) or error.status == 409) or tried >= TRIES - 1:
                    raise
                pause = FIRST_PAUSE * 3**tried if tried or error.status != 409 else 0.0
                await asyncio.sleep(min(LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))
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

    async def nominate(
        self,
        pod: Pod,
        record: PlanRecord,
        decision: DecisionRecord | None,
        still_wanted: Callable[[Pod], object],
        noted: Callable[[str], None],
    ) -> None:
        """Write nomination, plan and decision, if there is one, in one patch (docs/kubernetes-behaviour.md K20).

        The digest of it is `noted` before, together with the decision that is on the pod then.
        If the pod has changed meanwhile it is read again, and written if `still_wanted`. Raises StaleError if
        it is not, or carries another plan; ApiError if the API refuses.
        """
        told = encode(decision) if decision else (pod.metadata.annotations or {}).get(DECISION, "")
        texts = {PLAN: encode(record)} | ({DECISION: told} if told else {})
        noted(digest_of(pod, texts))
        body = {
            "metadata": {"annotations": texts},
            "status": {} if record.resize else {"nominatedNodeName": record.node},
        }
        before = plan_id_of(pod)  # one that is over, and whose place the new plan takes

        async def write(current: Pod) -> None:
            if current is not pod:
                if (current.metadata.annotations or {}).get(PLAN) == texts[PLAN]:
                    return
                if plan_id_of(current) not in ("", before, record.id) or not still_wanted(current):
                    raise StaleError(f"{key_of(pod)} has changed since the decision")
            await self.patch_status("nominate", current, body)

        await self.until_written(pod, write)

    async def clear(self, pod: Pod, plan_id: str, node: str) -> Pod | None:
        """Take plan and nomination off a preemptor; returns it without them, None if it is gone.

        A nomination to another node than the plan's is somebody else's and stays. Goes on until it is done or the pod
        no longer carries this plan. Raises ApiError if trying again would not help.
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

    async def displace(self, pod: Pod) -> bool:
        """Take the nomination of a pod of lower priority, and a plan behind it (docs/semantics.md E2).

        False if the pod is not nominated to that node any more. Raises StaleError if it is bound to the node: then the
        room is taken. Raises ApiError if trying again would not help.
        """
        node = pod.status.nominated_node_name

        async def write(current: Pod) -> bool | None:
            if current.spec.node_name or current.status.nominated_node_name != node:
                return None if current.spec.node_name == node else False
            await self.patch_status("displace", current, _CLEARED)
            return True

        try:
            displaced = await self.until_written(pod, write)
        except StaleError:
            return False
        if displaced is None:
            raise StaleError(f"{key_of(pod)} was bound to {node} meanwhile")
        return displaced

    async def evict(
        self, victim: PlanVictim, grace_period: int | None, version: str, *, delete: bool = False, dry_run: bool = False
    ) -> EvictionResult:
        """Ask a victim to leave if it is of that resourceVersion, without one whatever it is by now.

        The Eviction API keeps budgets, and to `delete` asks none. With `dry_run` nothing happens
        (docs/kubernetes-behaviour.md K49). Raises ApiError if no answer says what becomes of it.
        """
        path = POD.path(victim.namespace, victim.name)
        query: dict[str, Any] = {"dryRun": "All"} if dry_run else {}
        grace = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
        options: dict[str, Any] = {"preconditions": _known(victim, version), **grace}
        deletion = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        named = {"name": victim.name, "namespace": victim.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named, "deleteOptions": options}

        async def ask() -> None:
            if delete:
                await self._client.delete(path, deletion, **query)
            else:
                await self._client.create(f"{path}/eviction", eviction, **query)

        try:
            await self.removing("try" if dry_run else "delete" if delete else "evict", ask)
        except ApiError as error:
            if error.status == 404:
                return EvictionResult.GONE
            if error.status == 429 and "DisruptionBudget" in error.causes():
                return EvictionResult.REFUSED
            if dry_run and (is_on_its_way(error) or (error.status == 400 and "dry run" in error.message)):
                return EvictionResult.UNKNOWN
            raise
        return EvictionResult.ASKED

    async def mark(self, victim: PlanVictim, now: float, version: str) -> Pod:
        """Write the condition DisruptionTarget on a victim of that resourceVersion, or whatever it is without one."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        path = POD.path(victim.namespace, victim.name, "status")
        patch = {"metadata": _known(victim, version), "status": {"conditions": [condition]}}
        return await self.removing("mark", lambda: self._client.patch(path, patch, kind="strategic", as_=Pod))

    async def fate(self, victim: PlanVictim) -> EvictionResult | None:
        """What became of a victim, by the server's own word; None if it is there and stays. Raises ApiError."""
        try:
            pod = await self.read(victim)
        except StaleError:
            return EvictionResult.GONE
        return EvictionResult.ASKED if pod.metadata.deletion_timestamp else None


def _known(victim: PlanVictim, version: str) -> dict[str, Any]:
    """This victim and no successor of its name, of that resourceVersion if there is one."""
    return {"uid": victim.uid, "resourceVersion": version} if version else {"uid": victim.uid}
