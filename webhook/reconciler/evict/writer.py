"""The writes of the reconciler, each behind the fence: nominate, clear a nomination, mark a victim, have it leave.

The preemptor's resourceVersion goes with every nomination, so that of two writers one fails: never two plans for one
pod. The victim's uid goes with every eviction, so that its successor of the same name is never hit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from webhook.kube.client import Client, PatchKind
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.kube.resources import POD
from webhook.policy.model.values import PLAN
from webhook.reconciler.evictions.store import fenced
from webhook.reconciler.plans.actions import Effect, is_on_its_way

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
CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
"""A merge patch that takes plan and nomination off a pod."""


class Writer:
    """Asks through `client`. Methods raise DeposedError if this process does not lead, and ApiError.

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

    async def wait_while_in_doubt(self) -> bool:
        """Wait until it is known whether this process leads; whether that took any time."""
        waited = False
        while self._in_doubt() and self._fence() <= 0:
            await asyncio.sleep(_DOUBT_PAUSE)  # whoever loses the lease is cancelled here
            waited = True
        return waited

    async def timely(self, what: str, ask: Callable[[], Awaitable[T]], *, removes: bool = False) -> T:
        """A request in its turn, if this process still leads then; one that hangs must not outlast the lease.

        One that removes a pod may take longer than others, and there are turns of its own for these.
        """
        gate, longest = (self._evictions, _LONGEST_EVICTION) if removes else (self._gate, _LONGEST_WRITE)
        async with gate:
            await self.wait_while_in_doubt()
            begun = time.perf_counter()
            try:
                return await fenced(ask, self._fence, longest)
            finally:
                self._wrote(what, time.perf_counter() - begun)

    async def read(self, known: ObjectMeta) -> Pod:
        """The pod as the server has it. If it is gone, or another of its name, that is an ApiError of status 404."""
        fresh = await self.timely("read", partial(self._client.get, POD.path(known.namespace, known.name), Pod))
        if fresh.metadata.uid != known.uid:
            raise ApiError(404, "NotFound", f"{known.namespace}/{known.name} is another pod of that name now")
        return fresh

    async def patch_status(
        self,
        what: str,
        pod: Pod,
        body: Mapping[str, Any],
        version: str,
        *,
        kind: PatchKind = "merge",
        removes: bool = False,
    ) -> Pod:
        """Patch the pod if it is of that resourceVersion, without one whatever it is by now."""
        meta = pod.metadata
        patch = {**body, "metadata": {**body.get("metadata", {}), **_known(pod, version)}}
        path = POD.path(meta.namespace, meta.name, "status")
        asking = partial(self._client.patch, path, patch, kind=kind, as_=Pod)
        return await self.timely(what, asking, removes=removes)

    async def clear(self, pod: Pod, node: str | None) -> Pod:
        """Take plan and nomination off a preemptor; a nomination to another `node` is somebody else's and stays.

        A pod that gets no further plan is patched whatever the kubelet has written.
        """
        body = CLEARED if pod.status.nominated_node_name in {"", node} else {"metadata": CLEARED["metadata"]}
        grows = is_deferred(pod) or '"resize":true' in (pod.metadata.annotations or {}).get(PLAN, "")
        version = pod.metadata.resource_version if grows or not pod.spec.node_name else ""
        return await self.patch_status("clear", pod, body, version)

    async def mark(self, pod: Pod, now: float, version: str) -> Pod:
        """Write the condition DisruptionTarget on a victim of that resourceVersion, or whatever it is without one."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        patch = {"status": {"conditions": [condition]}}
        return await self.patch_status("mark", pod, patch, version, kind="strategic", removes=True)

    async def evict(
        self, pod: Pod, grace_period: int | None, version: str, *, delete: bool = False, dry_run: bool = False
    ) -> Effect:
        """Ask a victim to leave if it is of that resourceVersion, without one whatever it is by now.

        The Eviction API keeps budgets, and to `delete` asks none. With `dry_run` nothing happens
        (docs/kubernetes-behaviour.md K49). Raises ApiError if no answer says what becomes of it.
        """
        meta, path = pod.metadata, POD.path(pod.metadata.namespace, pod.metadata.name)
        query: dict[str, Any] = {"dryRun": "All"} if dry_run else {}
        grace = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
        options: dict[str, Any] = {"preconditions": _known(pod, version), **grace}
        if delete:
            deletion = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
            ask = partial(self._client.delete, path, deletion, **query)
        else:
            named = {"name": meta.name, "namespace": meta.namespace}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named, "deleteOptions": options}
            ask = partial(self._client.create, f"{path}/eviction", eviction, **query)
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


def _known(pod: Pod, version: str) -> dict[str, Any]:
    """This victim and no successor of its name, of that resourceVersion if there is one."""
    uid = pod.metadata.uid
    return {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
