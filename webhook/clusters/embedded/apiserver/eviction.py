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

from webhook.clusters.embedded.apiserver.strategy import check_preconditions
from webhook.clusters.embedded.apiserver.subresources import set_condition
from webhook.clusters.embedded.apiserver.writing import ObjectWriter
from webhook.clusters.embedded.protocol.api_resources import BY_URL, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import bad_request, failure, forbidden, success, too_many_requests
from webhook.clusters.embedded.storage.object_store import StoreReader
from webhook.clusters.model.disruption import (
    BLOCKED,
    BudgetRefusalError,
    asks_no_budget,
    budget_to_spend,
    spent,
    written,
)
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.selectors import label_matcher

PROGRESS_PERIOD = 0.1
"""Seconds between two progress notices of a real API server's watch cache."""

_BUDGETS = BY_URL["/apis/policy/v1", "poddisruptionbudgets"]


class Evictor:
    """The handler of `pods/eviction`; `read` looks up the budgets, `writer` spends them."""

    def __init__(self, read: StoreReader, writer: ObjectWriter) -> None:
        self._read = read
        self._writer = writer

    async def __call__(self, asked: WriteRequest) -> tuple[int, Object]:
        """Evict. Raises StatusError: 404, 409 (precondition), 429 (budget) or 500 (several budgets)."""
        body = asked.object or {}
        options = dict(body.get("deleteOptions") or {})
        dry_run = asked.dry_run or "All" in (options.get("dryRun") or ())
        change = replace(asked, subresource="", options=options, dry_run=dry_run, admit=False)
        named = (body.get("metadata") or {}).get("name") or change.name
        if named != change.name:
            raise bad_request(f"name in URL does not match name in Eviction object: {change.name} != {named}")
        writer = self._writer
        pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
        if not asks_no_budget(msgspec.convert(pod, Pod)):
            await asyncio.sleep(PROGRESS_PERIOD - asyncio.get_running_loop().time() % PROGRESS_PERIOD)
            pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
        known = options.get("preconditions") or {}
        check_preconditions(change.resource, pod, {"preconditions": {"uid": known.get("uid")}})
        if name := self._budget_to_spend(pod):
            spending = replace(change, resource=_BUDGETS, name=name, subresource="status", options={})
            await writer.update(spending, lambda current: _spent(current, change.name))
        if not pod["metadata"].get("deletionTimestamp"):
            why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
            marking = replace(change, subresource="status", options={})

            def mark(current: Object) -> Object:
                check_preconditions(change.resource, current, {"preconditions": known})
                return set_condition(current, "DisruptionTarget", "True", **why)

            await writer.update(marking, mark)
            options["preconditions"] = {key: value for key, value in known.items() if key != "resourceVersion"}
        await writer.delete(replace(change, options=options))
        return 201, success(201)

    def _budget_to_spend(self, pod: Object) -> str:
        """The name of the budget that must have a disruption left; empty if the eviction costs none."""
        labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
        budgets = [
            msgspec.convert(budget, PodDisruptionBudget)
            for budget in self._read.all("poddisruptionbudgets", namespace)
            if (selector := budget["spec"].get("selector")) is not None
            and label_matcher(msgspec.convert(selector, LabelSelector))(labels)
        ]
        try:
            budget = budget_to_spend(msgspec.convert(pod, Pod), budgets)
        except BudgetRefusalError as refusal:
            raise failure(refusal.code, "", refusal.text) from refusal
        return budget.metadata.name if budget is not None else ""


def _spent(budget: Object, pod: str) -> Object:
    """The budget after the eviction of a pod. Raises StatusError: 429 or 403 if it has no disruption left."""
    known = msgspec.convert(budget, PodDisruptionBudget)
    try:
        status = spent(known, pod, time.time())
    except BudgetRefusalError as refusal:
        if refusal.code == 403:
            raise forbidden(_BUDGETS, known.metadata.name, refusal.text) from refusal
        causes = [{"reason": "DisruptionBudget", "message": refusal.text}]
        raise too_many_requests(BLOCKED, causes, refusal.retry_after) from refusal
    fields = written(status, rfc3339(time.time()))
    if status.disruptions_allowed:
        del fields["conditions"]  # they say the same still
    return {**budget, "status": (budget.get("status") or {}) | fields}
