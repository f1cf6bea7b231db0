"""Clusters as JSON, one a line, to snapshots: every object checked, and what is wrong said with its place."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

import msgspec

from webhook.kube.instants import InstantError, epoch
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES, PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.snapshot import Snapshot

T = TypeVar("T")
Raws = list[msgspec.Raw] | None
_NEEDED = (NODES, PODS)


class _Line(msgspec.Struct, kw_only=True):
    """What a line says beside its objects."""

    preemptor: msgspec.Raw
    name: Any = None
    now: float | str | None = None


Line: Any = msgspec.defstruct(
    "Line",
    [
        *((kind.field, Raws) for kind in _NEEDED),
        *((kind.field, Raws, None) for kind in SNAPSHOT_KINDS if kind not in _NEEDED),
    ],
    bases=(_Line,),
    kw_only=True,
)
"""A line as it is read first: a list for each kind of a snapshot. Its objects are decoded one by one, so that a large
cluster stays small."""


class Cluster(NamedTuple):
    """A line that could be read; `now` is in seconds since the epoch."""

    name: Any
    line: Any
    """A `Line`; None for a pod of a cluster file, which is taken by itself."""
    preemptor: Pod
    now: float


def decode(text: bytes) -> Cluster:
    """Read a line. Raises ClusterError with the place of what is wrong."""
    try:
        line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterError(f"not a cluster: {error}") from error
    preemptor, now = _object(line.preemptor, msgspec.json.Decoder(Pod), "preemptor"), line.now
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
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return f"line {number}"
    name = decoded.get("name") if isinstance(decoded, dict) else None
    return f"line {number}" if name is None else name


def take_snapshot(cluster: Cluster, annotations: Collection[str]) -> Snapshot:
    """Build the snapshot. Raises ClusterError for an object that cannot be read and for two of one name."""
    snapshot = Snapshot(annotations)
    line = cluster.line
    assert line is not None
    for kind in SNAPSHOT_KINDS:
        _take(getattr(line, kind.field), kind, snapshot)
    return snapshot


def _take(raws: Raws, kind: SnapshotKind, snapshot: Snapshot) -> None:
    """Take the objects of one kind into the snapshot."""
    decoder = msgspec.json.Decoder(kind.type_)
    seen: dict[str, int] = {}
    for number, raw in enumerate(raws or ()):
        place = f"{kind.field}[{number}]"
        item = _object(raw, decoder, place, namespaced=kind.resource.namespaced)
        key = key_of(item)
        if key in seen:
            raise ClusterError(f"{place}: {kind.field}[{seen[key]}] has the same name, {key}")
        seen[key] = number
        try:
            snapshot.put(kind, item)
        except ClusterError as error:
            raise ClusterError(f"{place}: {error}") from error


def _object(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T], place: str, *, namespaced: bool = True) -> T:
    """Decode one object; what has no name is an error, and a namespace that is left out is `default`."""
    try:
        decoded = decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterError(f"{place}: {error}") from error
    meta = decoded.metadata  # type: ignore[attr-defined]  # every kind decoded here has metadata
    if not meta.name:
        raise ClusterError(f"{place}: metadata.name is missing")
    if namespaced and not meta.namespace:
        meta.namespace = "default"
    return decoded
