"""`giveway explain workload`: how often, for whom, and what a limit leaves."""

from unittest.mock import AsyncMock, Mock

import pytest

from tests.reconciler.builders import START
from webhook.cli.explain import print_workload, read_evictions
from webhook.kube.errors import ApiError
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.reconciler.evictions.log import PodEviction
from webhook.reconciler.evictions.store import EVICTIONS, NOTHING, EvictionRecord, encode

API = "Deployment/shop/api"


def gone(workload, preemptor, age):
    """The eviction of a pod of a workload for another one, so many seconds ago."""
    return PodEviction(-age, workload, "", preemptor=preemptor)


def recorded(*rows):
    """What a leader wrote at the start."""
    return EvictionRecord(START, evictions=rows)


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


async def test_what_was_evicted_is_read():
    """It is what the reconciler has written, nothing without a Lease, and an error if nobody would have written it."""
    row = gone("Job/default/db", API, 10.0)
    lease = Lease(metadata=ObjectMeta(name="x", annotations={EVICTIONS: encode(recorded(row))}))
    client = Mock(get=AsyncMock(return_value=lease))
    read = await read_evictions(client, "giveway-system")
    assert read.evictions == (row,)
    client.get.assert_awaited_with(LEASE.path("giveway-system", "giveway-reconciler-evictions"), Lease)
    lease.metadata.annotations = {EVICTIONS: "x"}
    with pytest.raises(ValueError, match="the record of evictions"):
        await read_evictions(client, "giveway-system")
    client.get.side_effect = ApiError(404, "NotFound", "there is none")
    assert await read_evictions(client, "giveway-system") == NOTHING
