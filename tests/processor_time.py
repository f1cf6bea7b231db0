"""Bounds of processor time that hold on slow and on busy machines, too."""

import time
from contextlib import contextmanager

_SQUARES, _REFERENCE = 200_000, 0.01
"""How many are added to see how fast a machine is, and the seconds of one that the bounds are meant for."""


def slowness() -> float:
    """How many times slower this machine is now than the one that the bounds are meant for; 1 at least."""
    began = time.process_time()
    sum(number * number for number in range(_SQUARES))
    return max(1.0, (time.process_time() - began) / _REFERENCE)


@contextmanager
def within(seconds: float):
    """The block takes at most so many seconds of processor time, or as much longer as this machine is slower."""
    before, began = slowness(), time.process_time()
    yield
    taken = time.process_time() - began
    slower = max(before, slowness())
    assert taken < seconds * slower, f"{taken:.2f} s on a machine that is {slower:.1f} times slower"
