"""Decisions recorded from kube-scheduler 1.36 are made again: fits, reasons, candidates, and victims in their order."""

import pytest

from tests.preemption.recorded import DATA, differing, recorded

pytestmark = pytest.mark.slow

SMALL = DATA / "micro.jsonl.gz"
RANDOM = sorted({*DATA.glob("*.jsonl.gz")} - {SMALL})


@pytest.mark.parametrize("path", RANDOM, ids=lambda path: path.name.split(".")[0])
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster of a kind."""
    assert differing(path) == []


def test_each_rule_by_itself_is_kube_schedulers():
    """On small clusters, too; conflicts of disks that pods name themselves are not known (docs/decision.md)."""
    assert differing(SMALL) == ["inline_gce_disk"]


def test_the_records_are_all_there():
    """All files are replayed."""
    assert sorted(map(len, map(recorded, [*RANDOM, SMALL]))) == [*[20] * 6, *[40] * 10, 73]
