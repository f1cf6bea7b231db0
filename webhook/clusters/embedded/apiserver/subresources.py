"""Sub-resources with objects of their own: `binding` gives a pod its node, `scale` a workload its replicas.

`binding` mirrors `registry/core/pod/storage`; `scale` is `autoscaling/v1` Scale of what has replicas.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from webhook.clusters.embedded.apiserver import decoding
from webhook.clusters.embedded.apiserver.writing import ObjectWriter
from webhook.clusters.embedded.merging import managed_fields
from webhook.clusters.embedded.object_types import fields, schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_URL, Object
from webhook.clusters.embedded.protocol.calls import ApiCall, WriteRequest
from webhook.kube.instants import rfc3339

_PODS = BY_URL["/api/v1", "pods"]
_IN_SCALE = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def set_condition(obj: Object, kind: str, status: str, **more: Any) -> Object:
    """Set a condition in a pod, which is returned; its transition time changes with its status only."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    before = next((row for row in conditions if row.get("type") == kind), None)
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, **more}
    if before is not None and before.get("status") == status:
        condition["lastTransitionTime"] = before.get("lastTransitionTime")
    else:
        condition["lastTransitionTime"] = rfc3339(time.time())
    if before is None:
        conditions.append(condition)
    else:
        conditions[conditions.index(before)] = condition
    return obj


async def bind(writer: ObjectWriter, asked: WriteRequest) -> tuple[int, Object]:
    """Assign the pod to `target`. Raises StatusError: 409 for a pod that has a node, is leaving or is another one."""
    body = asked.object or {}
    name = asked.name or str(body["metadata"].get("name", ""))
    target = body.get("target") or {}
    if target.get("kind", "Node") != "Node" or not target.get("name"):
        cause = statuses.Cause("target.name", "FieldValueRequired", "Required value")
        raise statuses.invalid(_PODS, name, [cause], kind="Binding")
    change = replace(asked, resource=_PODS, name=name, subresource="binding", admit=False)

    def assign(pod: Object) -> Object:
        metadata, spec, wanted = pod["metadata"], pod["spec"], body["metadata"].get("uid")
        why = ""
        if wanted and wanted != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
        elif metadata.get("deletionTimestamp"):
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
        set_condition(pod, "PodScheduled", "True")
        pod["status"].pop("nominatedNodeName", None)
        return pod

    await writer.update(change, assign, managed_fields.kept)
    return 201, statuses.success(201)


async def scale(writer: ObjectWriter, call: ApiCall, verb: str, change: WriteRequest) -> Object:
    """Read, replace or patch the Scale, and so the workload's replicas; the Scale afterwards. Raises StatusError."""
    if verb == "get":
        return _scale_of(writer.read(change.resource, change.namespace, change.name).object(change.resource))
    if verb not in ("update", "patch"):
        raise statuses.method_not_allowed()

    def mutation(current: Object) -> Object:
        if verb == "update":
            wanted = decoding.decode_any(call)
        else:
            wanted = decoding.patched(call, schemas.of_model("V1Scale"))(_scale_of(current))
        fields.settle(schemas.of_model("V1Scale"), wanted)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            cause = statuses.Cause("spec.replicas", "FieldValueInvalid", text)
            raise statuses.invalid(change.resource, change.name, [cause], kind="Scale")
        current["spec"]["replicas"] = replicas
        current["metadata"]["resourceVersion"] = wanted.get("metadata", {}).get("resourceVersion")
        return current

    record = await writer.update(change, mutation)
    return _scale_of(record.object(change.resource))


def _scale_of(obj: Object) -> Object:
    """The Scale of a workload."""
    metadata = {key: obj["metadata"][key] for key in _IN_SCALE if key in obj["metadata"]}
    selector = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        },
    }
