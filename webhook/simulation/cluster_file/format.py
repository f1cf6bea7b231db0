"""The file: gzip of JSON lines. A header, one object a line (`["Pod",{...}]`), and a footer that says that it is whole.

    {"format":"giveway.dev/snapshot","version":1,"takenAt":"2026-01-01T00:00:00Z","annotations":[...],...}
    ["Node",{"metadata":{"name":"n1"},...}]
    {"objects":150321,"sha256":"..."}

`sha256` is that of all lines before it. It finds what was cut or changed by mistake; it is no signature.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import msgspec

from webhook.clusters.simulated.objects import BY_KIND, Kind

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


class LongLineError(ClusterFileError):
    """A line that is longer than any that a cluster file has."""


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


_LINE = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind.type) for name, kind in BY_KIND.items()
}


class ClusterFileWriter:
    """Writes a cluster file object by object; `close()` makes it whole."""

    def __init__(self, stream: IO[bytes], header: Header) -> None:
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=_LEVEL, mtime=0)
        self._encode = msgspec.json.Encoder().encode
        self._sum = hashlib.sha256()
        self.objects = 0
        self._line(self._encode(header))

    def write(self, kind: Kind, items: Iterable[Any]) -> None:
        """Add objects."""
        for item in items:
            self._line(self._encode((kind.name, item)))
            self.objects += 1

    def close(self) -> None:
        """Write the footer."""
        footer = _Footer(objects=self.objects, sha256=self._sum.hexdigest())
        self._gzip.write(self._encode(footer) + b"\n")
        self._gzip.close()

    def _line(self, text: bytes) -> None:
        line = text + b"\n"
        self._sum.update(line)
        self._gzip.write(line)


def is_header(line: bytes) -> bool:
    """Whether a file that begins with this line is, or was meant to be, a cluster file."""
    return line.lstrip().startswith(b'{"format"')


def objects_in(
    stream: IO[bytes], name: str, first: bytes, packed: int, tell: Callable[[], None]
) -> Iterator[Header | tuple[Kind, Any]]:
    """The header, then every object, of an unpacked stream after its first line; `tell` is called now and then.

    `packed` is the size of the file, 0 if it is not packed.
    Raises ClusterFileError, at the latest at the end, if it is not whole or not what it says.
    """
    yield _header(name, first)
    total, number, told = hashlib.sha256(first), 0, len(first)
    while not (line := next_line(stream, name)).startswith(b"{"):
        told += len(line)
        check_size(name, told, packed)
        if not line.endswith(b"\n"):
            raise _cut(name, number)
        number += 1
        total.update(line)
        if not number % 1000:
            tell()
        kind = ""
        try:
            kind, raw = _LINE.decode(line)
            item = _DECODERS[kind].decode(raw)
        except KeyError:
            raise ClusterFileError(f"{name}: object {number} is of kind {kind!r}, which no snapshot has") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ClusterFileError(f"{name}: object {number} cannot be read: {error}") from None
        yield BY_KIND[kind], item
    try:
        footer = msgspec.json.decode(line, type=_Footer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _cut(name, number) from None
    if footer.objects != number or footer.sha256 != total.hexdigest():
        raise ClusterFileError(f"{name} was changed after it was written: its checksum does not fit its content")
    if next_line(stream, name):
        raise ClusterFileError(f"{name} goes on after its end: it was changed after it was written")
    tell()


def check_size(name: str, unpacked: int, packed: int) -> None:
    """Raise ClusterFileError if a file grows beyond all measure when unpacked; `packed` is 0 if it is not packed."""
    if unpacked > _MOST_BYTES:
        raise ClusterFileError(f"{name} has more than {_MOST_BYTES >> 30} GiB, which no cluster has")
    if packed and unpacked > max(_UNSUSPECTED, packed * _MOST_RATIO):
        raise ClusterFileError(
            f"{name} grows to more than {_MOST_RATIO} times its size when it is unpacked: it is no snapshot"
        )


def next_line(stream: IO[bytes], name: str) -> bytes:
    """The next line, empty at the end. Raises ClusterFileError for one that is too long, or data that is broken."""
    try:
        line = stream.readline(_LONGEST_LINE)
    except EOFError:
        raise ClusterFileError(f"{name} is cut off: take the snapshot again, or copy it again") from None
    except (OSError, zlib.error) as error:
        raise ClusterFileError(f"{name} is damaged: {error}") from None
    if len(line) == _LONGEST_LINE:
        raise LongLineError(f"{name} has a line of more than {_LONGEST_LINE >> 20} MiB, which no snapshot has")
    return line


def _header(name: str, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterFileError(f"{name} begins like a snapshot, but its first line cannot be read: {error}") from None
    if header.format != FORMAT:
        raise ClusterFileError(f"{name} is of format {header.format!r}, not {FORMAT!r}")
    if header.version > VERSION:
        raise ClusterFileError(
            f"{name} is of version {header.version}, and this giveway reads version {VERSION}:"
            f" use the giveway that wrote it ({header.giveway or 'unknown'}) or a newer one"
        )
    if header.version < VERSION:
        raise ClusterFileError(
            f"{name} is of version {header.version}, which is no longer read: take the snapshot again"
        )
    return header


def _cut(name: str, number: int) -> ClusterFileError:
    return ClusterFileError(f"{name} is cut off after {number} objects: take the snapshot again, or copy it again")
