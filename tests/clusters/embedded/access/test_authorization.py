"""RBAC from stored objects, where a recording cannot show it: service accounts, and the first roles."""

from __future__ import annotations

import pytest

from tests.workloads import namespace, pod, refusal
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import NAMESPACE, POD

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = f"{RBAC}/namespaces/team-a/rolebindings"
PODS = POD.path("team-a")


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=1, without=("scheduler", "kubelet")) as running:
        admin = running.api.local()
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        await admin.create(PODS, pod("one"))
        await admin.create("/api/v1/namespaces/team-a/serviceaccounts", {"metadata": {"name": "bot"}})
        yield running


@pytest.mark.parametrize(("role", "evicts"), [("view", False), ("edit", True)])
async def test_view_reads_and_edit_writes(cluster, role, evicts):
    """Whoever is bound to `view` reads a namespace's pods; `edit` evicts them, too. A token is its account's user."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    bot = {"kind": "ServiceAccount", "name": "bot", "namespace": "team-a"}
    await cluster.api.local().create(BINDINGS, {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [bot]})
    async with cluster.client(cluster.service_account_token("team-a", "bot")) as client:
        assert len((await client.list(PODS, dict))[0]) == 1
        eviction = client.create(f"{PODS}/one/eviction", {"metadata": {"name": "one"}})
        assert ("cannot create" in await refusal(eviction)) is not evicts
