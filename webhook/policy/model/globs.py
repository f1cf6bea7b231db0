"""Names with `*` in them: compiled once, matched in time linear in the name."""

import re
from collections.abc import Callable, Iterable

WILDCARD = "*"
"""The one wildcard: any run of characters, the empty one included."""


def name_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Compile names and globs to a test; names without `*` cost one look-up in a set."""
    patterns = tuple(patterns)
    literals = frozenset(pattern for pattern in patterns if WILDCARD not in pattern)
    if literals.issuperset(patterns):
        return literals.__contains__
    globs = []
    for glob in sorted({*patterns} - literals):
        # The leftmost place of each piece is good enough, so none is tried again
        first, *middle, last = map(re.escape, glob.split(WILDCARD))
        pieces = [f"(?>.*?{piece})" for piece in middle if piece]
        globs.append("".join((first, *pieces, ".*", last)))
    fits = re.compile("|".join(globs), re.DOTALL).fullmatch
    return lambda name: name in literals or fits(name) is not None


def literal_prefix(pattern: str) -> str:
    """What every name that matches the glob begins with."""
    return pattern.partition(WILDCARD)[0]


def intersect(glob: str, other: str) -> bool:
    """Whether any name matches both. Of two globs the ends decide."""
    if WILDCARD not in glob or WILDCARD not in other:
        return name_matcher((glob,))(other) or name_matcher((other,))(glob)
    head, other_head = literal_prefix(glob), literal_prefix(other)
    tail, other_tail = glob.rpartition(WILDCARD)[2], other.rpartition(WILDCARD)[2]
    heads = head.startswith(other_head) or other_head.startswith(head)
    return heads and (tail.endswith(other_tail) or other_tail.endswith(tail))
