"""Namespaces that empty themselves and objects that go with their owners."""

from __future__ import annotations

import pytest

from tests.workloads import budget, deployment, eventually, is_there, namespace, pod
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, POD_DISRUPTION_BUDGET

NS = "default"
MAPS = CONFIG_MAP.path(NS)
CLUSTER = {"nodes": 1, "termination_seconds": 0.1}


async def names(admin, path: str) -> list[str]:
    return [one["metadata"]["name"] for one in (await admin.list(path, dict))[0]]


async def is_gone(admin, path: str) -> bool:
    return not await is_there(admin, path)


async def config_map(admin, name: str, *owners):
    return await admin.create(MAPS, {"metadata": {"name": name, "ownerReferences": list(owners)}})


def reference(owner):
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}


async def test_namespace_goes_with_everything_in_it(admin):
    """Deleting a namespace shows Terminating, removes its content and then the namespace."""
    await admin.create(NAMESPACE.path(), namespace("x"))
    await admin.create(POD.path("x"), pod("p"))
    await admin.create(DEPLOYMENT.path("x"), deployment("web", 2))
    await admin.create(POD_DISRUPTION_BUDGET.path("x"), budget("web", {"app": "web"}, minAvailable=2))
    await admin.create(CONFIG_MAP.path("x"), {"kind": "ConfigMap", "metadata": {"name": "c"}})
    answer = await admin.delete(NAMESPACE.path(None, "x"))
    assert answer["status"]["phase"] == "Terminating"
    await eventually(lambda: is_gone(admin, NAMESPACE.path(None, "x")))
    for path in (POD.path("x"), DEPLOYMENT.path("x"), CONFIG_MAP.path("x"), POD_DISRUPTION_BUDGET.path("x")):
        assert await names(admin, path) == []


@pytest.mark.parametrize(
    "options", [{"propagationPolicy": "Foreground"}, {"propagationPolicy": "Orphan"}, {"orphanDependents": True}]
)
async def test_only_background_deletion_is_served(admin, options):
    """A deletion that keeps dependents, or the owner for them, is refused."""
    await config_map(admin, "owner")
    with pytest.raises(ApiError, match="dependents are deleted in the background here"):
        await admin.delete(f"{MAPS}/owner", options)


async def test_object_stays_while_one_owner_remains(admin):
    """Of two owners one may go; the object goes with the last."""
    one, two = await config_map(admin, "one"), await config_map(admin, "two")
    await config_map(admin, "child", reference(one), reference(two))
    await config_map(admin, "alone", reference(one))
    await admin.delete(f"{MAPS}/one")
    await eventually(lambda: is_gone(admin, f"{MAPS}/alone"))
    assert "deletionTimestamp" not in (await admin.get(f"{MAPS}/child"))["metadata"]
    await admin.delete(f"{MAPS}/two")
    await eventually(lambda: is_gone(admin, f"{MAPS}/child"))


async def test_object_of_an_owner_that_never_was_is_collected(admin):
    """An owner reference to nothing, or to another object of that name, means deletion."""
    other = await config_map(admin, "other")
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}
    await config_map(admin, "lost", ghost)
    await config_map(admin, "mistaken", {**reference(other), "uid": "00000000-0000-0000-0000-000000000001"})
    await config_map(admin, "kept", reference(other))
    await eventually(lambda: is_gone(admin, f"{MAPS}/lost"))
    await eventually(lambda: is_gone(admin, f"{MAPS}/mistaken"))
    assert not await is_gone(admin, f"{MAPS}/kept")
