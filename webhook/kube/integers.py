"""Whole numbers that are written as text, in labels and annotations, as Kubernetes' Go code reads them."""

import re

_INTEGER = re.compile(r"[+-]?\d{1,63}", re.ASCII)


def integer(text: str, bits: int = 64) -> int | None:
    """The number, as `strconv.ParseInt(text, 10, bits)` reads it; None for what is no number or beyond these bits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None
