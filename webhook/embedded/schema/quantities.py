"""The form in which Kubernetes sends a quantity back: `1000m` as `1`, `0.5` as `500m`, `1024Mi` as `1Gi`."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

__all__ = ["QuantityFormatError", "canonical"]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d+)", re.ASCII)
_DECIMAL = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_ZERO_AT = 3
_LONGEST = 64
_LONGEST_EXPONENT = 4
_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityFormatError(ValueError):
    """A text that is no quantity."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The canonical form. Raises QuantityFormatError."""
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[2][:1] in "eE" and len(match[2]) > _LONGEST_EXPONENT):
        raise QuantityFormatError(_RULE)
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _BINARY[1:]:
        return _binary(number * 1024 ** _BINARY.index(suffix))
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return _exponent(number.scaleb(int(suffix[1:])))
    return _decimal(number.scaleb(3 * (_DECIMAL.index(suffix) - _ZERO_AT)))


def _binary(value: Decimal) -> str:
    if abs(value) < 1024 or value != value.to_integral_value():
        return _decimal(value)
    whole, step = int(value), 0
    while whole % 1024 == 0 and step < len(_BINARY) - 1:
        whole, step = whole // 1024, step + 1
    return f"{whole}{_BINARY[step]}"


def _decimal(value: Decimal) -> str:
    whole, step = _thousands(value)
    return f"{whole}{_DECIMAL[step]}"


def _exponent(value: Decimal) -> str:
    whole, step = _thousands(value)
    return f"{whole}e{3 * (step - _ZERO_AT)}" if step != _ZERO_AT else str(whole)


def _thousands(value: Decimal) -> tuple[int, int]:
    """A whole number of the largest thousandfold unit that leaves no rest; below a nano is rounded up."""
    whole, step = int(value.scaleb(9).to_integral_value(ROUND_CEILING)), 0
    if not whole:
        return 0, _ZERO_AT
    while whole % 1000 == 0 and step < len(_DECIMAL) - 1:
        whole, step = whole // 1000, step + 1
    return whole, step
