"""Tables of columns with one row an object. Rows are given out, taken back and used again.

A table declares its columns in its class. They are made, grow and are emptied by what is declared there.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)
V = TypeVar("V")
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Bits = NDArray[np.uint64]
Rows = NDArray[np.intp]
"""Numbers of rows, here and elsewhere."""


class _Column(NamedTuple):
    kind: type[np.generic] | None
    absent: Any
    lines: int = 0
    kept: bool = False


def array(kind: type[S], absent: int = 0, *, lines: int = 0, kept: bool = False) -> NDArray[S]:
    """Declare a column of numbers; `absent` is what it holds in a row that is not in use.

    With `lines` a row has so many values, each in a line of its own. A column that is `kept` is not emptied with a row.
    """
    return cast("NDArray[S]", _Column(kind, absent, lines, kept))


def listed(absent: V) -> list[V]:
    """Declare a column that is a list; `absent`, which nobody may change, is in rows that are not in use."""
    return cast("list[V]", _Column(None, absent))


def grown(column: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    """A copy whose last axis is `size` long, the new part filled with `fill`."""
    larger = np.full((*column.shape[:-1], size), fill, column.dtype)
    larger[..., : column.shape[-1]] = column
    return larger


class Columns:
    """A table: `rows` have been given out, the arrays have room for `capacity`, and the lists are as long as `rows`."""

    declarations: ClassVar[dict[str, _Column]]

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class: each table has columns of its own."""
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
        """A row that is not in use."""
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
        """Let the columns with lines have as many as this."""
        for name, declared in self.declarations.items():
            if declared.lines:
                column = getattr(self, name)
                more = np.full((lines - len(column), self.capacity), declared.absent, declared.kind)
                setattr(self, name, np.vstack([column, more]))
        self._note_columns()

    def _grow(self, size: int) -> None:
        self.capacity = size
        for name, declared in self.declarations.items():
            if declared.kind is not None:
                setattr(self, name, grown(getattr(self, name), size, declared.absent))
        self._note_columns()

    def _note_columns(self) -> None:
        """Note what `new_row` appends to and `free` empties, arrays with the row first: names are slow to look up."""
        self._lists = [(getattr(self, name), row.absent) for name, row in self.declarations.items() if row.kind is None]
        self._emptied = [
            (getattr(self, name) if kind is None else getattr(self, name).T, absent)
            for name, (kind, absent, _, kept) in self.declarations.items()
            if not kept
        ]
