"""The `scale` sub-resource: `autoscaling/v1` Scale of what has replicas."""

from __future__ import annotations

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.calls import ApiCall, Object, WriteRequest
from webhook.embedded.schema import schemas
from webhook.embedded.server import decoding, patching
from webhook.embedded.server.writing import ObjectWriter

__all__ = ["rescale", "scale_of"]

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object) -> Object:
    """The Scale of a workload."""
    metadata = {key: obj["metadata"][key] for key in _KEPT if key in obj["metadata"]}
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


async def rescale(writer: ObjectWriter, call: ApiCall, change: WriteRequest) -> Object:
    """Replace or patch the Scale and so the workload's replicas; the new Scale."""

    def mutation(current: Object) -> Object:
        if call.method == "PUT":
            wanted = decoding.decode_any(call)
        else:
            wanted = patching.patched(call, schemas.of_model("V1Scale"))(scale_of(current))
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            cause = statuses.Cause("spec.replicas", "FieldValueInvalid", text)
            raise statuses.invalid(change.resource, change.name, [cause], kind="Scale")
        current["spec"]["replicas"] = replicas
        current["metadata"]["resourceVersion"] = wanted.get("metadata", {}).get("resourceVersion")
        return current

    record = await writer.update(change, mutation)
    return scale_of(record.object(change.resource))
