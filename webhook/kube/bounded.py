"""Texts from requests, kept and shown within bounds: whoever writes them chooses how long they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["LONGEST_SHOWN", "BoundedCache", "bounded", "bounded_cache"]

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_SHOWN = 256
"""Characters; names in Kubernetes have at most 253."""


def bounded(text: str, most: int = LONGEST_SHOWN) -> str:
    """The text, or its beginning with `…` if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


class BoundedCache(Generic[P, T]):
    """The results of a function by its arguments: texts, numbers, or tuples of these.

    It keeps at most `entries` results, of those used last, and none whose arguments have more than `longest` characters
    in all. So its keys never take more than `entries * longest` characters, whatever a request says.
    """

    def __init__(self, function: Callable[P, T], entries: int, longest: int) -> None:
        self._function, self._longest = function, longest
        self._kept = lru_cache(entries)(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result, which the function is asked for if it is not kept."""
        if _characters(args) > self._longest:
            return self._function(*args, **kwargs)
        return self._kept(*args, **kwargs)  # type: ignore[arg-type]  # the arguments are hashable by contract

    def __len__(self) -> int:
        return self._kept.cache_info().currsize


def bounded_cache(entries: int, longest: int) -> Callable[[Callable[P, T]], BoundedCache[P, T]]:
    """Decorate a function with a `BoundedCache`, in place of `lru_cache`, if an argument comes from a request."""
    return lambda function: BoundedCache(function, entries, longest)


def _characters(args: tuple[Any, ...]) -> int:
    count = 0
    for arg in args:
        if isinstance(arg, str):
            count += len(arg)
        elif isinstance(arg, tuple):
            count += _characters(arg)
    return count
