"""Sub-resources with objects of their own: `binding` gives a pod its node, `eviction` takes it away, `scale` scales.

The first two mirror `registry/core/pod/storage`; `scale` is `autoscaling/v1` Scale of what has replicas.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import msgspec

from webhook.clusters.embedded.apiserver.writing import ObjectWriter, check_preconditions
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.clusters.model.disruption import (
    BLOCKED,
    BudgetRefusalError,
    asks_no_budget,
    budget_to_spend,
    spent,
    written,
)
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.selectors import label_matcher

_PODS, _BUDGETS = BY_PLURAL["pods"], BY_PLURAL["poddisruptionbudgets"]
_IN_SCALE = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
PROGRESS_PERIOD = 0.1
"""Seconds between two progress notices of a real API server's watch cache (`storage/cacher/progress`).

kube-apiserver lists the budgets with a consistent read, which waits for the next one: evictions wait, they do not work.
"""


def set_condition(obj: Object, kind: str, status: str, **more: Any) -> Object:
    """Set a condition in a pod, which is returned; its transition time changes with its status only."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    before: Object = next((row for row in conditions if row.get("type") == kind), {})
    same = before.get("status") == status
    at = before.get("lastTransitionTime") if same else rfc3339(time.time())
    condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": at, **more}
    obj["status"]["conditions"] = [condition if row is before else row for row in conditions]
    if not before:
        obj["status"]["conditions"].append(condition)
    return obj


async def bind(writer: ObjectWriter, asked: WriteRequest) -> tuple[int, Object]:
    """Assign the pod to `target`. Raises StatusError: 409 for a pod that has a node, is leaving or is another one."""
    body = asked.object or {}
    name = asked.name or str(body["metadata"].get("name", ""))
    target = body.get("target") or {}
    if (kind := target.get("kind") or "Node") != "Node":
        text = f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        raise statuses.failure(500, "", text)
    if not target.get("name"):
        raise statuses.failure(500, "", "target.name: Required value")
    change = replace(asked, resource=_PODS, name=name, subresource="binding", admit=False)

    def assign(pod: Object) -> Object:
        metadata, spec, wanted = pod["metadata"], pod["spec"], body["metadata"].get("uid")
        why = ""
        if wanted and wanted != metadata["uid"]:
            raise statuses.another_uid(_PODS, metadata, wanted)
        if metadata.get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise statuses.conflict(_PODS, name, why, "binding")
        spec["nodeName"] = target["name"]
        for key in ("labels", "annotations"):
            if body["metadata"].get(key):
                metadata[key] = {**(metadata.get(key) or {}), **body["metadata"][key]}
        pod["status"].pop("nominatedNodeName", None)
        return set_condition(pod, "PodScheduled", "True")

    await writer.update(change, assign, None)
    return 201, statuses.success(201)


def scale_of(obj: Object) -> Object:
    """The Scale of a workload."""
    selector = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _IN_SCALE if key in obj["metadata"]},
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        },
    }


def scaled(obj: Object, scale: Object) -> Object:
    """The workload with the replicas of a Scale. Raises StatusError (400, 422)."""
    schemas.settle(schemas.of_model("V1Scale"), scale)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        cause = statuses.Cause.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise statuses.invalid("autoscaling", "Scale", obj["metadata"]["name"], cause)
    obj["spec"]["replicas"] = replicas
    obj["metadata"]["resourceVersion"] = (scale.get("metadata") or {}).get("resourceVersion")
    return obj


async def evict(writer: ObjectWriter, asked: WriteRequest) -> tuple[int, Object]:
    """Remove a pod if its budget allows it, checked and counted in one step.

    From reading the budget to deleting the pod no other request has its turn, so two evictions never spend the same
    disruption. Raises StatusError: 404, 409 (precondition), 429 (budget) or 500 (several budgets).
    """
    body = asked.object or {}
    options = dict(body.get("deleteOptions") or {})
    dry_run = asked.dry_run or "All" in (options.get("dryRun") or ())
    change = replace(asked, subresource="", options=options, dry_run=dry_run, admit=False, manager="kube-apiserver")
    pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
    if not asks_no_budget(msgspec.convert(pod, Pod)):
        await asyncio.sleep(PROGRESS_PERIOD - asyncio.get_running_loop().time() % PROGRESS_PERIOD)
        pod = writer.read(change.resource, change.namespace, change.name).object(change.resource)
    known = options.get("preconditions") or {}
    check_preconditions(change.resource, pod, {"preconditions": {"uid": known.get("uid")}})
    if name := _budget_to_spend(writer.store, pod):
        spending = replace(change, resource=_BUDGETS, name=name, subresource="status", options={})
        await writer.update(spending, lambda current: _spent(current, change.name))
    if not pod["metadata"].get("deletionTimestamp"):
        why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}

        def mark(current: Object) -> Object:
            check_preconditions(change.resource, current, {"preconditions": known})
            return set_condition(current, "DisruptionTarget", "True", **why)

        await writer.update(replace(change, subresource="status", options={}), mark, None)
        options["preconditions"] = {key: value for key, value in known.items() if key != "resourceVersion"}
    await writer.delete(replace(change, options=options))
    return 201, statuses.success(201)


def _budget_to_spend(store: ObjectStore, pod: Object) -> str:
    """The name of the budget that must have a disruption left; empty if the eviction costs none."""
    labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
    known = msgspec.convert(store.all("poddisruptionbudgets", namespace), list[PodDisruptionBudget])
    covering = [row for row in known if label_matcher(row.spec.selector)(labels)]
    try:
        budget = budget_to_spend(msgspec.convert(pod, Pod), covering)
    except BudgetRefusalError as refusal:
        raise statuses.failure(refusal.code, "", refusal.text) from refusal
    return budget.metadata.name if budget is not None else ""


def _spent(budget: Object, pod: str) -> Object:
    """The budget after the eviction of a pod. Raises StatusError: 429 or 403 if it has no disruption left."""
    known = msgspec.convert(budget, PodDisruptionBudget)
    try:
        status = spent(known, pod, time.time())
    except BudgetRefusalError as refusal:
        if refusal.code == 403:
            raise statuses.forbidden(_BUDGETS.group, _BUDGETS.plural, known.metadata.name, refusal.text) from refusal
        details: Object = {"causes": [{"reason": "DisruptionBudget", "message": refusal.text}]}
        if refusal.retry_after is not None:
            details["retryAfterSeconds"] = refusal.retry_after
        raise statuses.failure(429, "TooManyRequests", BLOCKED, details) from refusal
    fields = written(status, rfc3339(time.time()))
    if status.disruptions_allowed:
        del fields["conditions"]  # they say the same still
    return {**budget, "status": (budget.get("status") or {}) | fields}
