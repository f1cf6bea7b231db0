"""How large an object an expression may read, so that it stays cheap whatever the object says.

The CEL library stops at 10 000 iterations and 32 levels of nesting, but not at values that an expression makes longer
and longer, nor at large texts that it searches once for each element of a list. Both are bounded here: the text of an
expression says how much it can multiply what it reads, and so how much it may read. The bound is for objects that
somebody else writes against an honest expression; it counts rather too much than too little.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["LARGEST", "LONGEST_EXPRESSION", "MOST_GROWTH", "MOST_LOOPS", "CostError", "largest_input"]

LONGEST_EXPRESSION = 4096
"""Characters."""
MOST_LOOPS = 8
"""Comprehensions of one expression."""
MOST_GROWTH = 16
"""Operations of one expression that make values longer: +, join, format, split, and elements put into lists."""
LARGEST = 3 * 1024 * 1024
"""Bytes that any expression may read."""
_MOST_MADE = 128 * 1024 * 1024
"""Bytes that an expression may make of what it reads."""
_MOST_SEARCHED = 128 * 1024 * 1024
"""Bytes that an expression may search."""
_ITERATIONS = 10_000
_SMALLEST = 4096
"""Bytes that every expression must be able to read; its own texts are as long as that."""

_TEXT = re.compile(
    r"""//[^\n]*|[rRbB]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"(?P<loop>\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\()|(?P<bind>\bcel\s*\.\s*bind\s*\()"
    r"|(?P<grow>\.\s*(?:join|format|split)\s*\()|(?P<plus>\+)"
    r"|(?P<search>\b(?:object|oldObject|request|namespaceObject|priorityClass)\b[\w.\s\[\]?]*"
    r"\.\s*(?:matches|contains|indexOf|lastIndexOf)\s*\()"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)"
)
_REPLACE = re.compile(r"\.\s*replace\s*\(\s*(T\d+)\s*,\s*(T\d+)\s*[,)]|\.\s*replace\s*\(")
_JOIN = re.compile(r"\.\s*join\s*\(\s*(T\d+)?\s*\)|\.\s*join\s*\(")
_LONGEST_SEPARATOR = 18


class CostError(ValueError):
    """An expression that would not be cheap, whatever it reads."""


class _Counts(msgspec.Struct):
    loops: int = 0
    binds: int = 0
    growth: int = 0
    deepest_growth: int = 0
    deepest_search: int = 0


def largest_input(expression: str) -> int:
    """The bytes that an expression may read. Raises CostError when it may read none, or is too long."""
    if len(expression) > LONGEST_EXPRESSION:
        raise CostError(f"the expression has {len(expression)} characters; at most {LONGEST_EXPRESSION}")
    texts: list[str] = []

    def name(match: re.Match[str]) -> str:
        texts.append("" if match[0].startswith("//") else match[0])
        return " " if match[0].startswith("//") else f"T{len(texts) - 1}"

    bare = _TEXT.sub(name, expression)
    _check_arguments(bare, texts)
    counts = _count(bare)
    if counts.loops > MOST_LOOPS:
        raise CostError(f"the expression has {counts.loops} comprehensions; at most {MOST_LOOPS}")
    if counts.growth > MOST_GROWTH:
        raise CostError(f"the expression adds, joins or collects {counts.growth} times; at most {MOST_GROWTH}")
    largest = _largest(counts)
    if largest < _SMALLEST:
        raise CostError("the expression makes values ever longer inside comprehensions; do it in fewer steps")
    return largest


def _check_arguments(bare: str, texts: list[str]) -> None:
    """Refuse `replace` and `join` with what the object says, by which values grow with its square."""
    for match in _REPLACE.finditer(bare):
        old, new = (_content(texts, match[1]), _content(texts, match[2])) if match[1] else ("", "")
        if not old or len(new) > len(old):
            raise CostError("replace takes two texts written out, the second not longer than the first")
    for match in _JOIN.finditer(bare):
        if match[0].rstrip().endswith("(") or (match[1] and len(_content(texts, match[1])) > _LONGEST_SEPARATOR):
            raise CostError("join takes a separator written out, of at most 18 characters")


def _content(texts: list[str], name: str) -> str:
    return texts[int(name[1:])].lstrip("rRbB").strip("'\"")


def _count(bare: str) -> _Counts:
    """Count what multiplies; an element after a comma counts where a list or mapping is made inside a loop or bind."""
    counts = _Counts()
    nesting: list[str] = []
    for token in _TOKEN.finditer(bare):
        kind = str(token.lastgroup)
        depth = nesting.count("loop")
        if kind in ("loop", "bind"):
            counts.loops += kind == "loop"
            counts.binds += kind == "bind"
            nesting.append(kind)
        elif kind == "close":
            if nesting:
                nesting.pop()
        elif kind == "search":
            counts.deepest_search = max(counts.deepest_search, depth)
            nesting.append(kind)
        elif kind == "open":
            nesting.append(token[0] if token[0] != "[" or _makes_list(bare, token.start()) else "index")
        elif kind != "comma" or (_collects(nesting) and _names_follow(bare, token.end())):
            counts.growth += 1
            counts.deepest_growth = max(counts.deepest_growth, depth)
            if kind == "grow":
                nesting.append(kind)
    return counts


def _makes_list(bare: str, place: int) -> bool:
    before = bare[:place].rstrip()
    return not before or not (before[-1].isalnum() or before[-1] in "_)]?")


def _collects(nesting: list[str]) -> bool:
    return bool(nesting) and nesting[-1] in "[{" and ("loop" in nesting or "bind" in nesting)


def _names_follow(bare: str, place: int) -> bool:
    """Whether what is collected is more than a text or a number."""
    return re.match(r"\s*(?:T\d+|-?[\d.]+|true|false|null)\s*[,\]}]", bare[place:]) is None


def _largest(counts: _Counts) -> int:
    """Solve `multiplied * made <= most made` for the bytes read.

    In one loop an object of n elements (3 bytes each at least) and a text of s bytes makes n * s, which is at most a
    twelfth of the square of what is read; loops within loops make as much as the library lets them iterate.
    """
    steps = counts.loops + counts.binds
    multiplied = ((steps + counts.growth) / steps) ** steps if steps else 1 + counts.growth
    bounds = [LARGEST]
    if counts.growth:
        if counts.deepest_growth > 1:
            bounds.append(int(_MOST_MADE / (_ITERATIONS * multiplied)))
        elif counts.deepest_growth:
            bounds.append(int((12 * _MOST_MADE / multiplied) ** 0.5))
        else:
            bounds.append(int(_MOST_MADE / multiplied))
    if counts.deepest_search > 1:
        bounds.append(_MOST_SEARCHED // _ITERATIONS)
    elif counts.deepest_search:
        bounds.append(int((12 * _MOST_SEARCHED) ** 0.5))
    return min(bounds)
