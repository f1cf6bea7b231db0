"""Names with `*` in them: compiled once, matched in time linear in the name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["WILDCARD", "literal_prefix", "name_matcher"]

WILDCARD = "*"
"""The one wildcard: any run of characters, the empty one included."""


def name_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Compile names and globs to a test whether a name is any of them; literal names cost one set look-up."""
    patterns = tuple(patterns)
    literals = frozenset(pattern for pattern in patterns if WILDCARD not in pattern)
    globs = [_glob(pattern) for pattern in patterns if WILDCARD in pattern]
    if not globs:
        return literals.__contains__
    return lambda name: name in literals or any(glob(name) for glob in globs)


def literal_prefix(pattern: str) -> str:
    """What every name that matches the glob begins with."""
    return pattern.partition(WILDCARD)[0]


def _glob(pattern: str) -> Callable[[str], bool]:
    first, *middle, last = pattern.split(WILDCARD)
    if not any(middle):
        size = len(first) + len(last)
        return lambda name: len(name) >= size and name.startswith(first) and name.endswith(last)
    return lambda name: _in_order(name, first, middle, last)


def _in_order(name: str, first: str, middle: list[str], last: str) -> bool:
    """Whether the pieces stand in the name one after the other; the leftmost place of each is always good enough."""
    if not name.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = name.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(name) - at >= len(last) and name.endswith(last)
