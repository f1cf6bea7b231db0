"""The writes of the reconciler, each behind the fence.

A nomination names the preemptor's resourceVersion, so one of two writers fails: no pod
has two plans. An eviction names the victim's uid, so it hits no successor of its name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.kube.resources import POD
from webhook.policy.model.values import PLAN
from webhook.reconciler.evictions.store import fenced
from webhook.reconciler.plans.actions import Effect, is_on_its_way

log = logging.getLogger(__name__)

_AT_ONCE = 32
"""Patches and reads at a time; more would wait in the API server, not here."""
_EVICTIONS_AT_ONCE = 256
"""Evictions at a time. Each waits up to 100 ms in the API server and does little there, so
this is 2560 a second. More would only wait: service accounts share about 245 seats (the
priority level `workload-low`)."""
_DOUBT_PAUSE = 0.1
"""Seconds between two looks at a lease that is in doubt."""
_LONGEST = 12.0
"""Seconds. Admission webhooks have 10, and the API server's own answer is worth more than none."""

T = TypeVar("T")
CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
"""Takes plan and nomination off a pod."""


class Writer:
    """Writes through `client`. Methods raise ApiError, and DeposedError if this process does not lead.

    `fence()` is for how many seconds nobody else may lead, 0 if this process does not. It is
    asked before each request, and when that is about to be sent. No request takes longer.
    Requests wait while it is `in_doubt()` who leads. `wrote` is told of every answer: the kind
    of write and the seconds.
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
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._evictions = asyncio.Semaphore(_EVICTIONS_AT_ONCE)

    async def wait_while_in_doubt(self) -> bool:
        """Wait until it is known who leads; whether that took time."""
        waited = False
        while self._in_doubt():
            await asyncio.sleep(_DOUBT_PAUSE)  # whoever loses the lease is cancelled here
            waited = True
        return waited

    async def timely(self, what: str, ask: Callable[[], Awaitable[T]], *, removes: bool = False) -> T:
        """Make a request in its turn, if this process leads then.

        One that removes a pod has turns of its kind.
        """
        async with self._evictions if removes else self._turns:
            await self.wait_while_in_doubt()
            begun = time.perf_counter()
            try:
                return await fenced(ask, self._fence, _LONGEST)
            finally:
                self._wrote(what, time.perf_counter() - begun)

    async def read(self, known: ObjectMeta) -> Pod:
        """The pod as the server has it; another of its name is an ApiError (404)."""
        path = POD.path(known.namespace, known.name)
        pod = await self.timely("read", partial(self._client.get, path, Pod))
        if pod.metadata.uid != known.uid:
            raise ApiError(404, "NotFound", f"{key_of(pod)} is another pod of that name now")
        return pod

    async def patch_status(self, what: str, pod: Pod, body: Mapping[str, Any], version: str) -> Pod:
        """Patch the pod of that resourceVersion; without one whatever it is."""
        meta = pod.metadata
        patch = {**body, "metadata": {**body.get("metadata", {}), **_known(pod, version)}}
        path = POD.path(meta.namespace, meta.name, "status")
        return await self.timely(what, partial(self._client.patch, path, patch, kind="strategic", as_=Pod))

    async def clear(self, pod: Pod, node: str | None) -> Pod:
        """Take plan and nomination off a preemptor; one to another `node` stays.

        A pod that gets no further plan is patched whatever the kubelet wrote.
        """
        body = CLEARED
        if pod.status.nominated_node_name not in {"", node}:
            body = {"metadata": CLEARED["metadata"]}
        grows = is_deferred(pod) or '"resize":true' in (pod.metadata.annotations or {}).get(PLAN, "")
        version = pod.metadata.resource_version if grows or not pod.spec.node_name else ""
        return await self.patch_status("clear", pod, body, version)

    async def mark(self, pod: Pod, now: float, version: str) -> Pod:
        """Mark a victim with DisruptionTarget; `version` as for `patch_status`."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }
        patch = {"status": {"conditions": [condition]}}
        return await self.patch_status("mark", pod, patch, version)

    async def evict(
        self, pod: Pod, grace_period: int | None, version: str, *, delete: bool = False, dry_run: bool = False
    ) -> Effect:
        """Ask a victim to leave; `version` as for `patch_status`.

        The Eviction API keeps budgets, to `delete` asks none. With `dry_run` nothing happens
        (docs/kubernetes-behaviour.md K49). Raises ApiError if the effect is not known.
        """
        meta, path = pod.metadata, POD.path(pod.metadata.namespace, pod.metadata.name)
        query: dict[str, Any] = {"dryRun": "All"} if dry_run else {}
        grace = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
        options = {"preconditions": _known(pod, version), **grace}
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
    """This pod, no successor of its name, of that resourceVersion if any."""
    known = {"uid": pod.metadata.uid}
    return {**known, "resourceVersion": version} if version else known
