"""Scenarios that simulations and the embedded cluster play, on any control plane: the same pods, budgets and Jobs.

A real kube-controller-manager is the truth of both (`tests/clusters/test_drivers.py` holds the other two to the same
views). Pods end at once here, so of what is seen while they are leaving only the last view is asked for.
"""

import asyncio
import copy
import json
from contextlib import suppress

import pytest

from tests.clusters.both_drivers import NODES, RESOURCES, Cluster, Json, reaches
from tests.clusters.test_drivers import SCENARIOS
from tests.e2e.conftest import LABEL, Sandbox
from webhook.clusters.embedded.embedded_cluster import node
from webhook.kube.errors import ApiError
from webhook.kube.resources import POD

UNPLAYABLE = {
    "a granted eviction counts for two minutes",  # It takes that long
    "a Job is complete once enough pods have ended",  # An annotation of giveway's kubelets ends them
    "without either one pod is missing at a time",  # An API server refuses such a Deployment
    "a budget refuses a second eviction while the first is under way",  # The first is over too soon
}
SECONDS = 60.0
"""A Job waits for 10 s and longer before it makes a pod in the place of one that has failed."""


class SandboxCluster(Cluster):
    """A cluster of which a sandbox is used: its namespace, its nodes, and pods that select these."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox.client, sandbox.id)
        self._sandbox = sandbox

    async def apply(self, body: Json) -> None:
        for shared in (*NODES, "node-3", "node-4"):
            body = json.loads(json.dumps(body).replace(f'"{shared}"', f'"{self.namespace}-{shared}"'))
        resource = RESOURCES[body["kind"]]
        if body["kind"] == "Node":
            body["metadata"]["labels"][LABEL] = self.namespace
            await self._sandbox.create(resource, body)
            await self.admin.patch(resource.path(None, body["metadata"]["name"], "status"), {"status": body["status"]})
            return
        pod = body if body["kind"] == "Pod" else (body.get("spec") or {}).get("template")
        if pod is not None:
            pod["spec"]["nodeSelector"] = {**pod["spec"].get("nodeSelector", {}), LABEL: self.namespace}
        await super().apply(body)

    async def evict(self, app: str) -> None:
        """Evict a pod; one of a Job ends as a kubelet ends it: Failed before it is gone."""
        name = (await self.pods(app))[0]["metadata"]["name"]
        path = POD.path(self.namespace, name)
        try:
            await self.evict_one(name)
        except ApiError as error:
            if error.status != 429:
                raise
            return
        with suppress(ApiError):
            owners = (await self.admin.get(path))["metadata"].get("ownerReferences") or ()
            if any(owner["kind"] == "Job" for owner in owners):
                await self.admin.patch(f"{path}/status", {"status": {"phase": "Failed"}}, kind="strategic")


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - UNPLAYABLE))
async def test_a_control_plane_does_it(another_cluster, sandbox, name):
    """Each action is followed by its last view, and that stays."""
    cluster, scenario = SandboxCluster(sandbox), SCENARIOS[name]
    for name_of_node in NODES:
        await cluster.apply(node(name_of_node))
    for verb, what, views in scenario.steps:
        await getattr(cluster, verb)(copy.deepcopy(what))
        await reaches(cluster, views[-1], SECONDS)
        await asyncio.sleep(0.5)
        assert await cluster.look() == views[-1]


def test_every_scenario_is_played_or_named():
    """What is left out is among the scenarios."""
    assert SCENARIOS.keys() >= UNPLAYABLE
