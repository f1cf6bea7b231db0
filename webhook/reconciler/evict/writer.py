"""The writes of the reconciler, each behind the fence: nominate, clear a nomination, mark a victim, have it leave.

The preemptor's resourceVersion goes with every nomination, so that of two writers one fails: never two plans for one
pod. The victim's uid goes with every eviction, so that its successor of the same name is never hit.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.evict.fenced_requests import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    TRIES,
    FencedRequests,
    StaleError,
    may_pass,
)
from webhook.reconciler.state.annotations import DecisionRecord, PlanRecord, encode, not_own, plan_id_of, sealed
from webhook.reconciler.state.plan_victims import PlanVictim

Wanted = Callable[[], Awaitable[bool]]
"""Whether a victim is still wanted to leave, by the newest state: asked before each request that removes it."""

_CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
_WITHOUT_PLAN: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}}
_AWAY_PAUSE = 1.0
"""Seconds, at least, between two tries while the API server is away or throttles, or the victim is on its way out."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those say who answer an eviction with 429 because they have begun to move the pod: KubeVirt's words are
"Evacuation in progress" and "Eviction triggered evacuation of VMI" (the latter is what the descheduler looks for)."""


class _JudgeAgainError(Exception):
    """The victim, or the plan that needs it, is not as it was when it was judged."""


class EvictionResult(StrEnum):
    """What became of a request to leave.

    ASKED: the server granted it. GONE: the pod is not there any more. REFUSED: a budget does not allow it now.
    UNWANTED: the plan needed it no longer before the server granted it. BEGUN: the same, but the server had said
    before that the pod is on its way out. UNKNOWN: a request with `dryRun` that the server cannot answer.
    """

    ASKED = "asked"
    GONE = "gone"
    REFUSED = "refused"
    BEGUN = "begun"
    UNWANTED = "unwanted"
    UNKNOWN = "unknown"


async def always() -> bool:
    """Whether an eviction is still wanted: come what may."""
    return True


class Writer(FencedRequests):
    """The writes; methods raise DeposedError if this process does not lead."""

    async def nominate(
        self,
        pod: Pod,
        record: PlanRecord,
        decision: DecisionRecord | None,
        still_wanted: Callable[[Pod], object],
        key: str,
    ) -> None:
        """Write nomination, plan and decision, if there is one, in one patch (docs/kubernetes-behaviour.md K20).

        The plan is sealed with the leaders' `key`, together with the decision that is on the pod then.
        If the pod has changed meanwhile it is read again, and written if `still_wanted`. Raises StaleError if
        it is not, or carries another plan; ApiError if the API refuses.
        """
        told = encode(decision) if decision else (pod.metadata.annotations or {}).get(DECISION, "")
        texts = {PLAN: sealed(encode(record), pod, told, key)} | ({DECISION: told} if told else {})
        body = {
            "metadata": {"annotations": texts},
            "status": {} if record.resize else {"nominatedNodeName": record.node},
        }
        before = plan_id_of(pod)  # one that is over, and whose place the new plan takes
        for attempt in range(TRIES):
            try:
                await self.patch_status("nominate", pod, body)
            except ApiError as error:
                await self.pause(error, attempt, also=(409,))
            else:
                return
            pod = await self.read(pod.metadata)
            if (pod.metadata.annotations or {}).get(PLAN) == texts[PLAN]:
                return
            if plan_id_of(pod) not in ("", before, record.id) or not still_wanted(pod):
                raise StaleError(f"{key_of(pod)} has changed since the decision")
        raise StaleError(f"{key_of(pod)} keeps changing")

    async def clear(self, pod: Pod, plan_id: str, node: str) -> Pod | None:
        """Take plan and nomination off a preemptor; returns it without them, None if it is gone.

        A nomination to another node than the plan's is somebody else's and stays. Goes on until it is done or the pod
        no longer carries this plan. Raises ApiError if trying again would not help.
        """
        known: Pod | None = pod
        for attempt in itertools.count():
            try:
                current = known or await self.read(pod.metadata)
                if plan_id_of(current) == plan_id:
                    ours = current.status.nominated_node_name in {"", node}
                    body = _CLEARED if ours else _WITHOUT_PLAN
                    return await unless_absent(self.patch_status("clear", current, body))
                if known is None:
                    return current
            except StaleError:
                return None
            except ApiError as error:
                await self.pause(error, min(attempt, TRIES - 2), also=(409,))
            known = None
        return None

    async def displace(self, pod: Pod) -> bool:
        """Take the nomination of a pod of lower priority, and a plan behind it (docs/semantics.md E2).

        False if the pod is not nominated to that node any more. Raises StaleError if it is bound to the node: then the
        room is taken. Raises ApiError if trying again would not help.
        """
        node = pod.status.nominated_node_name
        for attempt in itertools.count():
            try:
                return await unless_absent(self.patch_status("displace", pod, _CLEARED)) is not None
            except ApiError as error:
                await self.pause(error, attempt, also=(409,))
            try:
                pod = await self.read(pod.metadata)
            except StaleError:
                return False
            if pod.spec.node_name == node:
                raise StaleError(f"{key_of(pod)} was bound to {node} meanwhile")
            if pod.spec.node_name or pod.status.nominated_node_name != node:
                return False
        return False

    async def evict(
        self,
        victim: PlanVictim,
        grace_period: int | None,
        wanted: Wanted = always,
        *,
        seen: Callable[[], Pod],
        spends: bool = False,
    ) -> EvictionResult:
        """Ask a victim to leave through the Eviction API, which keeps budgets, as long as it is as it was `seen`.

        One that changes all the time is asked whatever it is after a few times: each time it was `wanted` again.
        If it `spends` a disruption of a budget the pod is read first, since the API spends it before it compares
        versions (docs/kubernetes-behaviour.md K17).
        Goes on while `wanted()` as long as the API server is away, throttles, says that the pod is on its way out, or
        that it has changed since it was seen. Raises ApiError if the server, which answers otherwise, does not let the
        victim go.
        """
        path = POD.path(victim.namespace, victim.name, "eviction")

        async def post(version: str) -> None:
            body = _eviction(victim, _options(victim, version, grace_period))
            await self.removing("evict", lambda: self._client.create(path, body))

        async def read_and_post() -> None:
            await self._version_if_same(victim, seen(), wanted, ApiError(409, "Conflict", f"{victim.key} is leaving"))
            await post("")

        ask = read_and_post if spends else lambda: self._as_seen(victim, seen(), wanted, post)
        return await self._leaving(victim, ask, wanted, lambda: post(""))

    async def would_leave(
        self, victim: PlanVictim, grace_period: int | None, wanted: Wanted, *, delete: bool
    ) -> EvictionResult:
        """Ask with `dryRun` whether a victim would go, by eviction or by delete (docs/kubernetes-behaviour.md K49).

        Goes on and raises as `evict` does.
        """
        path = POD.path(victim.namespace, victim.name)
        options = _options(victim, "", grace_period)

        async def ask() -> None:
            if delete:
                body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
                await self.removing("try", lambda: self._client.delete(path, body, dryRun="All"))
            else:
                body = _eviction(victim, options)
                await self.removing("try", lambda: self._client.create(f"{path}/eviction", body, dryRun="All"))

        unknown = False

        async def ask_once() -> None:
            nonlocal unknown
            try:
                await ask()
            except ApiError as error:
                unknown = _is_on_its_way(error) or (error.status == 400 and "dry run" in error.message)
                if not unknown:
                    raise

        result = await self._leaving(victim, ask_once, wanted)
        return EvictionResult.UNKNOWN if unknown else result

    async def delete(
        self,
        victim: PlanVictim,
        grace_period: int | None,
        now: float,
        wanted: Wanted = always,
        *,
        seen: Callable[[], Pod],
    ) -> EvictionResult:
        """Mark a victim with the condition DisruptionTarget and delete it as it was `seen`; budgets are not asked.

        Goes on and raises as `evict` does.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "giveway: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(now),
        }

        async def mark_and_delete(version: str) -> None:
            await self._mark_and_delete(victim, version, condition, grace_period, wanted)

        ask = lambda: self._as_seen(victim, seen(), wanted, mark_and_delete)  # noqa: E731
        return await self._leaving(victim, ask, wanted, lambda: mark_and_delete(""))

    async def _as_seen(
        self, victim: PlanVictim, seen: Pod, wanted: Wanted, ask: Callable[[str], Awaitable[None]]
    ) -> None:
        """Ask with the resourceVersion of the victim as it was seen, and again if only its status has changed since.

        One whose status changes all the time is asked without a version at last. Raises _JudgeAgainError if more has
        changed, or it is not `wanted` any more.
        """
        version = seen.metadata.resource_version
        for left in reversed(range(TRIES)):
            try:
                await ask(version)
            except ApiError as error:
                if error.status != 409 or not left:
                    raise
                fresh = await self._version_if_same(victim, seen, wanted, error)
                version = fresh if left > 1 else ""
            else:
                return

    async def _mark_and_delete(
        self, victim: PlanVictim, version: str, condition: dict[str, Any], grace_period: int | None, wanted: Wanted
    ) -> None:
        """Give the victim the condition, then delete it if it is still as it was then, and still `wanted`."""
        meta = {"uid": victim.uid, "resourceVersion": version} if version else {"uid": victim.uid}
        patch = {"metadata": meta, "status": {"conditions": [condition]}}
        path = POD.path(victim.namespace, victim.name)
        ask = self._client.patch
        pod = await self.removing("mark", lambda: ask(f"{path}/status", patch, kind="strategic", as_=Pod))
        if not await wanted():
            raise _JudgeAgainError
        marked = pod.metadata.resource_version if version else ""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(victim, marked, grace_period)}
        await self.removing("delete", lambda: self._client.delete(path, options))

    async def _version_if_same(self, victim: PlanVictim, seen: Pod, wanted: Wanted, conflict: ApiError) -> str:
        """The victim's resourceVersion now, if only its status has changed since it was seen, and it is still `wanted`.

        Else raises _JudgeAgainError, and `conflict` if it is leaving.
        """
        try:
            fresh = await self.read(victim)
        except StaleError:
            raise ApiError(404, "NotFound", f"{victim.key} is gone") from conflict
        same = (fresh.metadata.labels, not_own(fresh)) == (seen.metadata.labels, not_own(seen))
        if fresh.metadata.deletion_timestamp:
            raise conflict
        if not same or not await wanted():
            raise _JudgeAgainError from conflict
        return fresh.metadata.resource_version

    async def _leaving(
        self,
        victim: PlanVictim,
        ask: Callable[[], Awaitable[Any]],
        wanted: Wanted,
        ask_anyway: Callable[[], Awaitable[Any]] | None = None,
    ) -> EvictionResult:
        """Ask until there is an answer. Raises ApiError if the server answers that the victim stays.

        A victim that changes all the time is asked anyway after some tries: nobody keeps a pod by changing it.
        An eviction that got no answer in all its time is not tried again: the server is asked for the pod instead.
        """
        tries, changes, begun, unclear, pause = 0, 0, False, False, 0.0
        while await wanted():
            try:
                await (ask_anyway if ask_anyway and changes >= TRIES else ask)()
            except ApiError as error:
                if error.status == 404:
                    return EvictionResult.GONE
                if error.status == 429 and "DisruptionBudget" in error.causes():
                    return EvictionResult.REFUSED
                tries += 1
                unclear |= error.status == NO_ANSWER or error.status >= 500
                if _is_on_its_way(error):
                    tries, begun, pause = 0, True, max(_AWAY_PAUSE, 2 * pause)
                elif error.throttled:
                    tries, pause = 0, max(_AWAY_PAUSE, 2 * pause)
                elif may_pass(error) and error.reason != "Timeout" and tries < TRIES:
                    pause = FIRST_PAUSE * 3 ** (tries - 1)
                else:
                    left = await self._fate(victim, error)
                    if left is not None:
                        return left
                    tries, pause = 0, max(_AWAY_PAUSE, 2 * pause)
                pause = min(LONGEST_PAUSE, pause)
                await asyncio.sleep(min(LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))
            except _JudgeAgainError:
                # Whoever wants it judges it again, by what the watch shows by then.
                tries, changes, pause = 0, changes + 1, min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))
                await asyncio.sleep(pause)
            else:
                return EvictionResult.ASKED
        if unclear and await self._has_left(victim):
            return EvictionResult.ASKED  # only the answer was lost
        return EvictionResult.BEGUN if begun else EvictionResult.UNWANTED

    async def _has_left(self, victim: PlanVictim) -> bool:
        """Whether a victim is gone or leaves, as far as the server says so."""
        try:
            return bool((await self.read(victim)).metadata.deletion_timestamp)
        except StaleError:
            return True
        except ApiError:
            return False

    async def _fate(self, victim: PlanVictim, error: ApiError) -> EvictionResult | None:
        """What became of a victim after this error, by the server's own word; None while the server is away.

        Raises the error if the server answers and the victim stays.
        """
        if error.reason == "Unreachable":
            return None
        try:
            pod = await self.read(victim)
        except StaleError:
            return EvictionResult.GONE
        except ApiError as another:
            if may_pass(another):
                return None
            raise error from another
        if pod.metadata.deletion_timestamp:
            return EvictionResult.ASKED
        raise error


def _options(victim: PlanVictim, version: str, grace_period: int | None) -> dict[str, Any]:
    """DeleteOptions for this victim and no successor of its name, of that resourceVersion if there is one."""
    known = {"uid": victim.uid, "resourceVersion": version} if version else {"uid": victim.uid}
    return {"preconditions": known} | ({} if grace_period is None else {"gracePeriodSeconds": grace_period})


def _eviction(victim: PlanVictim, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": options,
    }


def _is_on_its_way(error: ApiError) -> bool:
    return error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY)
