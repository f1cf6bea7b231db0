"""Texts from requests, kept and shown within bounds: whoever writes them chooses how long they are, and how many."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

LONGEST_SHOWN = 256
"""Characters; names in Kubernetes have at most 253."""


def bounded(text: str, most: int = LONGEST_SHOWN) -> str:
    """The text, or its beginning with `…` if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


class Newest(OrderedDict[K, V]):
    """So many entries at most: those that were set or asked for with `made` last, the newest at the end."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def made(self, key: K, make: Callable[..., V], *args: Any) -> V:
        """The value of the key, made of these arguments if there is none; it counts as the newest."""
        try:
            self.move_to_end(key)
            return self[key]
        except KeyError:
            self[key] = value = make(*args)
            return value


class BoundedCache(Newest[tuple[Any, ...], T], Generic[P, T]):
    """The results of a function by its positional arguments: texts, numbers, or tuples of these.

    It keeps at most `entries` results, the newest, and none whose arguments have more than `longest` characters in all.
    So its keys never take more than `entries * longest` characters, whatever a request says.
    """

    def __init__(self, function: Callable[P, T], entries: int, longest: int) -> None:
        super().__init__(entries)
        self._function, self._longest = function, longest
        self._changing = Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result, which the function is asked for if it is not kept."""
        return self._function(*args, **kwargs) if kwargs else self[args]

    def __missing__(self, args: tuple[Any, ...]) -> T:
        result = self._function(*args)  # type: ignore[call-arg]  # there are no others
        # Counted once for each that is kept, and not at each call: it
        # costs more than to look one up
        if _characters(args) <= self._longest:
            with self._changing:
                self[args] = result
        return result


def bounded_cache(entries: int, longest: int) -> Callable[[Callable[P, T]], BoundedCache[P, T]]:
    """Decorate a function of arguments from requests with a `BoundedCache`, not with `lru_cache`."""
    return lambda function: BoundedCache(function, entries, longest)


def _characters(args: tuple[Any, ...]) -> int:
    texts = sum(len(arg) for arg in args if isinstance(arg, str))
    return texts + sum(_characters(arg) for arg in args if isinstance(arg, tuple))
