"""Waiting pods that want fewer devices take what comes free first: such candidates come last, and it is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reconciler.builders import pod
from tests.reconciler.device_settings import Devices, claim, uses
from webhook.reconciler.evaluate.outcomes import Evicts


def setting_of(*, whole: bool) -> Devices:
    """Two nodes with two devices each, held one by one on `n1`, and by one pod on `n2` if `whole`."""
    setting = Devices(n1=2, n2=2)
    if whole:
        for number in range(2):
            setting.remove(f"default/n2-{number}")
            setting.claim(claim(f"c-n2-{number}"))
        setting.add(pod("both", "100m", node="n2", annotations={}, priority=90, spec=uses("c-both")))
        setting.claim(claim("c-both", 2, held=("d0", "d1"), on="n2", by=("both",)))
    return setting


def waits(setting: Devices, count: int, *, priority: int = 10, **spec: Any) -> None:
    """A pod waits for so many devices."""
    setting.claim(claim("c-other", count))
    setting.add(pod("other", "100m", priority=priority, spec={**uses("c-other"), **spec}))


MIGHT = "default/other of priority {}, which waits, might take a part of the devices"


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        pytest.param({"count": 1}, "n2", id="of lower priority"),
        pytest.param({"count": 1, "priority": 100}, "n2", id="of equal priority"),
        pytest.param({"count": 1, "schedulerName": "other"}, "n2", id="of another scheduler"),
        pytest.param({"count": 2}, "n1", id="wants as much"),
        pytest.param({"count": 1, "nodeSelector": {"there": "not"}}, "n1", id="goes elsewhere"),
    ],
)
def test_devices_that_come_free_at_once_are_preferred(fields: dict[str, Any], node: str):
    """One pod of higher priority goes rather than two whose devices a waiting pod would take one by one."""
    setting = setting_of(whole=True)
    waits(setting, **fields)
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts)
    assert outcome.node == node
    told = MIGHT.format(fields.get("priority", 10)) in outcome.because
    assert told is (node == "n2")


def test_nobody_waits():
    """Then the best candidate is taken, as ever."""
    outcome = setting_of(whole=True)
    found = outcome.evaluate(outcome.wants("p", 2))
    assert isinstance(found, Evicts)
    assert (found.node, "might take" in found.because) == ("n1", False)


def test_where_they_come_free_one_by_one_everywhere():
    """The plan is made all the same, and says who might take a part."""
    setting = setting_of(whole=False)
    waits(setting, 1)
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts)
    assert outcome.because == MIGHT.format(10) + " before all of them are free, on every node that was looked at"


def test_one_device_is_no_part():
    """Who wants one device, which comes free at once, is tried first."""
    setting = setting_of(whole=False)
    waits(setting, 1)
    outcome = setting.evaluate(setting.wants("p", 1))
    assert isinstance(outcome, Evicts)
    assert "might take" not in outcome.because
