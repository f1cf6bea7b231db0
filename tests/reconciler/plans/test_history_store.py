"""The Lease with the history of evictions: what a leader leaves there, and what its successor makes of it."""

import pytest

from tests.inspection.command import giveway
from tests.reconciler.acting import PODS, managing, playing
from tests.workloads import eventually
from tests.workloads import pod as pod_body
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.reconciler.evaluate.workload_history import read_history
from webhook.reconciler.plans.history_store import HISTORY

pytestmark = pytest.mark.slow
LIMIT = managing(limits=Limits(per_workload=WorkloadLimit(2)))


async def owned(play, name, node, cpu="6"):
    """A victim of a Training."""
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": "db", "uid": "u-db", "controller": True}
    body = pod_body(name, cpu=cpu, node=node, priorityClassName="low")
    body["metadata"]["ownerReferences"] = [owner]
    await play.client.create(PODS, body)
    await eventually(lambda: play.phase_is(name, "Running"))


async def test_the_next_leader_knows_how_often_a_workload_was_evicted():
    """A leader that ends writes the history once, a later one reads it, and `giveway explain workload` shows it."""
    async with playing() as play:
        async with play.reconciling(LIMIT) as first:
            await owned(play, "a", "node-1")
            await play.preemptor("p")
            await play.bound("p")
            known = first.reconciler.evaluator.limiter.history
            await eventually(lambda: known.counts(1e12, 1e12))
        lease = await play.client.get(LEASE.path("kube-system", "giveway-reconciler-evictions"))
        written = read_history(lease["metadata"]["annotations"][HISTORY]).workloads
        assert {workload: len(rows) for workload, rows in written.items()} == {"Training/default/db": 1}
        assert written["Training/default/db"][0].preemptor == "Pod/default/p"
        async with play.reconciling(LIMIT) as second:
            await eventually(lambda: second.reconciler.leading)
            history, clock = second.reconciler.evaluator.limiter.history, second.clock
            assert history.counts(3600.0, clock.monotonic()) == {"Training/default/db": 1}
        shown = await giveway(
            "explain", "workload", "Training/db", "-n", "default", "--system-namespace", "kube-system",
            "--kubeconfig", play.cluster.kubeconfig,
        )  # fmt: skip
        assert shown.exit_code == 0, shown.stderr
        assert "Training/default/db was evicted: 1 in the last hour" in shown.stdout
        assert "for Pod/default/p" in shown.stdout
