"""Functions on strings that the library gets wrong at their ends, as cel-go and the API server have them.

The library (cel-cpp) refuses `'abc'.substring(0, 3)`, gives `['']` for `''.split('')`, and searches from other places
than cel-go if an offset lies at the end or beyond. Each of these functions is declared again under a name of the same
length, so that columns in messages stay right, and calls of it are renamed (cel-go, `ext/strings.go`). What cannot be
mended so is in docs/policies.md, "CEL".
"""

import re
from typing import Any

TOKEN = re.compile(
    r"""//[^\n]*
    |[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3})
    |[rR][bB]?(?:"[^"\n]*"|'[^'\n]*')
    |[bB]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |[A-Za-z_]\w*|\d[\w.]*|\s+|&&|\|\||[=!<>]=|\.\?|\[\?|.""",
    re.VERBOSE | re.DOTALL,
)
"""A literal, a comment, a word, space or an operator of an expression."""
_NAMES = {"substring": "_ubstring", "split": "_plit", "indexOf": "_ndexOf", "lastIndexOf": "_astIndexOf"}
DECLARED = frozenset(_NAMES)
"""The functions that are declared again."""
_PLAIN = {made: name for name, made in _NAMES.items()}


def renamed(text: str) -> str:
    """The expression with calls of these functions under their declared names."""
    words = [token[0] for token in TOKEN.finditer(text)]
    solid = [place for place, word in enumerate(words) if not word.isspace() and not word.startswith("//")]
    for before, place, after in zip(solid, solid[1:], solid[2:], strict=False):
        if words[before] == "." and words[after] == "(":
            words[place] = _NAMES.get(words[place], words[place])
    return "".join(words)


def plain(text: str) -> str:
    """A message or a name with the functions as people write them."""
    return re.sub(r"\b_\w+", lambda name: _PLAIN.get(name[0], name[0]), text)


def declared(cel: Any) -> list[Any]:
    """The declarations of these functions for an environment of the library."""
    string, number = cel.Type.STRING, cel.Type.INT
    rows = (
        ("substring", string, _substring, [[number], [number, number]]),
        ("split", cel.Type.List(string), _split, [[string], [string, number]]),
        ("indexOf", number, _index_of, [[string], [string, number]]),
        ("lastIndexOf", number, _last_index_of, [[string], [string, number]]),
    )
    return [
        cel.FunctionDecl(
            _NAMES[name],
            [cel.Overload(f"{name}_{len(types)}", gives, [string, *types], True, run) for types in overloads],
        )
        for name, gives, run, overloads in rows
    ]


def _substring(text: str, start: int, end: int | None = None) -> str:
    for place in (start,) if end is None else (start, end):
        if not 0 <= place <= len(text):
            raise ValueError(f"index out of range: {place}")
    if end is not None and start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1) if most else []
    most = len(text) if most < 0 else min(most, len(text))
    return [*text[: most - 1], text[most - 1 :]] if most else []


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise ValueError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if not part:
        return len(text) if start is None else start
    if start is not None and start < 0:
        raise ValueError(f"index out of range: {start}")
    if start is not None and start >= len(text):
        return -1
    # From behind, because `rfind` takes quadratic time where `find` does not
    searched = text if start is None else text[: start + len(part)]
    place = searched[::-1].find(part[::-1])
    return -1 if place < 0 else len(searched) - place - len(part)
