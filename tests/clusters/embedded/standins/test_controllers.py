"""The workload controllers act as who they are."""

from __future__ import annotations

from tests.rights import used_rights
from tests.workloads import deployment, eventually
from webhook.kube.resources import DEPLOYMENT, POD

CLUSTER = {"nodes": 1}


async def test_pods_are_created_by_the_real_controllers_users(cluster, admin):
    """Each controller acts as its own service account of kube-system."""
    await admin.create(DEPLOYMENT.path("default"), deployment("web", 1))

    async def made() -> bool:
        return bool((await admin.list(POD.path("default"), dict))[0])

    await eventually(made)
    did = {
        right.full_resource
        for right in used_rights(cluster, "system:serviceaccount:kube-system:replicaset-controller")
        if right.verb == "create"
    }
    assert did == {"pods"}
