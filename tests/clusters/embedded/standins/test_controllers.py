"""The workload controllers: pods made, replaced and rolled over."""

from __future__ import annotations

from tests.rights import UsedRights
from tests.workloads import condition, deployment, eventually
from webhook.kube.resources import DEPLOYMENT, POD, REPLICA_SET

NS = "default"
PODS = POD.path(NS)
CLUSTER = {"nodes": 3, "termination_seconds": 0.05}


async def ready_pods(admin, app: str, count: int):
    """The pods of an app once exactly `count` exist, all ready."""

    async def check():
        found, _ = await admin.list(PODS, dict, labelSelector=f"app={app}")
        ready = [one for one in found if condition(one, "Ready").get("status") == "True"]
        return (found or True) if len(found) == len(ready) == count else None

    found = await eventually(check, what=f"{count} ready pods of {app}")
    return [] if found is True else found


async def status_of(admin, path: str, **wanted):
    async def check():
        status = (await admin.get(path)).get("status", {})
        return status if wanted.items() <= status.items() else None

    return await eventually(check, what=f"{path}: {wanted}")


async def test_rollout_replaces_all_pods_and_keeps_enough(admin):
    """A new template rolls over to a new ReplicaSet, the old one ends at zero."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 4))
    await ready_pods(admin, "web", 4)
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}}
    await admin.patch(DEPLOYMENT.path(NS, "web"), template, kind="strategic")
    await status_of(
        admin, DEPLOYMENT.path(NS, "web"), observedGeneration=2, updatedReplicas=4, replicas=4, availableReplicas=4
    )
    images = {one["spec"]["containers"][0]["image"] for one in await ready_pods(admin, "web", 4)}
    assert images == {"nginx:2"}
    sets, _ = await admin.list(REPLICA_SET.path(NS), dict)
    assert sorted(one["spec"]["replicas"] for one in sets) == [0, 4]


async def test_pods_are_created_by_the_real_controllers_users(cluster, admin):
    """Each controller acts as its own service account of kube-system."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 1))
    await ready_pods(admin, "web", 1)
    did = {
        right.full_resource
        for right in UsedRights(cluster).of("system:serviceaccount:kube-system:replicaset-controller")
        if right.verb == "create"
    }
    assert did == {"pods"}
    assert not UsedRights(cluster).of("system:serviceaccount:kube-system:replicaset-controller", allowed=False)
    assert not UsedRights(cluster).of("system:serviceaccount:kube-system:deployment-controller", allowed=False)
