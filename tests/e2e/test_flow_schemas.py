"""The FlowSchemas of manifests/components: the API server takes them, and has the levels that they name."""

import pytest

from tests.manifests.objects import COMPONENTS, documents
from tests.workloads import served

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS = documents(COMPONENTS / "flow-schema" / "flow-schemas.yaml")


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema["metadata"]["name"])
async def test_the_api_server_takes_them(client, schema):
    """A dry run of each is accepted, and its level is there; the embedded control plane has none."""
    levels, _ = await served(client.list(f"{GROUP}/prioritylevelconfigurations", dict), "priority levels")
    renamed = {**schema, "metadata": {"name": f"{schema['metadata']['name']}-e2e"}}
    made = await client.create(f"{GROUP}/flowschemas", renamed, dryRun="All")
    assert made["spec"]["matchingPrecedence"] == schema["spec"]["matchingPrecedence"]
    assert schema["spec"]["priorityLevelConfiguration"]["name"] in {level["metadata"]["name"] for level in levels}
