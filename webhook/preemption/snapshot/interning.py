"""Small ids for repeated values, and columns computed per id instead of per pod.

Thousands of pods share a few label sets, tolerations or port lists. Each distinct value gets an id; a `Table`
evaluates a question once per id and keeps the answers as a numpy column, brought up to date when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.columns import grown

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LONGEST_LOG = 4096


class Interner(Generic[K, V]):
    """Counted ids for values: `take` adds a reference, `drop` removes one, an unused id is given out again.

    `values[id]` is what the id stands for, None while it is unused. `log` lists ids in the order they were
    (re)assigned, so that a Table knows what it has not seen; when it gets long it is cut and `epoch` counts up.
    """

    def __init__(self) -> None:
        self.values: list[V | None] = []
        self.log: list[int] = []
        self.epoch = 0
        self._ids: dict[K, int] = {}
        self._keys: list[K | None] = []
        self._references: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many ids there are, unused ones included: the length of a Table's column."""
        return len(self.values)

    def take(self, key: K, value: V) -> int:
        """The id of `key`, one reference more; `value` is kept if the key is new."""
        identity = self._ids.get(key)
        if identity is not None:
            self._references[identity] += 1
            return identity
        if self._free:
            identity = self._free.pop()
            self.values[identity], self._keys[identity], self._references[identity] = value, key, 1
        else:
            identity = len(self.values)
            self.values.append(value)
            self._keys.append(key)
            self._references.append(1)
        self._ids[key] = identity
        self.log.append(identity)
        if len(self.log) > _LONGEST_LOG + 2 * len(self.values):
            self.log.clear()
            self.epoch += 1
        return identity

    def drop(self, identity: int) -> None:
        """One reference less; the last one frees the id."""
        self._references[identity] -= 1
        if self._references[identity]:
            return
        key = self._keys[identity]
        assert key is not None
        del self._ids[key]
        self.values[identity] = self._keys[identity] = None
        self._free.append(identity)

    def find(self, key: K) -> int | None:
        """The id of `key`, None if it has none."""
        return self._ids.get(key)

    def used(self) -> list[tuple[int, V]]:
        """Every id in use with its value."""
        return [(identity, value) for identity, value in enumerate(self.values) if value is not None]


class Table(Generic[V]):
    """A column over an interner's ids holding `evaluate(value)`; ids not in use hold whatever they held last."""

    def __init__(self, interner: Interner[Any, V], dtype: Any, evaluate: Callable[[V], Any]) -> None:
        self._interner = interner
        self._evaluate = evaluate
        self._column: NDArray[Any] = np.zeros(1, dtype)  # row 0, which is no pod, may ask before there is any
        self._seen = 0
        self._epoch = -1  # of no log: what the log no longer names is evaluated, too

    def column(self) -> NDArray[Any]:
        """The answers by id, up to date."""
        interner = self._interner
        if len(self._column) < len(interner):
            self._column = grown(self._column, max(16, 2 * len(interner)))
        if self._epoch != interner.epoch:
            self._epoch, self._seen = interner.epoch, len(interner.log)
            self._fill(range(len(interner)))
        elif self._seen < len(interner.log):
            pending, self._seen = interner.log[self._seen :], len(interner.log)
            self._fill(pending)
        return self._column

    def _fill(self, identities: range | list[int]) -> None:
        values, column, evaluate = self._interner.values, self._column, self._evaluate
        for identity in identities:
            value = values[identity]
            if value is not None:
                column[identity] = evaluate(value)
