"""`giveway explain workload`: kinds as kubectl takes them, cycles of any length, and what was evicted a moment ago."""

import pytest

from tests.reconciler.builders import START, FakeClock, pod
from webhook.cli.explain_workload import cycles, kind_named, print_workload, read_past
from webhook.kube.errors import ApiError
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.workload_history import PastEviction, WorkloadHistory, written_text
from webhook.reconciler.plans.eviction_ledger import EVICTIONS, write_ledger
from webhook.reconciler.plans.history_store import HISTORY

WEB, API = "Deployment/shop/web", "Deployment/shop/api"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("Deployment", "Deployment"),
        ("deploy", "Deployment"),
        ("statefulsets", "StatefulSet"),
        ("cronjob", "CronJob"),
        ("pytorchjob", "PyTorchJob"),
        ("Unknown", "Unknown"),
    ],
)
def test_a_kind_is_named_as_kubectl_takes_it(named, found):
    """Short names, plurals and lower case name the kind; kinds of others are found among those that were evicted."""
    assert kind_named(named, {"PyTorchJob/a/b": []}) == found


def test_a_cycle_is_told_whole(capsys, monkeypatch):
    """Whoever asks for one of three workloads reads the way of the evictions around."""
    monkeypatch.setattr("time.time", lambda: START)
    past = {
        "Job/a/c": [PastEviction(START - 50, "Job/a/b")],
        "Job/a/b": [PastEviction(START - 90, "Job/a/a")],
        "Job/a/a": [PastEviction(START - 10, "Job/a/c"), PastEviction(START - 9, "Job/a/d")],
    }
    assert list(cycles("Job/a/b", past)) == [["Job/a/b", "Job/a/c", "Job/a/a", "Job/a/b"]]
    policy = PreemptionPolicy(
        name="p", source=SourcePosition(), preemptors=Preemptors(), limits=Limits(per_workload=WorkloadLimit(3, 60.0))
    )
    print_workload("Job/a/a", past, Policies(preemption=(policy,)))
    said = capsys.readouterr().out
    assert "Cycle: Job/a/a evicted Job/a/b evicted Job/a/c evicted Job/a/a." in " ".join(said.split())
    assert "Policy p lets 1 more of 3 go" in said


class Leases:
    """An API server with these annotations on the Leases of those names."""

    def __init__(self, **annotations):
        self._annotations = annotations

    async def get(self, path, of):
        name = path.rpartition("/")[2]
        if name not in self._annotations:
            raise ApiError(404, "NotFound", "there is none")
        return of(metadata=ObjectMeta(name=name, annotations=self._annotations[name]))


async def test_what_was_evicted_a_moment_ago_is_told():
    """The last minute is on the Lease that is led by: it is told, once, though nobody knows yet for whom."""
    clock, limiter, history = FakeClock(), EvictionLimiter(), WorkloadHistory()
    for at in (10.0, 20.0):
        limiter.note([limiter.eviction_of(pod("a", owner=("Job", "db"), node="n1"))], at)
    history.note("Job/default/db", 10.0, API)
    clock.now = 15.0
    written = written_text(history.rows(15.0), 15.0, clock.wall())
    ledger = write_ledger(limiter, (), 25.0, START + 25.0)
    server = Leases(**{"lead-evictions": {HISTORY: written}, "lead": {EVICTIONS: ledger}})
    past = await read_past(server, "giveway-system", "lead")
    assert past == {"Job/default/db": [PastEviction(START + 10.0, API), PastEviction(START + 20.0, "")]}
    assert await read_past(Leases(), "giveway-system", "lead") == {}
