"""`giveway uninstall`: take giveway out in the order in which no pod is refused and no reservation stays behind.

First the webhook configurations and the bindings of native policies go, so that nothing is refused any more. Then the
Deployments, so that nobody writes. Then plans and nominations are taken off the pods that have them. Then everything
else, the namespace last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from webhook.component_base.own_names import RECONCILER
from webhook.installation.applier import INVENTORY, Key, ObjectApplier, key_of, ordered, refuses, within
from webhook.installation.install import made_by_webhook
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.resources import LEASE, POD
from webhook.policy.model.values import NOTICE, PLAN, POD_ANNOTATIONS
from webhook.reconciler.plans.eviction_store import evictions_lease
from webhook.reconciler.state.notices import withdrawn_condition

Json = dict[str, Any]

_RUNNING = ("Deployment", "CronJob")
_LABEL = "app.kubernetes.io/name"


async def keys_to_remove(cluster: ObjectApplier, rendered: Sequence[Json]) -> list[Key]:
    """What is there of the manifests with all components, of earlier installations, and of what giveway made itself.

    In the order of removal, the namespace last, if nobody else has pods in it.
    """
    own, known = cluster.namespace, [key_of(obj) for obj in ordered(rendered)]
    known += made_by_webhook(own)
    known.append(Key("v1", "ConfigMap", own, INVENTORY))
    known += [Key(LEASE.api_version, "Lease", own, name) for name in (RECONCILER, evictions_lease(RECONCILER))]
    # Whoever may write ConfigMaps there can list anything: only what an installation really applied is believed.
    known += [key for key in await cluster.inventory() if key not in known and await cluster.is_ours(key)]
    known += await cluster.native_policies()
    present = [key for key in dict.fromkeys(known) if await cluster.get(key) is not None]

    def place(key: Key) -> int:
        if refuses(key.kind):
            return 0
        return 1 if key.kind in _RUNNING else 3 if key.kind == "Namespace" else 2

    # With somebody else's pods in it, the namespace is not giveway's to delete.
    others = not await cluster.has_no_pods(f"{_LABEL}!=giveway")
    return sorted((key for key in present if not (others and key.kind == "Namespace")), key=place)


async def remove(cluster: ObjectApplier, keys: Sequence[Key], told: Callable[[str], None], seconds: float) -> list[str]:
    """Remove these, wait until they are gone, and say what is left; empty if nothing is. Raises ApiError."""
    end = time.monotonic() + seconds

    def gone(key: Key, _: str) -> None:
        told(f"{key} deleted")

    first = [key for key in keys if refuses(key.kind)] + [key for key in keys if key.kind in _RUNNING]
    await cluster.delete(first, gone)
    if not await within(seconds, lambda: cluster.has_no_pods(f"{_LABEL}=giveway")):
        told("some of giveway's pods still end; going on")
    plans, notices = await _take_plans_off(cluster.client)
    if plans:
        told(f"took the plan off {plans} pods that giveway wanted to make room for")
    if notices:
        told(f"took the notice off {notices} pods that giveway wanted to evict")
    await cluster.delete((key for key in keys if key not in first), gone)
    left: list[Key] = []

    async def all_gone() -> bool:
        left[:] = [key for key in keys if await cluster.get(key) is not None]
        return not left

    await within(end - time.monotonic(), all_gone)
    return [str(key) for key in left]


async def _take_plans_off(client: Client) -> tuple[int, int]:
    """Clear plans, nominations and notices: nobody else clears a nomination (docs/kubernetes-behaviour.md K11).

    So go records of what pods said: nobody guards them any more, and giveway would believe them if it came back.

    Returns from how many pods a plan was taken, and from how many a notice.
    """
    plans = notices = 0
    async for page in client.pages(POD.path(), dict, resume=True):
        for pod in page.items or ():
            annotations = pod["metadata"].get("annotations") or {}
            off = [row for row in POD_ANNOTATIONS if row.goes and row.key in annotations]
            if all(row.by == "pod" for row in off):
                continue  # nothing, or an answer to nothing, which is the pod's
            status: dict[str, Any] = {"nominatedNodeName": None} if PLAN in annotations else {}
            if NOTICE in annotations:
                status["conditions"] = [withdrawn_condition(time.time())]
            metadata, taken = pod["metadata"], dict.fromkeys(row.key for row in off)
            body = {"metadata": {"uid": metadata["uid"], "annotations": taken}, "status": status}
            path = POD.path(metadata["namespace"], metadata["name"], "status")
            # It may be gone by now, or be another one
            if await unless_absent(client.patch(path, body, kind="strategic"), 404, 409) is not None:
                plans += PLAN in annotations
                notices += NOTICE in annotations
    return plans, notices
