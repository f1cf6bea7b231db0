"""JSON that nests deeper than a decoder goes, about a thousand levels: the API server takes ten thousand.

Whoever makes an object may nest what nobody here reads, as a ResourceClaim's parameters for a driver, and a decoder
goes through that, too. Without such values the object, or the list that it is in, decodes like any other.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
_DEEPEST = 100
"""Levels that are kept: no field that is read lies as deep."""
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)


def decode_deep(decode: Callable[[bytes | msgspec.Raw], T], text: bytes | msgspec.Raw) -> T:
    """What `decode` makes of the text, or, if that is too deep, of the text without what nests deepest."""
    try:
        return decode(text)
    except RecursionError:
        return decode(_shallow(bytes(text)))


def _shallow(text: bytes) -> bytes:
    """The same JSON with null for each value that lies too deep; cut off there if it does not end."""
    kept, depth, end = list[bytes](), 0, 0
    for part in _STRING_OR_BRACKET.finditer(text):
        if part[0] in b"[{":
            depth += 1
            if depth == _DEEPEST:
                kept += text[end : part.start()], b"null"
        elif part[0] in b"]}":
            depth -= 1
            if depth == _DEEPEST - 1:
                end = part.end()
    if depth < _DEEPEST:
        kept.append(text[end:])
    return b"".join(kept)
