"""Looking into the store from inside the server, without going through the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from webhook.embedded.protocol.api_resources import BY_STORAGE
from webhook.embedded.protocol.calls import Object
from webhook.embedded.storage.store import Store, StoredCollection

__all__ = ["Memo", "StoreReader"]

T = TypeVar("T")


class StoreReader:
    """Stored objects by the plural name of their resource; what it returns is the caller's own copy."""

    def __init__(self, store: Store) -> None:
        self._collections: Mapping[str, StoredCollection] = {
            BY_STORAGE[key].plural: collection for key, collection in store.collections.items()
        }

    def all(self, plural: str, namespace: str = "") -> list[Object]:
        """Every object, of one namespace or of all."""
        collection = self._collections[plural]
        return [record.object(collection.resource) for record in collection.in_namespace(namespace)]

    def one(self, plural: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        collection = self._collections[plural]
        record = collection.records.get(f"{namespace}/{name}" if namespace else name)
        return record.object(collection.resource) if record else None

    def labels(self, plural: str, name: str) -> Mapping[str, str]:
        """The labels of a cluster-wide object; none if there is no such object."""
        record = self._collections[plural].records.get(name)
        return record.labels if record else {}

    def version(self, *plurals: str) -> tuple[int, ...]:
        """A value that differs after any of these resources changed."""
        rows = [self._collections[plural] for plural in plurals]
        return tuple(number for row in rows for number in (row.dropped + len(row.events), len(row.records)))


class Memo(Generic[T]):
    """Something computed from stored objects, once and again after one of the named resources changed."""

    def __init__(self, read: StoreReader, plurals: tuple[str, ...], compute: Callable[[], T]) -> None:
        self._read = read
        self._plurals = plurals
        self._compute = compute
        self._known: tuple[tuple[int, ...], T] | None = None

    def get(self) -> T:
        """The current value."""
        version = self._read.version(*self._plurals)
        if self._known is None or self._known[0] != version:
            self._known = (version, self._compute())
        return self._known[1]
