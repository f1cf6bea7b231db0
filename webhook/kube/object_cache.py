"""The objects of one resource by key, and who hears of their changes: filled by list and watch, or by a simulation."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Literal, TypeVar

import msgspec

from webhook.kube.objects.meta import KubeObject

log = logging.getLogger(__name__)


T = TypeVar("T", bound=KubeObject)


class Change(msgspec.Struct, Generic[T], frozen=True):
    """What happened to one object: `old` is None if it was added, `new` if it was deleted."""

    kind: Literal["added", "modified", "deleted"]
    key: str
    old: T | None
    new: T | None


class ObjectCache(Generic[T]):
    """Objects by key (`namespace/name` or `name`); `name` is what the log calls them.

    `synced` is set once it has been filled. `handlers` are called for every change, in order, after it was taken over.
    """

    def __init__(self, name: str) -> None:
        self.handlers: list[Callable[[Change[T]], None]] = []
        self.synced = asyncio.Event()
        self._name = name
        self._items: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """The object of that key, or None."""
        return self._items.get(key)

    def items(self) -> Mapping[str, T]:
        """A live view of all objects by key."""
        return MappingProxyType(self._items)

    def take(self, key: str, new: T | None) -> None:
        """Take over the state of an object, None if it is gone."""
        known = self._items.get(key)
        if known is not None and (new is None or known.metadata.uid != new.metadata.uid):
            self._remove(key, known)
            known = None
        if new is not None:
            self._items[key] = new
            self._notify(Change("added" if known is None else "modified", key, known, new))

    def _remove(self, key: str, last: T) -> None:
        """Forget an object; `last` is its state when it was deleted, as far as it is known."""
        del self._items[key]
        self._notify(Change("deleted", key, last, None))

    def _notify(self, change: Change[T]) -> None:
        for handler in self.handlers:
            try:
                handler(change)
            except Exception:
                log.exception("cache %s: a handler failed on %s %s", self._name, change.kind, change.key)
