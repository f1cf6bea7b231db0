"""What webhooks are sent looks like what a real API server sent them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.embedded.admission_chain.asking import PODS, register
from tests.clusters.embedded.webhook_server import WebhookServer
from tests.workloads import namespace, pod, priority_class
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


@asynccontextmanager
async def everyone(*, plugin: bool = True) -> AsyncIterator[tuple[EmbeddedCluster, Any]]:
    """A control plane that lets everyone do everything, with a namespace for it, and its administrator's client."""
    disabled = ("ServiceAccount",) if plugin else ("ServiceAccount", "Priority")
    without = ("scheduler", "kubelet", "replicaset", "deployment", "daemonset", "statefulset", "job", "garbage")
    async with EmbeddedCluster(nodes=0, without=without, disabled_plugins=disabled) as cluster:
        admin = cluster.api.local()
        rbac = "rbac.authorization.k8s.io"
        reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [{"kind": "Group", "apiGroup": rbac, "name": "system:authenticated"}]
        binding = {"metadata": {"name": "everyone"}, "roleRef": reference, "subjects": subjects}
        await admin.create(f"/apis/{rbac}/v1/clusterrolebindings", binding)
        yield cluster, admin


async def ask(admin: Any, server: WebhookServer) -> None:
    """From now on both phases are asked about everything."""
    for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
        await register(admin, kind, server.hook(path=path, rules=[EVERYTHING]))


async def send(cluster: EmbeddedCluster, path: str, body: Any, request: dict[str, Any]) -> None:
    """POST as recorded once more: same user, same options."""
    options = request["options"] or {}
    query = {key: str(options[key]) for key in ("fieldManager", "fieldValidation") if key in options}
    if request["dryRun"]:
        query["dryRun"] = "All"
    headers = {"content-type": "application/json"}
    call = ApiCall("POST", path, query, headers, json.dumps(body).encode(), user_of(request))
    reply = await cluster.api.handle(call)
    assert reply.status < 300, reply.body


@pytest.mark.parametrize("row", rows("CREATE"))
async def test_create_review_equals_the_recorded_one(server, row):
    """The AdmissionReview of a CREATE equals the recorded one, key for key."""
    request = row["review"]["request"]
    async with everyone(plugin=row["plugin"]) as (cluster, admin):
        if request["kind"]["kind"] != "Namespace":
            await admin.create(NAMESPACE.path(), namespace("team-a"))
        if request["kind"]["kind"] != "PriorityClass":
            await admin.create(PRIORITY_CLASS.path(), priority_class("low-priority", 80))
            meek = priority_class("high-priority", 1_000_000, preemptionPolicy="Never")
            await admin.create(PRIORITY_CLASS.path(), meek)
        await ask(admin, server)
        body = as_sent(request["object"], plugin=row["plugin"])
        await send(cluster, collection(request), body, request)
    sent = server.reviews[0 if row["name"].startswith("mutate") else 1]
    assert list(sent) == ["kind", "apiVersion", "request"]
    assert server.queries[0] == row["query"]
    assert list(sent["request"]) == list(request)
    assert comparable(sent["request"]) == comparable(request)


@pytest.mark.parametrize("row", rows("CREATE", "binding") + rows("CREATE", "eviction"))
async def test_sub_resource_review_equals_the_recorded_one(server, row):
    """A Binding or Eviction arrives as its own kind under the pod's sub-resource, also if its sender names none."""
    request = row["review"]["request"]
    async with everyone() as (cluster, admin):
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        made = await admin.create(collection(request), pod(request["name"]))
        await ask(admin, server)
        body = json.loads(json.dumps(request["object"]))
        del body["kind"], body["apiVersion"]
        if "uid" in body["metadata"]:
            body["metadata"]["uid"] = made["metadata"]["uid"]
        await send(cluster, f"{collection(request)}/{request['name']}/{request['subResource']}", body, request)
    seen = server.requests[0 if row["name"].startswith("mutate") else 1]
    assert list(seen) == list(request)
    assert comparable(seen) == comparable(request)


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
async def test_update_and_delete_carry_what_the_recorded_ones_carry(server, verb):
    """UPDATE has object and oldObject, DELETE only oldObject; both have the recorded keys in order."""
    recorded = rows(verb)[0].values[0]["review"]["request"]
    async with everyone() as (_, admin):
        await admin.create(PODS, pod("bare"))
        await ask(admin, server)
        if verb == "UPDATE":
            await admin.patch(f"{PODS}/bare", {"metadata": {"labels": {"x": "y"}}}, fieldManager="kubectl-label")
        else:
            await admin.delete(f"{PODS}/bare", {"gracePeriodSeconds": 0})
    request = server.requests[0]
    assert list(request) == list(recorded)
    assert request["operation"] == verb
    assert (request["object"] is None) == (verb == "DELETE")
    assert request["oldObject"]["metadata"]["name"] == "bare"
    assert list(request["oldObject"])[:3] == ["kind", "apiVersion", "metadata"]
    assert request["options"]["kind"] == recorded["options"]["kind"]
