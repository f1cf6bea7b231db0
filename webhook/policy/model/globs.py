"""Names with `*` in them: compiled once, matched in time linear in the name."""

from collections.abc import Callable, Iterable

WILDCARD = "*"
"""The one wildcard: any run of characters, the empty one included."""


def name_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Compile names and globs to a test whether a name is any of them; literal names cost one set look-up."""
    patterns = tuple(patterns)
    literals = frozenset(pattern for pattern in patterns if WILDCARD not in pattern)
    if literals.issuperset(patterns):
        return literals.__contains__
    pieces = [pattern.split(WILDCARD) for pattern in patterns if WILDCARD in pattern]
    globs = [(first, list(filter(None, middle)), last) for first, *middle, last in pieces]

    def matches(name: str) -> bool:
        if name in literals:
            return True
        for first, middle, last in globs:
            if name.startswith(first) and name.endswith(last) and _in_order(name, first, middle, last):
                return True
        return False

    return matches


def _in_order(name: str, first: str, middle: list[str], last: str) -> bool:
    """Whether the middle pieces of a glob stand in the name in turn, between the first and the last one.

    The leftmost place of each is always good enough.
    """
    at = len(first)
    for piece in middle:
        place = name.find(piece, at)
        if place < 0:
            return False
        at = place + len(piece)
    return len(name) - at >= len(last)


def literal_prefix(pattern: str) -> str:
    """What every name that matches the glob begins with."""
    return pattern.partition(WILDCARD)[0]


def intersect(glob: str, other: str) -> bool:
    """Whether any name matches both globs, in time proportional to the product of their lengths."""
    head, other_head = literal_prefix(glob), literal_prefix(other)
    if not (head.startswith(other_head) or other_head.startswith(head)):
        return False
    row = [True]  # whether what was read of `glob` and the first so many characters of `other` can mean the same name
    for character in other:
        row.append(row[-1] and character == WILDCARD)
    for character in glob:
        before, row = row, [row[0] and character == WILDCARD]
        for place, wanted in enumerate(other):
            if WILDCARD in (character, wanted):
                row.append(before[place + 1] or row[place])
            else:
                row.append(before[place] and character == wanted)
        if True not in row:
            return False
    return row[-1]
