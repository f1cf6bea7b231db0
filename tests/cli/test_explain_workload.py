"""`giveway explain workload`: how often, for whom, and what a limit leaves."""

import pytest

from tests.reconciler.builders import START
from webhook.cli.explain import print_workload, read_evictions
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.reconciler.evictions.log import LoggedEviction, PodEviction
from webhook.reconciler.evictions.record import NOTHING, EvictionRecord, encode
from webhook.reconciler.evictions.store import EVICTIONS

API = "Deployment/shop/api"


def gone(workload, preemptor, age):
    """The eviction of a pod of a workload for another one, so many seconds ago."""
    return LoggedEviction(-age, 0.0, PodEviction(workload, "", preemptor=preemptor))


def recorded(*rows):
    """What a leader wrote at the start."""
    return EvictionRecord(rfc3339(START), evictions=rows)


def test_what_the_limit_of_a_policy_leaves_is_told(capsys, monkeypatch):
    """Beside how often the workload was evicted, the newest first, and for whom."""
    monkeypatch.setattr("time.time", lambda: START)
    record = recorded(gone("Job/a/a", "Job/a/d", 9.0), gone("Job/a/a", "Job/a/c", 10.0))
    policy = PreemptionPolicy(
        name="p", source=SourcePosition(), preemptors=Preemptors(), limits=Limits(per_workload=WorkloadLimit(3, 60.0))
    )
    print_workload("a", "job/a", record, Policies(preemption=(policy,)))
    said = capsys.readouterr().out
    assert said.startswith("Job/a/a was evicted: 2 in the last hour"), "kinds are found in any case"
    assert said.index("Job/a/d") < said.index("Job/a/c")
    assert "Policy p lets 1 more of 3 go" in said
    print_workload("a", "Jbo/a", record, Policies())
    assert capsys.readouterr().out.endswith("Evicted in namespace a: Job/a/a\n"), "a typo can be seen"


class Leases:
    """An API server with this text on the Lease with the evictions."""

    def __init__(self, text):
        self._text = text

    async def get(self, path, of):
        if self._text is None:
            raise ApiError(404, "NotFound", "there is none")
        assert path.endswith("namespaces/giveway-system/leases/giveway-reconciler-evictions")
        return of(metadata=ObjectMeta(name="x", annotations={EVICTIONS: self._text}))


async def test_what_was_evicted_is_read():
    """It is what the reconciler has written, nothing without a Lease, and an error if nobody would have written it."""
    row = gone("Job/default/db", API, 10.0)
    record = recorded(row)
    read = await read_evictions(Leases(encode(record)), "giveway-system")
    assert read.of_workloads() == {"Job/default/db": [row]}
    assert await read_evictions(Leases(None), "giveway-system") == NOTHING
    with pytest.raises(ValueError, match="the record of evictions"):
        await read_evictions(Leases("x"), "giveway-system")
