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
from webhook.reconciler.state.annotations import DecisionRecord, PlanRecord, digest_of, encode, not_own, plan_id_of
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


class _LeavingError(Exception):
    """The victim is leaving already."""


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
        noted: Callable[[str], None],
    ) -> None:
        """Write nomination, plan and decision, if there is one, in one patch (docs/kubernetes-behaviour.md K20).

        The digest of it is `noted` before, together with the decision that is on the pod then.
        If the pod has changed meanwhile it is read again, and written if `still_wanted`. Raises StaleError if
        it is not, or carries another plan; ApiError if the API refuses.
        """
        told = encode(decision) if decision else (pod.metadata.annotations or {}).get(DECISION, "")
        texts = {PLAN: encode(record)} | ({DECISION: told} if told else {})
        noted(digest_of(pod, texts[PLAN], told))
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

        return await self._leaving(victim, post, wanted, seen, reads=spends)

    async def would_leave(
        self, victim: PlanVictim, grace_period: int | None, wanted: Wanted, *, delete: bool
    ) -> EvictionResult:
        """Ask with `dryRun` whether a victim would go, by eviction or by delete (docs/kubernetes-behaviour.md K49).

        Goes on and raises as `evict` does.
        """
        path = POD.path(victim.namespace, victim.name)
        options = _options(victim, "", grace_period)
        unknown = False

        async def ask(_: str) -> None:
            nonlocal unknown
            try:
                if delete:
                    body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
                    await self.removing("try", lambda: self._client.delete(path, body, dryRun="All"))
                else:
                    body = _eviction(victim, options)
                    await self.removing("try", lambda: self._client.create(f"{path}/eviction", body, dryRun="All"))
            except ApiError as error:
                unknown = _is_on_its_way(error) or (error.status == 400 and "dry run" in error.message)
                if not unknown:
                    raise

        result = await self._leaving(victim, ask, wanted)
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
        path = POD.path(victim.namespace, victim.name)
        mark = self._client.patch

        async def mark_and_delete(version: str) -> None:
            meta = {"uid": victim.uid, "resourceVersion": version} if version else {"uid": victim.uid}
            patch = {"metadata": meta, "status": {"conditions": [condition]}}
            pod = await self.removing("mark", lambda: mark(f"{path}/status", patch, kind="strategic", as_=Pod))
            if not await wanted():
                raise _JudgeAgainError
            marked = pod.metadata.resource_version if version else ""
            options = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(victim, marked, grace_period)}
            await self.removing("delete", lambda: self._client.delete(path, options))

        return await self._leaving(victim, mark_and_delete, wanted, seen)

    async def _leaving(
        self,
        victim: PlanVictim,
        ask: Callable[[str], Awaitable[None]],
        wanted: Wanted,
        seen: Callable[[], Pod] | None = None,
        *,
        reads: bool = False,
    ) -> EvictionResult:
        """Ask, with a resourceVersion, until there is an answer. Raises ApiError if the server says that it stays.

        If only the victim's status has changed since it was `seen` it is asked again at once. If more has, it is judged
        again, by what the watch shows by then, and asked anyway after some tries: nobody keeps a pod by changing it.
        An eviction that got no answer in all its time is not tried again: the server is asked for the pod instead.
        """
        tries, changes, conflicts, begun, unclear, pause = 0, 0, 0, False, False, 0.0
        while await wanted():
            version = ""
            try:
                if seen is not None and changes < TRIES:
                    version = await self._version(victim, seen(), conflicts, wanted, reads=reads)
                await ask(version)
            except StaleError:
                return EvictionResult.GONE
            except _LeavingError:
                return EvictionResult.ASKED
            except _JudgeAgainError:
                tries, changes, conflicts = 0, changes + 1, 0
                pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))
                await asyncio.sleep(pause)
            except ApiError as error:
                if (answer := _answer(error)) is not None:
                    return answer
                if error.status == 409 and version:
                    conflicts += 1
                    continue
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
            else:
                return EvictionResult.ASKED
        if unclear and await self._has_left(victim):
            return EvictionResult.ASKED  # only the answer was lost
        return EvictionResult.BEGUN if begun else EvictionResult.UNWANTED

    async def _version(self, victim: PlanVictim, seen: Pod, conflicts: int, wanted: Wanted, *, reads: bool) -> str:
        """The resourceVersion to ask with, empty for none: as the victim was seen, or by what is read of it.

        Raises _LeavingError if it is leaving, StaleError if it is gone, _JudgeAgainError if more than its status has
        changed since it was seen, or it is not `wanted` once it was read.
        """
        if not (reads or conflicts):
            return seen.metadata.resource_version
        fresh = await self.read(victim)
        if fresh.metadata.deletion_timestamp:
            raise _LeavingError
        same = (fresh.metadata.labels, not_own(fresh)) == (seen.metadata.labels, not_own(seen))
        if not same or not await wanted():
            raise _JudgeAgainError
        return "" if reads or conflicts == TRIES - 1 else fresh.metadata.resource_version

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


def _answer(error: ApiError) -> EvictionResult | None:
    """What became of the victim, if the error says so."""
    if error.status == 404:
        return EvictionResult.GONE
    return EvictionResult.REFUSED if error.status == 429 and "DisruptionBudget" in error.causes() else None


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
