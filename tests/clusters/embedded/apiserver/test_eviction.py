"""The eviction sub-resource: budgets enforced atomically, in Kubernetes' words."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.workloads import budget, condition, deployment, eventually, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.errors import ApiError
from webhook.kube.resources import DEPLOYMENT, POD, POD_DISRUPTION_BUDGET

NS = "default"
BUDGETS = POD_DISRUPTION_BUDGET.path(NS)
WEB = {"app": "web"}
CLUSTER = {"nodes": 2}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Evictions hardly wait."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.subresources.PROGRESS_PERIOD", 1e-6)


async def running_web(admin, replicas: int) -> list[str]:
    """A Deployment `web` with all its pods ready; their names."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", replicas))

    async def ready():
        pods, _ = await admin.list(POD.path(NS), dict, labelSelector="app=web")
        names = [one["metadata"]["name"] for one in pods if condition(one, "Ready").get("status") == "True"]
        return names if len(names) == replicas else None

    return await eventually(ready)


async def settled_budget(admin, name: str, **status: int):
    """The budget once its status says so."""

    async def check():
        found = await admin.get(f"{BUDGETS}/{name}")
        known = found.get("status", {})
        return found if status.items() <= known.items() else None

    return await eventually(check, what=f"{name}: {status}")


async def evict(admin, name: str, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
    if options:
        body["deleteOptions"] = options
    return await admin.create(POD.path(NS, name, "eviction"), body)


async def test_unprocessed_budget_asks_to_wait(cluster, admin):
    """A budget whose status lags behind its spec refuses with Retry-After."""
    names = await running_web(admin, 1)
    await cluster._controllers.stop()
    await admin.create(BUDGETS, budget("web", WEB, minAvailable=0))
    with pytest.raises(ApiError) as caught:
        await evict(admin, names[0])
    assert (caught.value.status, caught.value.retry_after) == (429, 10)
    assert "is still being processed by the server" in caught.value.details["causes"][0]["message"]


async def test_two_budgets_over_one_pod_are_500(admin):
    """A pod with two budgets cannot be evicted through the API."""
    names = await running_web(admin, 1)
    for name in ("one", "two"):
        await admin.create(BUDGETS, budget(name, WEB, minAvailable=0))
    with pytest.raises(ApiError) as caught:
        await evict(admin, names[0])
    assert caught.value.status == 500
    assert "more than one PodDisruptionBudget" in caught.value.message


async def test_wrong_types_are_400(admin):
    """Delete options of another type are the caller's fault."""
    await admin.create(POD.path(NS), pod("p"))
    with pytest.raises(ApiError) as caught:
        await admin.create(POD.path(NS, "p", "eviction"), {"deleteOptions": "now"})
    assert caught.value.status == 400


async def test_grace_period_is_honoured(admin):
    """GracePeriodSeconds of the eviction becomes the pod's."""
    names = await running_web(admin, 1)
    await evict(admin, names[0], gracePeriodSeconds=7)
    assert (await admin.get(POD.path(NS, names[0])))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_pending_pod_may_go_whatever_the_budget_says(admin):
    """A pod that does not run yet costs no disruption."""
    await admin.create(POD.path(NS), pod("stuck", cpu="1000", labels=WEB))
    await admin.create(BUDGETS, budget("web", WEB, minAvailable=5))
    assert (await evict(admin, "stuck"))["code"] == 201


async def test_unready_pod_goes_while_enough_are_healthy(admin):
    """A pod that is not ready costs nothing where the budget is satisfied without it."""
    names = await running_web(admin, 3)
    await admin.create(BUDGETS, budget("web", WEB, minAvailable=2))
    await settled_budget(admin, "web", disruptionsAllowed=1)
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await admin.patch(POD.path(NS, names[0], "status"), status, kind="strategic")
    await settled_budget(admin, "web", disruptionsAllowed=0, currentHealthy=2)
    assert (await evict(admin, names[0]))["code"] == 201
    with pytest.raises(ApiError, match="would violate"):
        await evict(admin, names[1])


@pytest.mark.skipped_waits
async def test_evictions_wait_side_by_side(monkeypatch):
    """An eviction waits for the next progress notice: one after the other takes a period each, four at once one."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.subresources.PROGRESS_PERIOD", 0.3)
    async with EmbeddedCluster(nodes=1) as cluster:
        admin = cluster.api.local()
        names = await running_web(admin, 6)
        await evict(admin, names[0])
        begun = time.monotonic()
        await evict(admin, names[1])
        assert 0.2 <= time.monotonic() - begun < 0.5
        begun = time.monotonic()
        await asyncio.gather(*(evict(admin, name) for name in names[2:]))
        assert 0.2 <= time.monotonic() - begun < 0.5
