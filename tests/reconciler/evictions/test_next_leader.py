"""What a leader has written of evictions, on a cluster: for the next leader, and for people."""

from typing import Any

import pytest

from tests.inspection.command import giveway
from tests.reconciler.acting import PODS, managing, playing
from tests.workloads import eventually
from tests.workloads import pod as pod_body
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.reconciler.evictions.store import EVICTIONS, decode


async def owned(play: Any, name: str, on: str, cpu: str = "6") -> None:
    """A victim of a Training."""
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": "db", "uid": "u-db", "controller": True}
    body = pod_body(name, cpu=cpu, node=on, priorityClassName="low")
    body["metadata"]["ownerReferences"] = [owner]
    await play.client.create(PODS, body)

    async def runs() -> bool:
        return (await play.client.get(f"{PODS}/{name}", Pod)).status.phase == "Running"

    await eventually(runs)


@pytest.mark.slow
async def test_the_next_leader_knows_how_often_a_workload_was_evicted():
    """What a leader wrote a later one reads, and `giveway explain workload` shows it."""
    limit = managing(limits=Limits(per_workload=WorkloadLimit(2)))
    async with playing() as play:
        async with play.reconciling(limit) as first:
            await owned(play, "a", "node-1")
            await play.preemptor("p")
            await play.bound("p")
            known = first.reconciler.evaluator.log
            await eventually(lambda: known.counts(1e12, 1e12))
        lease = await play.client.get(LEASE.path("kube-system", "giveway-reconciler-evictions"))
        written = decode(lease["metadata"]["annotations"][EVICTIONS]).evictions
        assert [(row.workload, row.preemptor) for row in written] == [("Training/default/db", "Pod/default/p")]
        async with play.reconciling(limit) as second:
            await eventually(lambda: second.reconciler.leading)
            log, clock = second.reconciler.evaluator.log, second.clock
            assert log.counts(3600.0, clock.monotonic()) == {"Training/default/db": 1}
        shown = await giveway(
            "explain", "workload", "Training/db", "-n", "default", "--system-namespace", "kube-system",
            "--kubeconfig", play.cluster.kubeconfig,
        )  # fmt: skip
        assert shown.exit_code == 0, shown.stderr
        assert "Training/default/db was evicted: 1 in the last hour" in shown.stdout
        assert "for Pod/default/p" in shown.stdout
