"""The `binding` sub-resource: a scheduler gives a pod its node (`registry/core/pod/storage`)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from webhook.embedded.merging import ownership
from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import BY_URL
from webhook.embedded.protocol.calls import Object, SubresourceCall
from webhook.embedded.server.writing import ObjectWriter
from webhook.kube.instants import rfc3339

__all__ = ["bind", "set_condition"]


def set_condition(obj: Object, kind: str, status: str, **more: Any) -> None:
    """Set a pod's condition; its transition time changes with its status only."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    found = next((row for row in conditions if row.get("type") == kind), None)
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, **more}
    if found is not None and found.get("status") == status:
        condition["lastTransitionTime"] = found.get("lastTransitionTime")
    else:
        condition["lastTransitionTime"] = rfc3339(time.time())
    if found is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(found)] = condition


_PODS = BY_URL["/api/v1", "pods"]


async def bind(writer: ObjectWriter, call: SubresourceCall) -> tuple[int, Object]:
    """Assign the pod to `target`. Raises StatusError: 409 for a pod that has a node, is leaving or is another one."""
    body, name = call.body, call.change.name or str(call.body["metadata"].get("name", ""))
    target = body.get("target") or {}
    if target.get("kind", "Node") != "Node" or not target.get("name"):
        cause = statuses.Cause("target.name", "FieldValueRequired", "Required value")
        raise statuses.invalid(_PODS, name, [cause], kind="Binding")
    change = replace(call.change, resource=_PODS, name=name, subresource="binding", admit=False)

    def assign(pod: Object) -> Object:
        _check(pod, body)
        pod["spec"]["nodeName"] = target["name"]
        metadata = body["metadata"]
        for key in ("labels", "annotations"):
            if metadata.get(key):
                pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **metadata[key]}
        set_condition(pod, "PodScheduled", "True")
        pod["status"].pop("nominatedNodeName", None)
        return pod

    await writer.update(change, assign, ownership.kept)
    return 201, statuses.success(201)


def _check(pod: Object, body: Object) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    wanted = body["metadata"].get("uid")
    if wanted and wanted != pod["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {pod['metadata']['uid']}"
        raise statuses.conflict(_PODS, name, why, "binding")
    if pod["metadata"].get("deletionTimestamp"):
        raise statuses.conflict(_PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", "binding")
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise statuses.conflict(_PODS, name, why, "binding")
    if spec.get("schedulingGates"):
        raise statuses.conflict(_PODS, name, f"pod {name} has non-empty .spec.schedulingGates", "binding")
