"""The file: gzip of JSON lines. A header, one object a line (`["Pod",{...}]`), and a footer that says that it is whole.

    {"format":"giveway.dev/snapshot","version":1,"takenAt":"2026-01-01T00:00:00Z","annotations":[...],...}
    ["Node",{"metadata":{"name":"n1"},...}]
    {"objects":150321,"sha256":"..."}

`sha256` is that of all lines before it. It finds what was cut or changed by mistake; it is no signature.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from webhook.clusters.simulated.objects import BY_KIND, KINDS, ClusterObjects, Kind, kind_of
from webhook.inspection.reading import Progress, items_of
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import InstantError, epoch, rfc3339
from webhook.kube.objects.meta import KubeObject
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import is_terminal
from webhook.policy.model.values import POD_CONDITIONS
from webhook.simulation.cluster_file.redacting import Anonymizer, redact

FORMAT = "giveway.dev/snapshot"
VERSION = 1
_LONGEST_LINE = 8 << 20
"""Bytes of one line: an object in etcd has 1.5 MB at most."""
_MOST_BYTES = 8 << 30
"""Bytes of a whole file when it is unpacked: some fifty times a cluster of 150 000 pods."""
_MOST_RATIO, _UNSUSPECTED = 300, 100 << 20
"""How many times a file may grow when it is unpacked, beyond this many bytes: clusters grow by ten to forty times."""
_LEVEL = 4
"""How hard gzip tries: more costs twice the time and saves a tenth."""


class ClusterFileError(Exception):
    """A file that cannot be used; the text names it and says in one sentence what is wrong."""


class Header(msgspec.Struct, rename="camel", kw_only=True):
    """The first line."""

    format: str
    version: int
    taken_at: str
    giveway: str = ""
    anonymized: bool = False
    annotations: list[str] = []
    absent: dict[str, str] = {}


class _Footer(msgspec.Struct, kw_only=True):
    objects: int
    sha256: str


_AGAIN = "take the snapshot again, or copy it again"
_NEITHER = "is neither a snapshot nor a list as `kubectl get -o json` prints it"
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LINE = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind.type) for name, kind in BY_KIND.items()
}


@contextmanager
def cluster_file(stream: IO[bytes], header: Header) -> Iterator[Callable[[Kind, Any], None]]:
    """Write a cluster file: what is given is called with each object. The file is whole if nothing is raised."""
    encode, total, objects = msgspec.json.Encoder().encode, hashlib.sha256(), 0

    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=_LEVEL, mtime=0) as packed:

        def line(content: Any) -> None:
            text = encode(content) + b"\n"
            total.update(text)
            packed.write(text)

        def add(kind: Kind, item: Any) -> None:
            nonlocal objects
            objects += 1
            line((kind.name, item))

        line(header)
        yield add
        line(_Footer(objects=objects, sha256=total.hexdigest()))


_HAPPENED = re.compile(
    rb'"(?:creationTimestamp|startTime|startedAt|lastTransitionTime|time)": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)'
)
"""When something happened to an object of a list; times to come, such as deletionTimestamp, are others."""
_BEGINS = b'{"format"'
"""How the first line of a cluster file begins, and of what was meant to be one."""
_CHUNK = 16 << 20
_GZIP = b"\x1f\x8b"


def is_cluster_file(path: Path) -> bool:
    """Whether this is a cluster file, or anything else that is packed: not one cluster a line."""
    with path.open("rb") as stream:
        begins = stream.read(1 << 12)
    return begins.startswith(_GZIP) or begins.lstrip().startswith(_BEGINS)


class _Item(KubeObject):
    """As much of an object as tells what it is; a list has `items`."""

    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None


_ITEM = msgspec.json.Decoder(_Item)


def read_cluster(
    paths: Iterable[Path], tell: Callable[[int, int], None] | None = None, *, now: float | None = None
) -> ClusterObjects:
    """The cluster in these files: one cluster file, or lists of kubectl.

    It was taken at `now` (seconds since the epoch); without that when the cluster file says, or at the newest time in
    the lists. `tell` gets how many bytes of how many have been read, packed. Raises ClusterFileError.
    """
    files = list(paths)
    objects, share, whole = ClusterObjects(0.0), SharedPods(timed=POD_CONDITIONS), 0

    def add(kind: Kind, obj: Any) -> None:
        objects.add(kind, share(obj) if isinstance(obj, Pod) else obj)

    for path in files:
        try:
            with path.open("rb") as raw:
                file = _File(raw, str(path), path.stat().st_size, tell)
                whole += file.read(objects, add)
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


class _File:
    """A file that is read, packed or not. Every method raises ClusterFileError."""

    def __init__(self, raw: IO[bytes], name: str, size: int, tell: Callable[[int, int], None] | None) -> None:
        self._raw, self._name, self._size, self._tell = raw, name, size, tell
        self._is_packed = raw.read(2) == _GZIP
        raw.seek(0)
        self._stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if self._is_packed else raw)
        self._unpacked = 0

    def read(self, objects: ClusterObjects, add: Callable[[Kind, Any], None]) -> bool:
        """Take all of it; whether it is a cluster file."""
        first = self._next()  # a long one is what `kubectl get -o json | jq -c .` prints
        if not first.strip():
            raise ClusterFileError(f"{self._name} is empty")
        if first.lstrip().startswith(_BEGINS):
            header = self._header(first)
            objects.taken_at, objects.annotations = epoch(header.taken_at), frozenset(header.annotations)
            objects.absent, objects.anonymized = header.absent, header.anonymized
            self._read_objects(first, add)
            return True
        text = bytearray(first)
        while chunk := self._next(_CHUNK):
            text += chunk
        _take(self._name, text, "", add)
        # A list does not say when it was made: about when something last happened in it
        for happened in set(_HAPPENED.findall(text)):
            with suppress(InstantError):
                objects.taken_at = max(objects.taken_at, epoch(f"{happened.decode()}Z"))
        return False

    def _read_objects(self, first: bytes, add: Callable[[Kind, Any], None]) -> None:
        """Take the objects after the header, which are whole if the footer says so."""
        name, total, number = self._name, hashlib.sha256(first), 0
        while not (line := self._next()).startswith(b"{"):
            if not line.endswith(b"\n"):
                longest = f"or has a line of more than {_LONGEST_LINE >> 20} MiB"
                raise ClusterFileError(f"{name} is cut off after {number} objects, {longest}: {_AGAIN}")
            number += 1
            total.update(line)
            if self._tell and not number % 1000:
                self._tell(self._raw.tell(), self._size)
            kind = ""
            try:
                kind, raw = _LINE.decode(line)
                item = _DECODERS[kind].decode(raw)
            except KeyError:
                raise ClusterFileError(f"{name}: object {number} is of kind {kind!r}, which no snapshot has") from None
            except _BROKEN as error:
                raise ClusterFileError(f"{name}: object {number} cannot be read: {error}") from None
            add(BY_KIND[kind], item)
        try:
            footer = msgspec.json.decode(line, type=_Footer)
        except _BROKEN:
            raise ClusterFileError(f"{name} is cut off after {number} objects: {_AGAIN}") from None
        if footer.objects != number or footer.sha256 != total.hexdigest() or self._next():
            raise ClusterFileError(f"{name} was changed after it was written: its checksum does not fit its content")

    def _next(self, chunk: int = 0) -> bytes:
        """The next line, of a long one its beginning, or the next `chunk` of so many bytes; empty at the end."""
        try:
            text = self._stream.read(chunk) if chunk else self._stream.readline(_LONGEST_LINE)
        except EOFError:
            raise ClusterFileError(f"{self._name} is cut off: {_AGAIN}") from None
        except (OSError, zlib.error) as error:
            raise ClusterFileError(f"{self._name} is damaged: {error}") from None
        self._unpacked += len(text)
        if self._unpacked > _MOST_BYTES:
            raise ClusterFileError(f"{self._name} has more than {_MOST_BYTES >> 30} GiB, which no cluster has")
        if self._is_packed and self._unpacked > max(_UNSUSPECTED, self._size * _MOST_RATIO):
            grows = f"grows to more than {_MOST_RATIO} times its size when it is unpacked"
            raise ClusterFileError(f"{self._name} {grows}: it is no snapshot")
        return text

    def _header(self, line: bytes) -> Header:
        """The first line, if it is of a format that is known."""
        try:
            header = msgspec.json.decode(line, type=Header)
        except _BROKEN as error:
            why = f"begins like a snapshot, but its first line cannot be read: {error}"
            raise ClusterFileError(f"{self._name} {why}") from None
        if header.format != FORMAT:
            raise ClusterFileError(f"{self._name} is of format {header.format!r}, not {FORMAT!r}")
        if header.version != VERSION:
            raise ClusterFileError(
                f"{self._name} is of version {header.version}, and this giveway reads version {VERSION}:"
                f" use the giveway that wrote it ({header.giveway or 'unknown'}), or take the snapshot again"
            )
        return header


def _take(name: str, text: Any, kind_name: str, add: Callable[[Kind, Any], None]) -> None:
    """Take an object, or those of a List, but for kinds that decide nothing.

    `kind_name` is what the List says of an object that does not say it.
    """
    try:
        item = _ITEM.decode(text)
    except _BROKEN as error:
        raise ClusterFileError(f"{name} {_NEITHER}: {error}") from None
    kind_name = item.kind or kind_name
    if item.items is not None:
        for raw in item.items:
            _take(name, raw, kind_name.removesuffix("List"), add)
        return
    if not kind_name:
        raise ClusterFileError(f"{name} {_NEITHER}: no kind")
    kind = kind_of(item.api_version if item.kind else "", kind_name)
    if kind is None:
        return
    try:
        obj = msgspec.json.decode(text, type=kind.type)
    except _BROKEN as error:
        raise ClusterFileError(f"{name}: a {kind_name} cannot be read: {error}") from None
    if not obj.metadata.name:
        raise ClusterFileError(f"{name}: a {kind_name} has no metadata.name")
    add(kind, redact(obj, obj.metadata.annotations or {}))


async def collect(
    client: Client, stream: IO[bytes], annotations: Collection[str], anonymizer: Anonymizer | None, tell: Progress
) -> tuple[int, dict[str, str]]:
    """Write a cluster file; returns how many objects it has, and by kind why it is absent.

    Pods that have ended are left out: they decide nothing. Raises ClusterFileError if a kind that is needed cannot be
    read, ApiError if the cluster cannot be reached.
    """
    absent = {kind.name: why for kind in KINDS if (why := await _why_absent(client, kind))}
    header = Header(
        format=FORMAT,
        version=VERSION,
        taken_at=rfc3339(time.time()),
        giveway=version("giveway"),
        anonymized=anonymizer is not None,
        annotations=sorted(annotations),
        absent=absent,
    )
    objects = 0
    with cluster_file(stream, header) as add:
        for kind in KINDS:
            if kind.name in absent:
                continue
            async for item in items_of(client, kind.resource, kind.type, tell):
                try:
                    obj = msgspec.json.decode(item, type=kind.type) if isinstance(item, msgspec.Raw) else item
                except msgspec.DecodeError as error:
                    raise ClusterFileError(f"a {kind.name} of this cluster cannot be read: {error}") from error
                if not isinstance(obj, Pod) or not is_terminal(obj):
                    redacted = redact(obj, annotations)
                    add(kind, redacted if anonymizer is None else anonymizer(kind, redacted))
                    objects += 1
    return objects, absent


async def _why_absent(client: Client, kind: Kind) -> str:
    """Ask for one object, so that what is missing can stand in the first line."""
    try:
        async for _ in client.pages_of(kind.resource, limit=1):
            break
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        why = "no right to list" if error.status == 403 else "not served by this cluster"
        if kind.needed:
            raise ClusterFileError(f"{kind.resource.plural}: {why}, and without them nothing can be said") from error
        return why
    return ""
