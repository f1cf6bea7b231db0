"""Decisions recorded from kube-scheduler 1.36 are made again: fits, reasons, candidates, and victims in their order.

It does not preempt for devices: its own plugin and allocator were told which pods are removed, so that the victims'
devices are free.
"""

import pytest

from tests.preemption.recorded import DATA, differing, recorded

pytestmark = pytest.mark.slow

SMALL = DATA / "micro.jsonl.gz"
RANDOM = sorted({*DATA.glob("*.jsonl.gz")} - {SMALL})
DEVICES = sorted(DATA.glob("devices/*.jsonl.xz"))


@pytest.mark.parametrize("path", [*RANDOM, *DEVICES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster of a kind; with devices also on small ones that are each about one rule."""
    assert differing(path) == []


def test_each_rule_by_itself_is_kube_schedulers():
    """On small clusters, too; conflicts of disks that pods name themselves are not known (docs/decision.md)."""
    assert differing(SMALL) == ["inline_gce_disk"]


def test_the_records_are_all_there():
    """All files are replayed."""
    assert sorted(map(len, map(recorded, [*RANDOM, SMALL]))) == [*[20] * 6, *[40] * 10, 73]
    assert sorted(map(len, map(recorded, DEVICES))) == [*[12] * 15, 20]
