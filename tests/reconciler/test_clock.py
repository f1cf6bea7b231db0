"""The steady clock: jumps of the system clock neither end a window early nor keep it open."""

import pytest

from tests.cases import table
from webhook.reconciler.clock import SteadyClock


@table(
    "offset, seconds, passed, within",
    ("an hour ahead", 3600.0, 30.0, 30.0, 0.2),
    ("an hour back", -3600.0, 30.0, 30.0, 0.2),
    ("a year ahead", 86400.0 * 365, 30.0, 30.0, 0.2),
    ("a second", 1.0, 300.0, 301.0, 0.01),
)
def test_jumps_and_corrections(offset: float, seconds: float, passed: float, within: float):
    """After a jump of an hour or a year a window of 30 s ends after 30 s; a second is made up for within minutes."""
    real, jump = 100.0, 0.0
    clock = SteadyClock(lambda: 1_000_000 + real + jump, lambda: real)
    jump = offset
    for _ in range(100):
        real += seconds / 100
        now = clock.wall()
    assert now - 1_000_100 == pytest.approx(passed, abs=within)
