"""Text for an annotation of a Lease: JSON that is compressed, because it says the same names again and again."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec

_LONGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most."""


def pack(record: msgspec.Struct) -> str:
    """The text of a record."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(record), 6)).decode()


def unpack(text: str, decoder: msgspec.json.Decoder[Any], what: str) -> Any:
    """What a text says. Raises ValueError, which names `what` it is, for a text that was not packed like this."""
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _LONGEST)
        if unpacking.eof:
            return decoder.decode(raw)
    except (ValueError, zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"{what} has values that giveway never writes: {error}") from error
    raise ValueError(f"{what} has more than {_LONGEST} bytes, or is cut off")
