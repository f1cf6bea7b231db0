"""The writes of the reconciler, each behind the fence: nominate, clear a nomination, mark a victim, have it leave.

The preemptor's resourceVersion goes with every nomination, so that of two writers one fails: never two plans for one
pod. The victim's uid goes with every eviction, so that its successor of the same name is never hit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.evict.fenced_requests import FencedRequests, StaleError
from webhook.reconciler.plans.tries import is_on_its_way
from webhook.reconciler.state.annotations import DecisionRecord, PlanRecord, PlanVictim, digest_of, encode, plan_id_of

_CLEARED: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}, "status": {"nominatedNodeName": None}}
_WITHOUT_PLAN: dict[str, Any] = {"metadata": {"annotations": {PLAN: None}}}


class EvictionResult(StrEnum):
    """What the API server says to a request to leave, or what the pod says after it.

    ASKED: it was granted. GONE: the pod is not there any more. REFUSED: a budget does not allow it now. UNKNOWN: the
    server cannot say whether it would grant it.
    """

    ASKED = "asked"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


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

    async def evict(self, victim: PlanVictim, grace_period: int | None, version: str) -> EvictionResult:
        """Ask a victim to leave through the Eviction API, which keeps budgets, if it is of that resourceVersion.

        Without a version it is asked whatever it is by now. Raises ApiError if no answer says what becomes of it.
        """
        path = POD.path(victim.namespace, victim.name, "eviction")
        body = _eviction(victim, _options(victim, version, grace_period))
        return await _said(self.removing("evict", lambda: self._client.create(path, body)))

    async def would_leave(self, victim: PlanVictim, grace_period: int | None, *, delete: bool) -> EvictionResult:
        """Ask with `dryRun` whether a victim would go, by eviction or by delete (docs/kubernetes-behaviour.md K49).

        Raises as `evict` does.
        """
        path = POD.path(victim.namespace, victim.name)
        options = _options(victim, "", grace_period)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options} if delete else _eviction(victim, options)
        ask = self._client.delete if delete else self._client.create
        path = path if delete else f"{path}/eviction"
        try:
            return await _said(self.removing("try", lambda: ask(path, body, dryRun="All")))
        except ApiError as error:
            if is_on_its_way(error) or (error.status == 400 and "dry run" in error.message):
                return EvictionResult.UNKNOWN
            raise

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

    async def delete(self, victim: PlanVictim, grace_period: int | None, version: str) -> EvictionResult:
        """Delete a victim of that resourceVersion, or whatever it is without one; budgets are not asked.

        Raises as `evict` does.
        """
        path = POD.path(victim.namespace, victim.name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(victim, version, grace_period)}
        return await _said(self.removing("delete", lambda: self._client.delete(path, options)))

    async def fate(self, victim: PlanVictim) -> EvictionResult | None:
        """What became of a victim, by the server's own word; None if it is there and stays. Raises ApiError."""
        try:
            pod = await self.read(victim)
        except StaleError:
            return EvictionResult.GONE
        return EvictionResult.ASKED if pod.metadata.deletion_timestamp else None


async def _said(request: Awaitable[Any]) -> EvictionResult:
    """What the answer to a request to leave says. Raises ApiError if it says nothing of that."""
    try:
        await request
    except ApiError as error:
        if error.status == 404:
            return EvictionResult.GONE
        if error.status == 429 and "DisruptionBudget" in error.causes():
            return EvictionResult.REFUSED
        raise
    return EvictionResult.ASKED


def _known(victim: PlanVictim, version: str) -> dict[str, Any]:
    """This victim and no successor of its name, of that resourceVersion if there is one."""
    return {"uid": victim.uid, "resourceVersion": version} if version else {"uid": victim.uid}


def _options(victim: PlanVictim, version: str, grace_period: int | None) -> dict[str, Any]:
    grace = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
    return {"preconditions": _known(victim, version), **grace}


def _eviction(victim: PlanVictim, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": options,
    }
