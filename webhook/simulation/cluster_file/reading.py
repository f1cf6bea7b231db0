"""Files to the objects of a cluster: cluster files, and what `kubectl get -o json` prints, packed or not."""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from webhook.clusters.simulated.objects import ClusterObjects, kind_of
from webhook.kube.instants import InstantError, epoch, rfc3339
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods
from webhook.policy.model.values import POD_CONDITIONS
from webhook.simulation.cluster_file.format import (
    ClusterFileError,
    Header,
    LongLineError,
    check_size,
    is_header,
    next_line,
    objects_in,
)
from webhook.simulation.cluster_file.redacting import redact

_HAPPENED = re.compile(
    rb'"(?:creationTimestamp|startTime|startedAt|lastTransitionTime|time)": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)'
)
"""When something happened to an object of a list; times to come, such as deletionTimestamp, are others."""
_CHUNK = 16 << 20
_GZIP = b"\x1f\x8b"


def is_cluster_file(path: Path) -> bool:
    """Whether this is a cluster file, or anything else that is packed: not one cluster a line."""
    with path.open("rb") as stream:
        begins = stream.read(1 << 12)
    return begins.startswith(_GZIP) or is_header(begins)


class _Item(msgspec.Struct, rename="camel"):
    """As much of an object as tells what it is; a list has `items`."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    items: list[msgspec.Raw] | None = None


_ITEM = msgspec.json.Decoder(_Item)


Tell = Callable[[int, int], None]


def read_cluster(paths: Iterable[Path], tell: Tell | None = None, *, now: float | None = None) -> ClusterObjects:
    """The cluster in these files: one cluster file, or lists of kubectl.

    It was taken at `now` (seconds since the epoch); without that when the cluster file says, or at the newest time in
    the lists. `tell` gets how many bytes of how many have been read, packed. Raises ClusterFileError.
    """
    files = list(paths)
    objects = ClusterObjects(0.0)
    share, whole = SharedPods(timed=POD_CONDITIONS), 0
    for path in files:
        try:
            with path.open("rb") as raw:
                whole += _read(raw, path, objects, share, tell)
        except (IsADirectoryError, PermissionError, FileNotFoundError) as error:
            raise ClusterFileError(f"{path}: {error.strerror}") from error
    if now is not None and now < objects.taken_at:
        raise ClusterFileError(
            f"{rfc3339(now)} is before what the files tell of, which goes to {rfc3339(objects.taken_at)}"
        )
    objects.taken_at = now if now is not None else objects.taken_at or time.time()
    if whole and len(files) > 1:
        raise ClusterFileError(
            f"{files[0]}: a snapshot is a whole cluster by itself; name one, or only lists of kubectl"
        )
    if not objects.of("Node"):
        raise ClusterFileError(
            f"{', '.join(map(str, files))}: no nodes, so nothing can be placed; "
            "`giveway snapshot FILE` writes everything that is needed"
        )
    return objects


def _read(raw: IO[bytes], path: Path, objects: ClusterObjects, share: SharedPods, tell: Tell | None) -> bool:
    """Read one file; whether it is a cluster file. Of a List, objects of kinds that decide nothing are passed over."""
    name, size = str(path), path.stat().st_size
    is_packed = raw.read(2) == _GZIP
    packed = size if is_packed else 0
    raw.seek(0)
    stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if is_packed else raw)
    try:
        first = next_line(stream, name)
    except LongLineError:
        # one long line is what `kubectl get -o json | jq -c .` prints
        stream.seek(0)
        first = stream.read(1 << 20)
    if not first.strip():
        raise ClusterFileError(f"{name} is empty")
    if is_header(first):
        for item in objects_in(stream, name, first, packed, lambda: tell(raw.tell(), size) if tell else None):
            if isinstance(item, Header):
                objects.taken_at, objects.annotations = epoch(item.taken_at), frozenset(item.annotations)
                objects.absent, objects.anonymized = item.absent, item.anonymized
            else:
                objects.add(item[0], share(item[1]) if isinstance(item[1], Pod) else item[1])
        return True
    text = bytearray(first)
    try:
        while chunk := stream.read(_CHUNK):
            text += chunk
            check_size(name, len(text), packed)
    except (EOFError, OSError, zlib.error) as error:
        raise ClusterFileError(f"{name} is damaged: {error}") from None
    _take(name, text, "", objects, share)
    # A list does not say when it was made: about when something last happened in it
    for happened in set(_HAPPENED.findall(text)):
        with suppress(InstantError):
            objects.taken_at = max(objects.taken_at, epoch(f"{happened.decode()}Z"))
    return False


def _take(name: str, text: Any, kind_name: str, objects: ClusterObjects, share: SharedPods) -> None:
    """Take an object, or those of a List; `kind_name` is what the List says of an object that does not say it."""
    try:
        item = _ITEM.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterFileError(
            f"{name} is neither a snapshot nor a list as `kubectl get -o json` prints it: {error}"
        ) from None
    kind_name = item.kind or kind_name
    if item.items is not None:
        for raw in item.items:
            _take(name, raw, kind_name.removesuffix("List"), objects, share)
        return
    if not kind_name:
        raise ClusterFileError(f"{name} is neither a snapshot nor a list as `kubectl get -o json` prints it: no kind")
    kind = kind_of(item.api_version if item.kind else "", kind_name)
    if kind is None:
        return
    try:
        obj = msgspec.json.decode(text, type=kind.type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterFileError(f"{name}: a {kind_name} cannot be read: {error}") from None
    if not obj.metadata.name:
        raise ClusterFileError(f"{name}: a {kind_name} has no metadata.name")
    obj = redact(obj, obj.metadata.annotations or {})
    objects.add(kind, share(obj) if isinstance(obj, Pod) else obj)
