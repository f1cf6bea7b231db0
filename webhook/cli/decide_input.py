"""Clusters as JSON, one a line, to snapshots: every object checked, and what is wrong said with its place."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

import msgspec

from webhook.kube.instants import InstantError, epoch
from webhook.kube.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
    key_of,
)
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["Cluster", "decode", "name_of", "take_snapshot"]

T = TypeVar("T")
Raws = list[msgspec.Raw] | None
_NAMESPACED = (Pod, PodDisruptionBudget, PersistentVolumeClaim)


class Line(msgspec.Struct, rename="camel"):
    """A line as it is read first: its objects are decoded one by one, so that a large cluster stays small."""

    nodes: Raws
    pods: Raws
    preemptor: msgspec.Raw
    name: Any = None
    now: float | str | None = None
    pod_disruption_budgets: Raws = None
    namespaces: Raws = None
    priority_classes: Raws = None
    persistent_volumes: Raws = None
    persistent_volume_claims: Raws = None
    storage_classes: Raws = None
    csi_nodes: Raws = None


class Cluster(NamedTuple):
    """A line that could be read; `now` is in seconds since the epoch."""

    name: Any
    line: Line | None
    """None for a pod of a snapshot, which is taken by itself."""
    preemptor: Pod
    now: float


def decode(text: bytes) -> Cluster:
    """Read a line. Raises ClusterError with the place of what is wrong."""
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterError(f"not a cluster: {error}") from error
    preemptor, now = _object(line.preemptor, Pod, "preemptor"), line.now
    if now is None:
        now = time.time()
    elif isinstance(now, str):
        try:
            now = epoch(now)
        except InstantError as error:
            raise ClusterError(f"now: {error}") from error
    elif not math.isfinite(now):
        raise ClusterError("now: expected seconds since the epoch or an RFC 3339 instant")
    return Cluster(line.name, line, preemptor, now)


def name_of(text: bytes, number: int) -> Any:
    """The name a line gives itself, even if the rest is wrong; else its number."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return f"line {number}"
    name = found.get("name") if isinstance(found, dict) else None
    return f"line {number}" if name is None else name


def take_snapshot(cluster: Cluster, annotations: Collection[str]) -> Snapshot:
    """Build the snapshot. Raises ClusterError for an object that cannot be read and for two of one name."""
    snapshot = Snapshot(annotations)
    line = cluster.line
    assert line is not None
    _each(line.namespaces, Namespace, "namespaces", snapshot.set_namespace)
    _each(line.priority_classes, PriorityClass, "priorityClasses", snapshot.set_priority_class)
    _each(line.storage_classes, StorageClass, "storageClasses", snapshot.set_storage_class)
    _each(line.csi_nodes, CSINode, "csiNodes", snapshot.set_csi_node)
    _each(line.persistent_volumes, PersistentVolume, "persistentVolumes", snapshot.set_persistent_volume)
    claims = "persistentVolumeClaims"
    _each(line.persistent_volume_claims, PersistentVolumeClaim, claims, snapshot.set_persistent_volume_claim)
    _each(line.pod_disruption_budgets, PodDisruptionBudget, "podDisruptionBudgets", snapshot.set_budget)
    _each(line.nodes, Node, "nodes", snapshot.set_node)
    _each(line.pods, Pod, "pods", snapshot.set_pod)
    return snapshot


def _each(raws: Raws, kind: type[T], field: str, put: Callable[[T], None]) -> None:
    decoder = msgspec.json.Decoder(kind)
    seen: dict[str, int] = {}
    for number, raw in enumerate(raws or ()):
        place = f"{field}[{number}]"
        found = _object(raw, kind, place, decoder)
        key = key_of(found)
        if key in seen:
            raise ClusterError(f"{place}: {field}[{seen[key]}] has the same name, {key}")
        seen[key] = number
        try:
            put(found)
        except ClusterError as error:
            raise ClusterError(f"{place}: {error}") from error


def _object(raw: msgspec.Raw, kind: type[T], place: str, decoder: msgspec.json.Decoder[T] | None = None) -> T:
    """Decode one object; what has no name is an error, and a namespace that is left out is `default`."""
    try:
        found = (decoder or msgspec.json.Decoder(kind)).decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterError(f"{place}: {error}") from error
    meta = found.metadata  # type: ignore[attr-defined]  # every kind decoded here has metadata
    if not meta.name:
        raise ClusterError(f"{place}: metadata.name is missing")
    if kind in _NAMESPACED and not meta.namespace:
        meta.namespace = "default"
    return found
