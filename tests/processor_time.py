"""Bounds of processor time that hold on slow and on busy machines, too."""

import time
from contextlib import contextmanager

_REFERENCE = 0.05
"""Seconds in which a machine adds a million squares, if it is as fast as the bounds are meant for."""


def _slowness() -> float:
    began = time.process_time()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.process_time() - began) / _REFERENCE)


@contextmanager
def within(seconds: float):
    """The block takes at most so many seconds of processor time, or as much longer as this machine is slower."""
    before, began = _slowness(), time.process_time()
    yield
    taken = time.process_time() - began
    slowness = max(before, _slowness())
    assert taken < seconds * slowness, f"{taken:.2f} s on a machine that is {slowness:.1f} times slower"
