"""The FlowSchemas of manifests/components: the API server takes them, and has the levels that they name."""

import pytest

from tests.manifests.objects import ROOT, documents
from tests.workloads import served
from webhook.kube.client import Client

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS = documents(ROOT / "manifests" / "components" / "flow-schema" / "flow-schemas.yaml")


@pytest.fixture
async def levels(client: Client) -> set[str]:
    """The names of the cluster's priority levels; the embedded control plane has none."""
    found, _ = await served(client.list(f"{GROUP}/prioritylevelconfigurations", dict), "priority levels")
    return {one["metadata"]["name"] for one in found}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema["metadata"]["name"])
async def test_the_api_server_takes_them(client, levels, schema):
    """A dry run of each is accepted, and its level is there."""
    renamed = {**schema, "metadata": {"name": f"{schema['metadata']['name']}-e2e"}}
    made = await client.create(f"{GROUP}/flowschemas", renamed, dryRun="All")
    assert made["spec"]["matchingPrecedence"] == schema["spec"]["matchingPrecedence"]
    assert schema["spec"]["priorityLevelConfiguration"]["name"] in levels
