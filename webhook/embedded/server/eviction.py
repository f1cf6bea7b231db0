"""The eviction sub-resource: a pod is removed if its disruption budget allows it, checked and counted in one step.

Everything between reading the budget and deleting the pod happens without giving way to another request, so two
evictions never spend the same disruption. Mirrors `registry/core/pod/storage/eviction.go`.

kube-apiserver lists the budgets with a consistent read, which waits for the watch cache's next progress notice, one
every 100 ms (`storage/cacher/progress`): evictions wait, they do not work. Here they wait for the next one, too.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import msgspec

from webhook.embedded.protocol.api_resources import BY_URL, Object
from webhook.embedded.protocol.calls import SubresourceCall
from webhook.embedded.protocol.statuses import StatusError, bad_request, failure, forbidden, success, too_many_requests
from webhook.embedded.server.strategy import check_preconditions
from webhook.embedded.server.subresources import set_condition
from webhook.embedded.server.writing import ObjectWriter
from webhook.embedded.storage.object_store import StoreReader
from webhook.kube.instants import rfc3339
from webhook.kube.objects import LabelSelector
from webhook.kube.selectors import label_matcher

__all__ = ["PROGRESS_PERIOD", "Evictor", "budget_condition"]

PROGRESS_PERIOD = 0.1
"""Seconds between two progress notices of a real API server's watch cache."""

_BUDGETS = BY_URL["/apis/policy/v1", "poddisruptionbudgets"]
_MOST_UNCONFIRMED = 2000
"""Evictions whose pods are not gone yet that a budget's status may hold."""
_PROCESSING_SECONDS = 10
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


class Evictor:
    """The handler of `pods/eviction`; `read` looks up the budgets, `writer` spends them.

    `progress_period` is in seconds; with 0 no eviction waits.
    """

    def __init__(self, read: StoreReader, writer: ObjectWriter, progress_period: float = PROGRESS_PERIOD) -> None:
        self._read = read
        self._writer = writer
        self._period = progress_period

    async def __call__(self, call: SubresourceCall) -> tuple[int, Object]:
        """Evict. Raises StatusError: 404, 409 (precondition), 429 (budget) or 500 (several budgets)."""
        options = dict(call.body.get("deleteOptions") or {})
        dry_run = call.change.dry_run or "All" in (options.get("dryRun") or ())
        change = replace(call.change, subresource="", options=options, dry_run=dry_run, admit=False)
        named = (call.body.get("metadata") or {}).get("name") or change.name
        if named != change.name:
            raise bad_request(f"name in URL does not match name in Eviction object: {change.name} != {named}")
        writer = self._writer
        pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
        if self._period and not _is_free(pod):
            await asyncio.sleep(self._period - asyncio.get_running_loop().time() % self._period)
            pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
        uid = (options.get("preconditions") or {}).get("uid")
        check_preconditions(change.resource, pod, {"preconditions": {"uid": uid}})
        budget = self._budget_to_spend(pod)
        if budget is not None:
            name = budget["metadata"]["name"]
            spending = replace(change, resource=_BUDGETS, name=name, subresource="status", options={})
            await writer.update(spending, lambda current: _spent(current, change.name))
        if not pod["metadata"].get("deletionTimestamp"):
            why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
            marking = replace(change, subresource="status", options={})
            await writer.update(marking, lambda current: set_condition(current, "DisruptionTarget", "True", **why))
        await writer.delete(change)
        return 201, success(201)

    def _budget_to_spend(self, pod: Object) -> Object | None:
        """The budget that must have a disruption left; None if the eviction costs none."""
        if _is_free(pod):
            return None
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            budget
            for budget in self._read.all("poddisruptionbudgets", pod["metadata"]["namespace"])
            if (selector := budget["spec"].get("selector")) is not None
            and label_matcher(msgspec.convert(selector, LabelSelector))(labels)
        ]
        if len(budgets) > 1:
            raise failure(500, "", _SEVERAL)
        conditions = (pod.get("status") or {}).get("conditions") or ()
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        if not budgets:
            return None
        spec, status = budgets[0]["spec"], budgets[0].get("status") or {}
        enough = 0 < int(status.get("desiredHealthy", 0)) <= int(status.get("currentHealthy", 0))
        if not ready and (enough or spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"):
            return None
        return budgets[0]


def budget_condition(status: Object, generation: int, now: str) -> Object:
    """The condition DisruptionAllowed for a budget's status, its transition time kept while it stays the same."""
    allowed = status["disruptionsAllowed"] > 0
    known: Object = next((one for one in status.get("conditions") or () if one["type"] == "DisruptionAllowed"), {})
    value = "True" if allowed else "False"
    return {
        "type": "DisruptionAllowed",
        "status": value,
        "observedGeneration": generation,
        "lastTransitionTime": known["lastTransitionTime"] if known.get("status") == value else now,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }


def _spent(budget: Object, pod: str) -> Object:
    """The budget after the eviction of a pod. Raises StatusError: 429 or 403 if it has no disruption left."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    generation, allowed = budget["metadata"].get("generation", 0), status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < generation:
        raise _blocked(f"The disruption budget {name} is still being processed by the server.", _PROCESSING_SECONDS)
    if allowed < 0:
        raise forbidden(_BUDGETS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MOST_UNCONFIRMED:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(_BUDGETS, name, text)
    if allowed == 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _blocked(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
    now = rfc3339(time.time())
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    if allowed == 1:
        status["conditions"] = [budget_condition(status, generation, now)]
    return budget


def _blocked(why: str, retry_after: int | None = None) -> StatusError:
    return too_many_requests(_BLOCKED, [{"reason": "DisruptionBudget", "message": why}], retry_after)


def _is_free(pod: Object) -> bool:
    """Whether evicting the pod asks no budget: it is leaving already, or does not run."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in ("Pending", "Succeeded", "Failed")
