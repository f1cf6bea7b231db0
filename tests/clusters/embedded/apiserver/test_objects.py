"""Changes that meet each other, and defaults of what admission adds."""

import asyncio

import pytest

from tests.clusters.embedded.bare import bare_server
from tests.workloads import pod
from webhook.clusters.embedded.protocol.calls import ApiCall

MAPS = "/api/v1/namespaces/n/configmaps"
PODS = "/api/v1/namespaces/n/pods"


async def test_concurrent_patches(client):
    """Patches that name no version never lose each other's changes."""
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await asyncio.gather(*(client.patch(f"{MAPS}/a", {"data": {f"k{number}": "v"}}) for number in range(50)))
    assert len((await client.get(f"{MAPS}/a"))["data"]) == 50


async def test_a_merge_patch_removes_nothing_from_nothing(client):
    """A null for what is not there leaves nothing behind (RFC 7396)."""
    await client.create(MAPS, {"metadata": {"name": "a"}})
    patched = await client.patch(f"{MAPS}/a", {"metadata": {"annotations": {"k": None}}, "data": {"k": None}})
    assert ("data" in patched, "annotations" in patched["metadata"]) == (False, False)


@pytest.mark.parametrize("fields", ["x", [1], {"f:data": 3}], ids=str)
async def test_managed_fields_that_are_none(client, fields):
    """What somebody writes there that is no set of fields manages nothing."""
    await client.create(MAPS, {"metadata": {"name": "a"}})
    row = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    await client.patch(f"{MAPS}/a", {"metadata": {"managedFields": [row]}, "data": {"k": "v"}})
    assert "m" not in [one["manager"] for one in (await client.get(f"{MAPS}/a"))["metadata"]["managedFields"]]


async def test_what_admission_adds_is_completed():
    """A container that admission adds gets its defaults like any other."""

    class AddsContainer:
        async def mutate(self, attributes):
            attributes.object["spec"]["containers"].append({"name": "added", "image": "x:1"})
            return attributes.object

        async def validate(self, attributes):
            assert attributes.object["metadata"]["uid"]

    created = await bare_server(admission=AddsContainer()).local().create(PODS, pod("a"))
    assert created["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"
    assert "added" not in str(created["metadata"]["managedFields"])


@pytest.mark.parametrize("options", [{"gracePeriodSeconds": "5"}, {"propagationPolicy": "Orphan"}], ids=str)
async def test_what_is_deleted_only_by_a_body(api, client, options):
    """Options of a DELETE that would be passed over in the query are refused there."""
    await client.create(MAPS, {"metadata": {"name": "a"}})
    reply = await api.handle(ApiCall("DELETE", f"{MAPS}/a", options))
    assert (reply.status, b"send DeleteOptions in the body" in reply.body) == (400, True)
