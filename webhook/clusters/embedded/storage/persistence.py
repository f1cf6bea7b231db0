"""State kept in a directory: a journal of changes, rewritten as a snapshot when the server starts.

Each line of the file is one JSON object: the first the revision, each other one a record put or removed. A line cut
off at the end, as a crash leaves it, is dropped. The history of changes is not kept: watches from before are told to
list again (410).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import IO

import msgspec

from webhook.clusters.embedded.protocol.api_resources import BY_STORAGE
from webhook.clusters.embedded.storage.object_store import Event, ObjectStore, StoredObject, record_of

log = logging.getLogger(__name__)

_NAME = "store.jsonl"


class DataError(Exception):
    """State that cannot be read, with file and line."""


class _Line(msgspec.Struct, omit_defaults=True):
    """One change; `key` of a removal, `body` of a put."""

    revision: int
    storage: str = ""
    key: str = ""
    body: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class Journal:
    """Loads a directory's state into a store and writes down every later change. Close it."""

    def __init__(self, store: ObjectStore, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / _NAME
        by_storage: dict[str, dict[str, StoredObject]] = {storage: {} for storage in store.collections}
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        if lines.pop():
            log.warning("%s:%d: the last line was cut off and is dropped", path, len(lines) + 1)
        for number, text in enumerate(lines, 1):
            try:
                line = _decode(text)
                if line.storage and line.body:
                    record = record_of(BY_STORAGE[line.storage], msgspec.json.decode(line.body), line.revision)
                    by_storage[line.storage][record.key] = record
                elif line.storage:
                    by_storage[line.storage].pop(line.key, None)
            except (msgspec.DecodeError, KeyError) as error:
                raise DataError(
                    f"{path}:{number}: not a line of a state file: {error}; move it away to start again"
                ) from error
            store.revision = max(store.revision, line.revision)
        for storage, records in by_storage.items():
            collection = store.collections[storage]
            collection.restore(list(records.values()))
            collection.floor = store.revision
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(_encode(_Line(store.revision)) + b"\n")
            for storage, collection in store.collections.items():
                file.writelines(_encode(_put(storage, record)) + b"\n" for record in collection.records.values())
        fresh.replace(path)
        self._file: IO[bytes] = path.open("ab")
        self._store = store
        store.journal = self._enter

    def close(self) -> None:
        """Stop writing."""
        self._store.journal = None
        self._file.close()

    def _enter(self, storage: str, event: Event) -> None:
        if event.kind == "DELETED":
            line = _Line(event.revision, storage, event.record.key)
        else:
            line = _put(storage, event.record)
        self._file.write(_encode(line) + b"\n")
        self._file.flush()


def _put(storage: str, record: StoredObject) -> _Line:
    return _Line(record.revision, storage, body=msgspec.Raw(record.body))
