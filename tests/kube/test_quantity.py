"""Quantities: Kubernetes' notation to integers."""

import pytest

from webhook.kube.quantity import INT64_MAX, QuantityError, nanos, units


@pytest.mark.parametrize(
    ("text", "whole", "exact"),
    [
        ("0", 0, 0),
        ("+1", 1, 10**9),
        ("250m", 1, 250 * 10**6),
        ("1500m", 2, 1500 * 10**6),
        ("1.5", 2, 1500 * 10**6),
        (".5", 1, 500 * 10**6),
        ("5.", 5, 5 * 10**9),
        ("100u", 1, 100_000),
        ("1n", 1, 1),
        ("0.1n", 1, 1),
        ("2k", 2000, 2000 * 10**9),
        ("1M", 10**6, 10**15),
        ("64Mi", 64 * 2**20, 64 * 2**20 * 10**9),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 10**9),
        ("0.1Ki", 103, 102_400 * 10**6),
        ("1e3", 1000, 10**12),
        ("1E3", 1000, 10**12),
        ("1E", 10**18, 10**27),
        ("12e-1", 2, 1200 * 10**6),
        ("-1", -1, -(10**9)),
        ("-1.5", -2, -1500 * 10**6),
        ("-0.1n", -1, -1),
    ],
)
def test_amounts(text, whole, exact):
    """Units and nanos, rounded away from zero, also below it."""
    assert (units(text), nanos(text)) == (whole, exact)


@pytest.mark.parametrize("text", ["1e30", "9223372036854775808", "8Ei", "1e100000000", "9" * 60])
def test_amounts_beyond_int64_are_capped(text):
    """What is larger than an int64 becomes the largest, quickly."""
    assert (units(text), nanos(text)) == (INT64_MAX, INT64_MAX * 10**9)
    assert units("-" + text) == -INT64_MAX


def test_no_digit_is_lost():
    """Amounts that a float could not hold are exact."""
    assert units("9223372036854775807") == INT64_MAX
    assert units("9007199254740993") == 9007199254740993
    assert units("9223372036854775806.00000000000000000000000001") == INT64_MAX


@pytest.mark.parametrize(("number", "whole"), [(2, 2), (1.5, 2), (1e30, INT64_MAX), (0.1, 1)])
def test_numbers_of_json(number, whole):
    """A number in place of a text counts as written."""
    assert units(number) == whole


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "m", "1mm", "1KI", "1ki", "1e", "1e1.5", "--1", "1,5", "0x10", "nan", "inf", "\u0661", "1" * 65],
)
def test_what_is_no_quantity(text):
    """Anything else is refused with an example of what would do."""
    with pytest.raises(QuantityError, match="is not a quantity: expected a number with an optional suffix"):
        units(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_floats_that_are_no_numbers(number):
    """NaN and infinity are no amounts."""
    with pytest.raises(QuantityError):
        nanos(number)
