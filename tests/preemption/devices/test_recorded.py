"""Decisions with devices as kube-scheduler 1.36 would make them are made again.

It does not preempt for devices: its own plugin and allocator were told which pods are removed, so that the victims'
devices are free.
"""

import pytest

from tests.preemption.recorded import DATA, differing, recorded

pytestmark = pytest.mark.slow

FILES = sorted(DATA.glob("devices/*.jsonl.xz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster of a kind, and on small ones that are each about one rule."""
    assert differing(path) == []


def test_the_records_are_all_there():
    """All files are replayed."""
    assert sorted(map(len, map(recorded, FILES))) == [*[12] * 15, 20]
