"""When a scheduler is overdue that leaves pods pending which fit (docs/semantics.md D8)."""

import msgspec
import pytest

from tests.reconciler.builders import pod, preemptor
from webhook.kube.object_cache import Change
from webhook.reconciler.preemptors import SchedulerActivity


def at_work() -> SchedulerActivity:
    """Of a scheduler that binds a pod every minute for an hour."""
    made, waits = SchedulerActivity(), preemptor("bound")
    for now in range(0, 3600, 60):
        made.observe(Change("modified", "default/bound", waits, pod("bound", node="n1")), float(now))
    return made


@pytest.mark.parametrize("others", [0, 3000])
def test_a_pod_that_fits_and_is_left_pending_is_overdue_however_many_wait(others: int):
    """A minute after it was first found to fit, if its scheduler was at work by then."""
    schedulers, waits = at_work(), preemptor("p")
    assert not schedulers.overdue(waits, fits=True, now=100.0)
    for number in range(others):
        schedulers.overdue(preemptor(f"o{number}"), fits=True, now=101.0)
    assert not schedulers.overdue(waits, fits=True, now=159.0)
    assert schedulers.overdue(waits, fits=True, now=161.0)


@pytest.mark.parametrize("gone", [None, pod("p", node="n1")], ids=["deleted", "bound"])
def test_a_pod_that_is_gone_or_bound_is_forgotten(gone: object):
    """The next one of its name begins again, and so does one that does not fit for a while."""
    schedulers, waits = at_work(), preemptor("p")
    schedulers.overdue(waits, fits=True, now=100.0)
    schedulers.observe(Change("modified", "default/p", waits, gone), 150.0)
    again = msgspec.structs.replace(waits)
    assert not schedulers.overdue(again, fits=True, now=161.0)
    schedulers.overdue(again, fits=False, now=200.0)
    assert not schedulers.overdue(again, fits=True, now=230.0)
