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


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 86400.0 * 365])
def test_jump_moves_no_window(jump: float):
    """After a jump of an hour or a year a window of 30 s ends after 30 s."""
    machine = Machine()
    machine.offset = jump
    assert machine.passes(30.0) == pytest.approx(130.0, abs=0.2)


def test_small_corrections_are_followed():
    """A clock that was put right by a second is followed within minutes."""
    machine = Machine()
    machine.offset = 1.0
    assert machine.passes(300.0) == pytest.approx(401.0, abs=0.01)
