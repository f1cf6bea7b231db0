"""Whether this cluster's scheduler keeps a nomination that it did not make (docs/kubernetes-behaviour.md K8, K12).

A tiny pod that fits nowhere is nominated while a scheduling gate holds it back. Then the gate is taken away, the
scheduler tries the pod and fails, and the pod shows what became of the nomination. Nothing is ever started, evicted or
bound. Pod and PriorityClass are deleted however this ends; what a killed process left behind goes at the next run.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from typing import Any

from webhook.inspection.cluster_findings import ClusterFinding, finding
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import epoch
from webhook.kube.resources import NODE, POD, PRIORITY_CLASS

LABEL = "giveway.dev/canary"
"""On the pod and its class, with a value that no other canary has; also the gate's name, and a label no node has."""
_VALUE = -1000
"""Below the cutoff (-10) from which on Cluster Autoscaler adds no node for a pod."""
_USABLE, _TRIED, _SETTLED = 15.0, 60.0, 3.0
"""Seconds until a new class can be used, until a scheduler has tried a pod, and for which the nomination must stay."""
_LEFT_BEHIND = 600.0
_POLL = 0.2
Json = dict[str, Any]


class CanaryError(Exception):
    """The canary could not be deleted; the text says how to do it by hand."""


async def examine_nominations(client: Client, namespace: str) -> list[ClusterFinding]:
    """Nominate a pod of our own for some seconds, and say what the scheduler did with the nomination.

    An empty list means that it was kept. Raises CanaryError if something could not be deleted.
    """
    pods, classes = POD.path(namespace), PRIORITY_CLASS.path()
    try:
        page = await anext(aiter(client.pages(NODE.path(), dict, limit=1)))
        if not page.items:
            return [finding("canary.unknown", reason="the cluster has no node to nominate the pod to")]
        # What a process that was killed left behind
        for collection in (pods, classes):
            left_over, _ = await client.list(collection, labelSelector=LABEL)
            for obj in left_over:
                if time.time() - epoch(obj["metadata"]["creationTimestamp"]) > _LEFT_BEHIND:
                    await _remove(client, [f"{collection}/{obj['metadata']['name']}"])
        name = f"giveway-canary-{secrets.token_hex(4)}"
        own_class = {
            "metadata": {"name": name, "labels": {LABEL: name}},
            "value": _VALUE,
            "preemptionPolicy": "Never",
            "description": "giveway doctor --canary uses it for some seconds",
        }
        try:
            await client.create(classes, own_class)
            await _create_pod(client, pods, name)
            return await _watch_nomination(client, f"{pods}/{name}", page.items[0]["metadata"]["name"])
        finally:
            await _remove(client, (f"{pods}/{name}", f"{classes}/{name}"))
    except ApiError as error:
        return [finding("canary.unknown", reason=f"pod or PriorityClass could not be made or watched: {error.message}")]


async def _create_pod(client: Client, pods: str, name: str) -> None:
    """Create a pod for no node, within the Pod Security Standard "restricted", whose image is never pulled.

    The API server needs a moment to know the class (docs/kubernetes-behaviour.md K21).
    """
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {
            "priorityClassName": name,
            "nodeSelector": {LABEL: name},
            "schedulingGates": [{"name": LABEL}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{"name": "canary", "image": "registry.k8s.io/pause:3.10", "securityContext": confined}],
        },
    }
    end = time.monotonic() + _USABLE
    while True:
        try:
            await client.create(pods, pod)
        except ApiError as error:
            if error.status != 403 or "PriorityClass" not in error.message or time.monotonic() > end:
                raise
            await asyncio.sleep(_POLL)
        else:
            return


async def _watch_nomination(client: Client, path: str, node: str) -> list[ClusterFinding]:
    """Nominate the pod, let the scheduler try it, and say what became of the nomination."""
    by_others = "a nomination by somebody else than its scheduler"
    try:
        nominated = await client.patch(f"{path}/status", {"status": {"nominatedNodeName": node}})
    except ApiError as error:
        return [finding("canary.refused", what=f"The cluster refuses {by_others}: {error.message}.")]
    if not _nomination(nominated):
        return [finding("canary.refused", what=f"The API server accepts {by_others}, and drops it.")]
    await client.patch(path, {"spec": {"schedulingGates": None}})
    end = time.monotonic() + _TRIED
    while True:
        conditions = (await client.get(path)).get("status", {}).get("conditions") or ()
        if any((row["type"], row.get("reason")) == ("PodScheduled", "Unschedulable") for row in conditions):
            break
        if time.monotonic() > end:
            return [finding("canary.unknown", reason=f"no scheduler tried the pod within {_TRIED:.0f} s")]
        await asyncio.sleep(_POLL)
    await asyncio.sleep(_SETTLED)
    if _nomination(await client.get(path)):
        return []
    return [finding("canary.cleared")]


async def _remove(client: Client, paths: Iterable[str]) -> None:
    """Delete these; what is not there is as good as deleted. Each is tried, whatever becomes of the others."""
    failed: list[str] = []
    for path in paths:
        for tries_left in (2, 1, 0):
            try:
                await unless_absent(client.delete(path, {"gracePeriodSeconds": 0}))
                break
            except ApiError as error:
                failed += [] if tries_left else [f"{path}: {error}"]
                await asyncio.sleep(_POLL)
    if failed:
        raise CanaryError(
            f"could not delete {'; '.join(failed)}. Delete it yourself:"
            f" kubectl delete pods,priorityclasses -A -l {LABEL}"
        )


def _nomination(pod: Json) -> str:
    return str(pod.get("status", {}).get("nominatedNodeName") or "")
