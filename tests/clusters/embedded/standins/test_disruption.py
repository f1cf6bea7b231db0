"""The disruption controller: what a budget's status says."""

from __future__ import annotations

import pytest

from tests.workloads import budget, condition, eventually, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import POD, POD_DISRUPTION_BUDGET

NS = "default"
BUDGETS = POD_DISRUPTION_BUDGET.path(NS)
WEB = {"app": "web"}
CLUSTER = {"nodes": 2}


async def status_of(admin, name: str = "web", **wanted: int):
    """The budget's status once it has these numbers."""

    async def check():
        status = (await admin.get(f"{BUDGETS}/{name}")).get("status", {})
        return status if wanted.items() <= status.items() else None

    return await eventually(check, what=str(wanted))


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        pytest.param("batch/v1", "Job", "jobs.batch does not implement the scale subresource", id="Job"),
        pytest.param(
            "example.com/v1", "Shard", 'no matches for kind "Shard" in version "example.com/v1"', id="unknown"
        ),
        pytest.param("apps/v1", "ReplicaSet", 'found no controllers for pod "one"', id="gone"),
    ],
)
async def test_a_pod_whose_controller_has_no_scale_is_not_counted(api_version, kind, message):
    """The budget allows nothing and its condition says why; a number of minAvailable needs no scale."""
    async with EmbeddedCluster(nodes=1, without=("garbage",)) as cluster:
        admin = cluster.api.local()
        owner = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": True}
        body = pod("one", labels=WEB)
        body["metadata"]["ownerReferences"] = [owner]
        await admin.create(POD.path(NS), body)
        await admin.create(BUDGETS, budget("web", WEB, minAvailable="10%"))

        async def failed():
            status = (await admin.get(f"{BUDGETS}/web")).get("status", {})
            return condition({"status": status}, "DisruptionAllowed").get("reason") == "SyncFailed" and status

        status = await eventually(failed)
        assert condition({"status": status}, "DisruptionAllowed")["message"] == message
        assert status["disruptionsAllowed"] == 0
        await admin.patch(f"{BUDGETS}/web", {"spec": {"minAvailable": 0}})
        status = await status_of(admin, disruptionsAllowed=1, expectedPods=1)
        assert condition({"status": status}, "DisruptionAllowed")["reason"] == "SufficientPods"


async def test_empty_selector_covers_the_namespace(admin):
    """An empty selector covers every pod of the namespace, and none of another."""
    await admin.create(POD.path(NS), pod("one"))
    await admin.create(POD.path("kube-system"), pod("other"))
    body = budget("web", {}, minAvailable=0)
    body["spec"]["selector"] = {}
    await admin.create(BUDGETS, body)
    await status_of(admin, expectedPods=1, currentHealthy=1)
