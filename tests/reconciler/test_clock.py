"""The steady clock: jumps of the system clock neither end a window early nor keep it open."""

import pytest

from webhook.reconciler.clock import SteadyClock


class Machine:
    """A machine whose system clock can be set."""

    def __init__(self) -> None:
        self.real, self.offset = 100.0, 0.0
        self.clock = SteadyClock(lambda: 1_000_000 + self.real + self.offset, lambda: self.real)

    def passes(self, seconds: float) -> float:
        for _ in range(100):
            self.real += seconds / 100
            now = self.clock.wall()
        return now - 1_000_000


@pytest.mark.parametrize(
    ("offset", "seconds", "now", "within"),
    [
        *(
            pytest.param(jump, 30.0, 130.0, 0.2, id=f"a jump of {jump:g} s")
            for jump in (3600.0, -3600.0, 86400.0 * 365)
        ),
        pytest.param(1.0, 300.0, 401.0, 0.01, id="a second"),
    ],
)
def test_jumps_and_corrections(offset: float, seconds: float, now: float, within: float):
    """After a jump of an hour or a year a window of 30 s ends after 30 s; a second is made up for within minutes."""
    machine = Machine()
    machine.offset = offset
    assert machine.passes(seconds) == pytest.approx(now, abs=within)
