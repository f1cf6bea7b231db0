"""What is known of a review without decoding it: how many values it has, and its uid."""

from __future__ import annotations

import re

import msgspec

MOST_VALUES = 300_000
"""Values of a review that is decoded. An object of 1.5 MiB, as etcd takes, has about 100 000; an update has two."""
LONGEST_UID = 128
"""Characters; those of an API server have 36."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_USUAL_PLACE = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([\x20-\x7e]{1,128}?)"')
"""Where the API server writes the uid; read this way only from a body that does not decode."""
_BEGINNING = 4096
"""Bytes of a body in which it is looked for."""


def values(body: bytes) -> int:
    """How many values a body has, at most. What stands in texts is left out only if it would be too many."""
    number = sum(map(body.count, (b",", b"{", b"[")))
    texts = (body.count(b'"') - body.count(b'\\"')) // 2
    if number > MOST_VALUES and texts <= 2 * MOST_VALUES:  # at least every second one is a value, too
        number -= sum(len(text[0]) - len(text[0].translate(None, b",{[")) for text in _STRING.finditer(body))
    return number


def uid_of(body: bytes) -> str:
    """The uid of a review that is not read as a whole, by its usual place; empty if it is not there."""
    match = _USUAL_PLACE.search(body, 0, _BEGINNING)
    return match[1].decode() if match else ""
