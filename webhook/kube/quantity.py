"""Resource quantities: Kubernetes' notation to integers, rounded away from zero as Kubernetes rounds.

Source of the notation: `k8s.io/apimachinery/pkg/api/resource` (decimal and binary suffixes, exponents).
"""

import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache

from webhook.kube.objects.meta import Quantity

INT64_MAX = 2**63 - 1
"""Kubernetes keeps amounts in an int64 and caps what is larger."""
NANOS = 10**9
"""Nanos of one unit: the API server keeps no finer fractions."""

_NOTATION = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?\d+))?", re.ASCII
)
_SUFFIX = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_EXACT = Context(prec=80)
_LONGEST = 64
_LARGEST_EXPONENT = 100


class QuantityError(ValueError):
    """A text that is not a quantity."""


def units(quantity: Quantity) -> int:
    """The amount in whole units (bytes, counts), rounded away from zero, capped to an int64. Raises QuantityError."""
    amount = nanos(quantity)
    return amount // NANOS if amount < 0 else -(-amount // NANOS)


def nanos(quantity: Quantity) -> int:
    """The amount in billionths of a unit, not rounded further; capped to an int64 of units. Raises QuantityError."""
    return _nanos(str(quantity))


@lru_cache(maxsize=8192)
def _nanos(text: str) -> int:
    match = _NOTATION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(
            f"{text[:_LONGEST]!r} is not a quantity: expected a number with an optional suffix,"
            " such as 250m, 2, 1.5 or 64Mi"
        )
    number, suffix, exponent = match.groups()
    power = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, int(exponent or 0)))
    amount = _EXACT.multiply(
        _EXACT.scaleb(Decimal(number), power),
        _SUFFIX.get(suffix, Decimal(1)) * NANOS,
    )
    whole = int(amount.to_integral_value(rounding=ROUND_UP, context=_EXACT))
    return max(-INT64_MAX * NANOS, min(INT64_MAX * NANOS, whole))
