"""The filter for devices, against every choice of devices and pods."""

import pytest

from tests.preemption.devices.test_decision_oracle import compare


@pytest.mark.parametrize("start", range(300, 600, 100))
def test_decisions_for_devices(start: int):
    """A pod with claims fits where the oracle says so, and nobody goes who could stay."""
    compare(range(start, start + 100))
