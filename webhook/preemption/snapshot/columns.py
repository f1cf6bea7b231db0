"""Tables of columns, a row an object, and ids for repeated values. Rows and ids are used again.

The columns that a class declares are made, grow and are emptied. Thousands of pods share a
few label sets, tolerations or port lists: each distinct value gets an id. A `Table` asks a
question once per id, and keeps the answers as a column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of

S = TypeVar("S", bound=np.generic)
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Ints8 = NDArray[np.int8]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Bits = NDArray[np.uint64]
Rows = NDArray[np.intp]
"""Numbers of rows."""


def take_out(table: dict[K, Any], key: K, member: Any) -> None:
    """Take a member out of the set or dict at this key; with the last goes the key."""
    members = table.get(key)
    if members is None:
        return
    if isinstance(members, dict):
        members.pop(member, None)
    else:
        members.discard(member)
    if not members:
        del table[key]


def ranked(keys: Ints) -> tuple[Ints, Rows, Ints]:
    """How many equal keys are before each, the first's place, and how many there are."""
    bits = len(keys).bit_length()
    sorted_ = np.sort((keys << bits) | np.arange(len(keys)))
    order, ordered = sorted_ & ((1 << bits) - 1), sorted_ >> bits
    starts = np.flatnonzero(np.diff(ordered, prepend=-1) > 0)
    sizes = np.diff(np.append(starts, len(keys)))
    answers = np.empty((3, len(keys)), np.int64)
    answers[0, order] = np.arange(len(keys)) - np.repeat(starts, sizes)
    answers[1, order] = np.repeat(order[starts], sizes)
    answers[2, order] = np.repeat(sizes, sizes)
    return answers[0], answers[1], answers[2]


class _Column(NamedTuple):
    kind: type[np.generic] | None
    absent: Any
    lines: int = 0
    kept: bool = False


def array(kind: type[S], absent: int = 0, *, lines: int = 0, kept: bool = False) -> NDArray[S]:
    """Declare a column of numbers; unused rows hold `absent`.

    With `lines` a row has so many values, 0 when unused. A `kept` column is not emptied.
    """
    return cast("NDArray[S]", _Column(kind, absent, lines, kept))


def listed(absent: V) -> list[V]:
    """Declare a list as column; unused rows hold `absent`, which nobody changes."""
    return cast("list[V]", _Column(None, absent))


def grown(column: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    """A copy whose last axis is `size` long, the new part filled with `fill`."""
    larger = np.full((*column.shape[:-1], size), fill, column.dtype)
    larger[..., : column.shape[-1]] = column
    return larger


class Columns:
    """A table: `rows` are given out, arrays have room for `capacity`, lists for `rows`."""

    declarations: ClassVar[dict[str, _Column]]

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class: each table has its own columns."""
        super().__init_subclass__()
        cls.declarations = {name: value for name, value in vars(cls).items() if isinstance(value, _Column)}
        for name in cls.declarations:
            delattr(cls, name)

    def __init__(self) -> None:
        self.rows = 0
        self.capacity = 16
        self._free: list[int] = []
        for name, (kind, absent, lines, _) in self.declarations.items():
            shape = (lines, self.capacity) if lines else self.capacity
            setattr(self, name, np.full(shape, absent, kind) if kind else [])
        self._note_columns()

    def new_row(self) -> int:
        """An unused row."""
        if self._free:
            return self._free.pop()
        if self.rows == self.capacity:
            self._grow(2 * self.capacity)
        for column, absent in self._lists:
            column.append(absent)
        self.rows += 1
        return self.rows - 1

    def free(self, row: int) -> None:
        """Take the row back and empty it."""
        for column, absent in self._emptied:
            column[row] = absent
        self._free.append(row)

    def fit(self, lines: int) -> None:
        """Give the columns with lines as many as this."""
        for name, declared in self.declarations.items():
            if declared.lines:
                column = getattr(self, name)
                setattr(self, name, np.pad(column, ((0, lines - len(column)), (0, 0))))
        self._note_columns()

    def _grow(self, size: int) -> None:
        self.capacity = size
        for name, declared in self.declarations.items():
            if declared.kind is not None:
                setattr(self, name, grown(getattr(self, name), size, declared.absent))
        self._note_columns()

    def _note_columns(self) -> None:
        """Note what `new_row` appends to and `free` empties: looking up names is slow."""
        self._lists: list[tuple[list[Any], Any]] = []
        self._emptied: list[tuple[Any, Any]] = []
        for name, (kind, absent, _, kept) in self.declarations.items():
            column = getattr(self, name)
            if kind is None:
                self._lists.append((column, absent))
            if not kept:
                self._emptied.append((column if kind is None else column.T, absent))


class ObjectTable(dict[str, V]):
    """Objects of a kind by `namespace/name`, or `name` without one; `version` counts changes."""

    version = 0

    def put(self, changed: V) -> None:
        """Add or update an object."""
        self.version += 1
        self[key_of(changed)] = changed

    def remove(self, key: str) -> None:
        """Forget an object."""
        self.version += 1
        self.pop(key, None)


class RowSet:
    """Some rows of a table."""

    def __init__(self) -> None:
        self._rows: set[int] = set()
        self._ascending: Rows | None = None

    def keep(self, row: int, *, kept: bool) -> None:
        """Have a row among them, or not."""
        if kept is not (row in self._rows):
            self._rows ^= {row}
            self._ascending = None

    def ascending(self) -> Rows:
        """The rows, ascending; nobody changes this array."""
        if self._ascending is None:
            self._ascending = np.array(sorted(self._rows), np.intp)
        return self._ascending


class Interner(Columns, Generic[K, V]):
    """Counted ids for values: `take` adds a reference, `drop` removes one.

    By id `values` has what it stands for, None while unused. `assigned` counts how often ids
    were given out, `numbers` the last time, 0 while unused: Tables see what is new.
    """

    values: list[V | None] = listed(None)
    numbers = array(np.int64)
    _keys: list[Any] = listed(None)
    _references = listed(0)

    def __init__(self) -> None:
        super().__init__()
        self.assigned = 0
        self._ids: dict[K, int] = {}

    def __len__(self) -> int:
        """How many ids there are, unused ones included."""
        return self.rows

    def take(self, key: K, value: V) -> int:
        """The id of `key`, one reference more; `value` is kept if the key is new."""
        identity = self._ids.get(key)
        if identity is None:
            identity = self._ids[key] = self.new_row()
            self.values[identity], self._keys[identity] = value, key
            self.assigned += 1
            self.numbers[identity] = self.assigned
        self._references[identity] += 1
        return identity

    def drop(self, identity: int) -> None:
        """One reference less; the last one frees the id."""
        self._references[identity] -= 1
        if not self._references[identity]:
            del self._ids[self._keys[identity]]
            self.free(identity)

    def find(self, key: K) -> int | None:
        """The id of `key`, None if it has none."""
        return self._ids.get(key)

    def used(self) -> list[tuple[int, V]]:
        """Every id in use with its value."""
        return [(identity, value) for identity, value in enumerate(self.values) if value is not None]


class Table(Generic[V]):
    """What `evaluate` says of an interner's values, by id; unused ids hold anything."""

    def __init__(self, interner: Interner[Any, V], dtype: Any, evaluate: Callable[[V], Any]) -> None:
        self._interner = interner
        self._evaluate = evaluate
        # Row 0, no pod, asks before there is an id
        self._column: NDArray[Any] = np.zeros(1, dtype)
        self._seen = 0

    def column(self) -> NDArray[Any]:
        """The answers by id, up to date."""
        interner = self._interner
        if len(self._column) < interner.rows:
            self._column = grown(self._column, interner.capacity)
        if self._seen < interner.assigned:
            for identity in np.flatnonzero(interner.numbers > self._seen).tolist():
                value = interner.values[identity]
                if value is not None:
                    self._column[identity] = self._evaluate(value)
            self._seen = interner.assigned
        return self._column
