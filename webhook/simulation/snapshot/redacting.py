"""What of an object is written down: what decides. Images, messages and most annotations are no part of that.

Commands, arguments and the environment are not even decoded (`webhook.kube.objects`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from webhook.kube.objects import (
    Condition,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PriorityClass,
    Volume,
)
from webhook.simulation.snapshot.objects import SnapshotWorkload

__all__ = ["redact"]

_CONDITIONS = frozenset({"Ready", "PodScheduled", "DisruptionTarget", "PodResizePending"})


def redact(item: Any, annotations: Collection[str]) -> Any:
    """The object without what does not decide; it is changed in place. Only these annotations stay."""
    meta: ObjectMeta = item.metadata
    meta.annotations = _kept(meta, annotations)
    match item:
        case Pod():
            _strip(item.spec)
            # Of a condition that decides all but its message, of any other no more than that there is one
            item.status.conditions = [
                msgspec.structs.replace(one, message="")
                if one.type in _CONDITIONS
                else Condition(type=one.type, status=one.status)
                for one in item.status.conditions or ()
            ] or None
        case Node():
            item.status.conditions = item.status.capacity = None
        case PriorityClass():
            item.description = ""
        case PersistentVolume() | PersistentVolumeClaim():
            status = item.status or {}
            item.status = {key: status[key] for key in ("phase", "capacity") if key in status} or None
        case SnapshotWorkload(spec=spec, status=told) if spec.template is not None:
            told.conditions = [{key: one.get(key) for key in ("type", "status")} for one in told.conditions or ()]
            spec.template.metadata.annotations = _kept(spec.template.metadata, annotations)
            _strip(spec.template.spec)
    return item


def _kept(meta: ObjectMeta, annotations: Collection[str]) -> dict[str, str] | None:
    return {key: text for key, text in (meta.annotations or {}).items() if key in annotations} or None


def _strip(spec: PodSpec) -> None:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        container.image = ""
        container.ports = [port for port in container.ports or () if port.host_port] or None
    volumes = [one for one in spec.volumes or () if one != Volume(name=one.name)]
    for volume in volumes:
        if volume.ephemeral is not None:
            volume.ephemeral = {}
    spec.volumes = volumes or None
