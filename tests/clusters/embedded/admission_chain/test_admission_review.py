"""What webhooks are sent looks like what a real API server sent them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer, configuration
from tests.workloads import namespace, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.api_resources import RESOURCES
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS
from webhook.policy.evaluation.request import UserInfo

DATA = Path(__file__).parent / "data" / "admission-reviews.jsonl.gz"
RECORDED = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
"""AdmissionReviews of a real control plane, without managedFields: name, plugin (Priority on), path, query, review."""

SERVER_SET = ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields")
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}


def rows(operation: str, sub_resource: str = "") -> list[Any]:
    """Recorded requests of one kind, as parameters."""
    found = [
        row
        for row in RECORDED
        if row["review"]["request"]["operation"] == operation
        and row["review"]["request"].get("subResource", "") == sub_resource
    ]
    return [pytest.param(row, id=f"{row['name']}-{'on' if row['plugin'] else 'off'}") for row in found]


def collection(request: dict[str, Any]) -> str:
    """The URL that a recorded request was sent to, without the object's name."""
    resource = request["resource"]
    row = next(one for one in RESOURCES if (one.group, one.plural) == (resource["group"], resource["resource"]))
    return row.path(request["namespace"] if row.namespaced else None)


def user_of(request: dict[str, Any]) -> UserInfo:
    """The recorded user, with the rights to do it."""
    info = request["userInfo"]
    extra = {key: tuple(values) for key, values in info.get("extra", {}).items()}
    return UserInfo(info["username"], tuple(info["groups"]), info["uid"], extra)


def was_generated(metadata: dict[str, Any]) -> bool:
    """Whether a name is the prefix with five random characters."""
    prefix = metadata.get("generateName")
    return bool(prefix) and re.fullmatch(re.escape(prefix) + "[a-z0-9]{5}", metadata.get("name", "")) is not None


def as_sent(obj: dict[str, Any], *, plugin: bool) -> dict[str, Any]:
    """A recorded object as its author sent it: without what the server fills in."""
    sent = json.loads(json.dumps(obj))
    for key in SERVER_SET:
        sent["metadata"].pop(key, None)
    if was_generated(sent["metadata"]):
        sent["metadata"].pop("name", None)
    sent.pop("status", None)
    if plugin and sent["kind"] == "Pod":
        for key in ("priority", "preemptionPolicy"):
            sent["spec"].pop(key, None)
        tolerations = sent["spec"].pop("tolerations", [])
        sent["spec"]["tolerations"] = [one for one in tolerations if "tolerationSeconds" not in one]
    return sent


def comparable(request: dict[str, Any]) -> dict[str, Any]:
    """A request without ids, names and times that differ from run to run."""
    plain = json.loads(json.dumps(request))
    plain.pop("uid")
    for key in ("object", "oldObject"):
        metadata = (plain.get(key) or {}).get("metadata", {})
        for field in ("creationTimestamp", "deletionTimestamp", "uid", "managedFields", "resourceVersion"):
            if field in metadata:
                metadata[field] = "…"
        if was_generated(metadata):
            metadata["name"] = plain["name"] = "…"
        metadata.pop("managedFields", None)
    return plain


async def start(server: WebhookServer, *, plugin: bool) -> EmbeddedCluster:
    """A control plane that sends everything to the webhook, and lets everyone do everything."""
    disabled = ("ServiceAccount",) if plugin else ("ServiceAccount", "Priority")
    without = ("scheduler", "kubelet", "replicaset", "deployment", "daemonset", "statefulset", "job", "garbage")
    cluster = EmbeddedCluster(nodes=0, without=without, disabled_plugins=disabled)
    await cluster.start()
    admin = cluster.api.local()
    await admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "everyone"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}],
        },
    )
    return cluster


async def register(cluster: EmbeddedCluster, server: WebhookServer) -> None:
    admin = cluster.api.local()
    for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
        hook = server.hook(path=path, rules=[EVERYTHING])
        body = configuration(kind, "all", hook)
        await admin.create(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations", body)


async def send(cluster: EmbeddedCluster, method: str, path: str, body: Any, request: dict[str, Any]) -> None:
    """Make a recorded request once more: same user, same options."""
    options = request["options"] or {}
    query = {key: str(options[key]) for key in ("fieldManager", "fieldValidation") if key in options}
    if request["dryRun"]:
        query["dryRun"] = "All"
    call = ApiCall(
        method, path, query, {"content-type": "application/json"}, json.dumps(body).encode(), user_of(request)
    )
    reply = await cluster.api.handle(call)
    assert reply.status < 300, reply.body


@pytest.mark.parametrize("row", rows("CREATE"))
async def test_create_review_equals_the_recorded_one(server, row):
    """The AdmissionReview of a CREATE equals the recorded one, key for key."""
    request = row["review"]["request"]
    cluster = await start(server, plugin=row["plugin"])
    try:
        admin = cluster.api.local()
        if request["kind"]["kind"] != "Namespace":
            await admin.create(NAMESPACE.path(), namespace("team-a"))
        if request["kind"]["kind"] != "PriorityClass":
            await admin.create(PRIORITY_CLASS.path(), priority_class("low-priority", 80))
            meek = priority_class("high-priority", 1_000_000, preemptionPolicy="Never")
            await admin.create(PRIORITY_CLASS.path(), meek)
        await register(cluster, server)
        body = as_sent(request["object"], plugin=row["plugin"])
        await send(cluster, "POST", collection(request), body, request)
    finally:
        await cluster.stop()
    phase = row["name"].partition("-")[0]
    sent = server.reviews[0 if phase == "mutate" else 1]
    assert list(sent) == ["kind", "apiVersion", "request"]
    assert server.queries[0] == row["query"]
    assert list(sent["request"]) == list(request)
    assert comparable(sent["request"]) == comparable(request)


@pytest.mark.parametrize("row", rows("CREATE", "binding") + rows("CREATE", "eviction"))
async def test_sub_resource_review_equals_the_recorded_one(server, row):
    """A Binding or Eviction arrives as its own kind under the pod's sub-resource."""
    request = row["review"]["request"]
    cluster = await start(server, plugin=True)
    try:
        admin = cluster.api.local()
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        spec = {"containers": [{"name": "c", "image": "nginx"}]}
        body = {"kind": "Pod", "metadata": {"name": request["name"]}, "spec": spec}
        made = await admin.create(collection(request), body)
        await register(cluster, server)
        sent = json.loads(json.dumps(request["object"]))
        if "uid" in sent["metadata"]:
            sent["metadata"]["uid"] = made["metadata"]["uid"]
        await send(cluster, "POST", f"{collection(request)}/{request['name']}/{request['subResource']}", sent, request)
    finally:
        await cluster.stop()
    seen = server.requests[0 if row["name"].startswith("mutate") else 1]
    assert list(seen) == list(request)
    assert comparable(seen) == comparable(request)


@pytest.mark.parametrize(
    ("verb", "keys"),
    [("UPDATE", rows("UPDATE")[0].values[0]), ("DELETE", rows("DELETE")[0].values[0])],
    ids=["update", "delete"],
)
async def test_update_and_delete_carry_what_the_recorded_ones_carry(server, verb, keys):
    """UPDATE has object and oldObject, DELETE only oldObject; both have the recorded keys in order."""
    recorded = keys["review"]["request"]
    cluster = await start(server, plugin=True)
    try:
        admin = cluster.api.local()
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        path = "/api/v1/namespaces/team-a/pods"
        body = {"kind": "Pod", "metadata": {"name": "bare"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
        await admin.create(path, body)
        await register(cluster, server)
        if verb == "UPDATE":
            await admin.patch(f"{path}/bare", {"metadata": {"labels": {"x": "y"}}}, fieldManager="kubectl-label")
        else:
            await admin.delete(f"{path}/bare", {"gracePeriodSeconds": 0})
    finally:
        await cluster.stop()
    request = server.requests[0]
    assert list(request) == list(recorded)
    assert request["operation"] == verb
    assert (request["object"] is None) == (verb == "DELETE")
    assert request["oldObject"]["metadata"]["name"] == "bare"
    assert list(request["oldObject"])[:3] == ["kind", "apiVersion", "metadata"]
    assert request["options"]["kind"] == recorded["options"]["kind"]
