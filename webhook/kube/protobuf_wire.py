"""The wire format of protobuf messages, without a schema: numbers, wire types and raw values of their fields."""

from collections.abc import Iterator

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
"""The wire types that are in use."""
_BITS = 64


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value (an int for a varint, else bytes) of each field. Raises WireError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, wire, value
            continue
        if wire == LENGTH_DELIMITED:
            size, at = _varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise WireError(f"has a field of wire type {wire}")
        if at + size > len(data):
            raise WireError("is cut off")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at this place, and the place behind it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift >= _BITS:
            raise WireError("has a number of more than 64 bits")
    raise WireError("is cut off")
