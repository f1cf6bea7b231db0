"""Names with `*` in them: compiled once, matched in time linear in the name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["WILDCARD", "intersect", "literal_prefix", "name_matcher"]

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


def intersect(one: str, other: str) -> bool:
    """Whether any name matches both globs, in time proportional to the product of their lengths."""
    reachable = {0}
    for place in range(len(one) + 1):
        reachable = _skip(reachable, other)
        if place == len(one):
            return len(other) in reachable
        if one[place] == WILDCARD:
            reachable = set(range(min(reachable), len(other) + 1)) if reachable else set()
        else:
            reachable = _step(reachable, one[place], other)
    return False


def _skip(places: set[int], pattern: str) -> set[int]:
    """The places in a glob that can be reached without a further character."""
    found = set(places)
    for place in places:
        at = place
        while at < len(pattern) and pattern[at] == WILDCARD:
            at += 1
            found.add(at)
    return found


def _step(places: set[int], character: str, pattern: str) -> set[int]:
    """The places in a glob after one more character."""
    stay = {place for place in places if place < len(pattern) and pattern[place] == WILDCARD}
    return stay | {place + 1 for place in places if place < len(pattern) and pattern[place] == character}


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
