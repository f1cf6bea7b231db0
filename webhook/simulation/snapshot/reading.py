"""Files to the objects of a cluster: snapshots, and what `kubectl get -o json` prints, packed or not."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from webhook.kube.instants import epoch
from webhook.kube.objects import ObjectMeta, Pod
from webhook.kube.objects.sharing import SharedPods
from webhook.simulation.snapshot.format import (
    Header,
    LongLineError,
    SnapshotError,
    check_size,
    is_header,
    next_line,
    objects_in,
)
from webhook.simulation.snapshot.objects import BY_KIND, KINDS, ClusterObjects, Kind
from webhook.simulation.snapshot.redacting import redact

__all__ = ["is_snapshot", "read_cluster"]

_CHUNK = 16 << 20
_GZIP = b"\x1f\x8b"


def is_snapshot(path: Path) -> bool:
    """Whether a file is a snapshot, or anything else that is packed: not one cluster a line."""
    with path.open("rb") as stream:
        begins = stream.read(1 << 12)
    return begins.startswith(_GZIP) or is_header(begins)


class _Item(msgspec.Struct, rename="camel"):
    """As much of an object as tells what it is; a list has `items`."""

    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    items: list[msgspec.Raw] | None = None


_ITEM = msgspec.json.Decoder(_Item)


Tell = Callable[[int, int], None]


def _silent(_done: int, _total: int) -> None:
    """Nobody watches."""


def read_cluster(paths: Iterable[Path], tell: Tell = _silent) -> ClusterObjects:
    """The cluster in these files: one snapshot, or lists of kubectl.

    `tell` gets how many bytes of how many have been read, packed. Raises SnapshotError.
    """
    files = list(paths)
    found = ClusterObjects(time.time())
    share, snapshots = SharedPods(), 0
    for path in files:
        try:
            with path.open("rb") as raw:
                snapshots += _read(raw, path, found, share, tell)
        except (IsADirectoryError, PermissionError, FileNotFoundError) as error:
            raise SnapshotError(f"{path}: {error.strerror}") from error
    if snapshots and len(files) > 1:
        raise SnapshotError(f"{files[0]}: a snapshot is a whole cluster by itself; name one, or only lists of kubectl")
    missing = [kind.resource.plural for kind in KINDS if kind.needed and not found.of(kind.name) and kind.name != "Pod"]
    if "nodes" in missing:
        raise SnapshotError(
            f"{', '.join(map(str, files))}: no nodes, so nothing can be placed; "
            "`giveway snapshot FILE` writes everything that is needed"
        )
    return found


def _read(raw: IO[bytes], path: Path, found: ClusterObjects, share: SharedPods, tell: Tell) -> bool:
    """Read one file; whether it is a snapshot."""
    name, size = str(path), path.stat().st_size
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if packed else raw)
    first = _first_line(stream, name)
    if not first.strip():
        raise SnapshotError(f"{name} is empty")
    if not is_header(first):
        _read_lists(stream, name, first, size if packed else 0, found, share)
        return False
    for item in objects_in(stream, name, first, size if packed else 0, lambda: tell(raw.tell(), size)):
        if isinstance(item, Header):
            found.taken_at, found.annotations = epoch(item.taken_at), frozenset(item.annotations)
            found.absent, found.anonymized = item.absent, item.anonymized
        else:
            found.add(item[0], share(item[1]) if isinstance(item[1], Pod) else item[1])
    return True


def _first_line(stream: IO[bytes], name: str) -> bytes:
    try:
        return next_line(stream, name)
    except LongLineError:
        # one long line is what `kubectl get -o json | jq -c .` prints
        stream.seek(0)
        return stream.read(1 << 20)


def _read_lists(  # noqa: PLR0917 - one caller
    stream: IO[bytes], name: str, first: bytes, packed: int, found: ClusterObjects, share: SharedPods
) -> None:
    """Take the objects of a List, or a single object. Those of kinds that decide nothing are passed over."""
    text = bytearray(first)
    try:
        while chunk := stream.read(_CHUNK):
            text += chunk
            check_size(name, len(text), packed)
    except (EOFError, OSError, zlib.error) as error:
        raise SnapshotError(f"{name} is damaged: {error}") from None
    _take(name, text, "", found, share)


def _take(name: str, text: Any, kind: str, found: ClusterObjects, share: SharedPods) -> None:
    try:
        item = _ITEM.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(
            f"{name} is neither a snapshot nor a list as `kubectl get -o json` prints it: {error}"
        ) from None
    kind = item.kind or kind
    if item.items is not None:
        of = kind.removesuffix("List")
        for raw in item.items:
            _take(name, raw, of, found, share)
        return
    if kind in BY_KIND:
        found.add(BY_KIND[kind], _converted(name, BY_KIND[kind], text, share))
    elif not kind:
        raise SnapshotError(f"{name} is neither a snapshot nor a list as `kubectl get -o json` prints it: no kind")


def _converted(name: str, kind: Kind, text: Any, share: SharedPods) -> Any:
    try:
        item = msgspec.json.decode(text, type=kind.type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"{name}: a {kind.name} cannot be read: {error}") from None
    if not item.metadata.name:
        raise SnapshotError(f"{name}: a {kind.name} has no metadata.name")
    item = redact(item, item.metadata.annotations or {})
    return share(item) if isinstance(item, Pod) else item
