"""Exchanges recorded with a Kubernetes 1.36 API server, replayed over TLS: the answers must be the same.

Before each exchange the state it was recorded in is made by the steps in BEFORE: other recorded requests, and what
schedulers, kubelets and controllers had done. Set aside are ids, times, versions and the texts of column descriptions.
"""

import asyncio
import json
import re
import ssl
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS

RECORDED = Path(__file__).parent / "data" / "recorded"
EXCHANGES = {path.stem: json.loads(path.read_text()) for path in sorted(RECORDED.glob("*.json"))}

POD = "/api/v1/namespaces/rec/pods/a"
NOW = "2026-11-21T03:02:17Z"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "observedGeneration": 1,
    "status": "False",
    "lastTransitionTime": NOW,
    "reason": "Unschedulable",
    "message": "no nodes available to schedule pods",
}
DISRUPTION = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": NOW}
READY = [
    {"type": name, "status": "True", "lastTransitionTime": NOW} for name in ("Initialized", "ContainersReady", "Ready")
]
BLOCKED = {
    "observedGeneration": 1,
    "disruptionsAllowed": 0,
    "currentHealthy": 1,
    "desiredHealthy": 1,
    "expectedPods": 1,
    "conditions": [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": 1,
            "lastTransitionTime": NOW,
            "reason": "InsufficientPods",
            "message": "",
        }
    ],
}


def status(path, value, agent, kind="strategic-merge-patch"):
    return {
        "method": "PATCH",
        "path": f"{path}/status",
        "contentType": f"application/{kind}+json",
        "agent": agent,
        "body": {"status": value},
    }


UNSCHEDULED = status(POD, {"conditions": [UNSCHEDULABLE]}, "kube-scheduler")
NOT_DISRUPTED = status(
    POD,
    {"conditions": [{**DISRUPTION, "status": "False", "observedGeneration": 1, "reason": None, "message": None}]},
    "kube-controller-manager",
)
SCHEDULED = {
    "method": "POST",
    "path": f"{POD}/binding",
    "agent": "Python",
    "body": {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "rec-n1"}},
}
RUNNING = status(
    POD,
    {"phase": "Running", "startTime": NOW, "conditions": READY},
    "Python",
)
BUDGETED = status("/apis/policy/v1/namespaces/rec/poddisruptionbudgets/rec", BLOCKED, "kube-controller-manager")
LABELLED = {
    "method": "PATCH",
    "path": POD,
    "contentType": "application/merge-patch+json",
    "agent": "Python",
    "body": {"metadata": {"labels": {"q": "17952301"}}},
}
TTL = {
    "method": "PATCH",
    "path": "/api/v1/nodes/rec-n1",
    "contentType": "application/merge-patch+json",
    "agent": "kube-controller-manager",
    "body": {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "0"}}},
}
KILLED = {"method": "DELETE", "path": POD, "body": {"gracePeriodSeconds": 0}}

BASE = ["namespace-create", "priorityclass-create"]
PENDING = [*BASE, "pod-create", UNSCHEDULED]
NOMINATED = [*PENDING, "pod-status-merge-patch-nominate"]
CONDITIONED = [*NOMINATED, "pod-status-strategic-condition"]
ANNOTATED = [*CONDITIONED, NOT_DISRUPTED, "pod-metadata-json-patch"]
BOUND = [*ANNOTATED, "node-create", "node-status-patch", SCHEDULED, RUNNING]
WITH_BUDGET = [*BOUND, "pdb-create", BUDGETED]

BEFORE = {
    "event-create": BASE,
    "lease-create": BASE,
    "namespace-create": [],
    "node-create": [],
    "node-status-patch": ["node-create"],
    "pdb-create": BASE,
    "pdb-get": WITH_BUDGET,
    "pod-binding-second": BOUND,
    "pod-create": BASE,
    "pod-create-already-exists": PENDING,
    "pod-create-dryrun": BASE,
    "pod-create-missing-class": BASE,
    "pod-create-unknown-field-strict": BASE,
    "pod-create-wrong-priority": BASE,
    "pod-delete-graceful": [*BOUND, LABELLED],
    "pod-delete-wrong-uid": BOUND,
    "pod-eviction-blocked-by-pdb": WITH_BUDGET,
    "pod-eviction-dryrun": WITH_BUDGET,
    "pod-get-notfound": BASE,
    "pod-get-table": PENDING,
    "pod-json-patch-test-fails": PENDING,
    "pod-list-fieldselector": PENDING,
    "pod-metadata-json-patch": [*CONDITIONED, NOT_DISRUPTED],
    "pod-priority-immutable": PENDING,
    "pod-put-conflict": CONDITIONED,
    "pod-status-merge-patch-nominate": PENDING,
    "pod-status-strategic-condition": NOMINATED,
    "priorityclass-create": [],
    "priorityclass-system-prefix": [],
    "priorityclass-value-immutable": BASE,
    "priorityclass-value-too-high": [],
}
DISCOVERY = [name for name in EXCHANGES if name.startswith("discovery-")]

NOT_SERVED = {
    "bindings": "answered, as the pods/binding sub-resource is",
    "componentstatuses": "deprecated",
    "mutatingadmissionpolicies": "policies in CEL inside the API server",
    "mutatingadmissionpolicybindings": "policies in CEL inside the API server",
    "validatingadmissionpolicies": "policies in CEL inside the API server",
    "validatingadmissionpolicybindings": "policies in CEL inside the API server",
    "validatingadmissionpolicies/status": "policies in CEL inside the API server",
    "nodes/proxy": "there is no kubelet to reach",
    "pods/attach": "there are no containers",
    "pods/ephemeralcontainers": "there are no containers",
    "pods/exec": "there are no containers",
    "pods/log": "there are no containers",
    "pods/portforward": "there are no containers",
    "pods/proxy": "there are no containers",
    "pods/resize": "there are no containers",
    "services/proxy": "there is no network",
}
"""What Kubernetes serves and the embedded server does not, and why."""


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=0, without=STAND_INS, disabled_plugins=("ServiceAccount",)) as running:
        yield running


@pytest.fixture
async def server(cluster):
    connector = aiohttp.TCPConnector(ssl=cluster_tls(cluster))
    headers = {"Authorization": f"Bearer {cluster.token}", "User-Agent": "Python/3"}
    async with aiohttp.ClientSession(cluster.url, connector=connector, headers=headers) as session:
        yield session


def cluster_tls(cluster):
    return ssl.create_default_context(cafile=str(cluster.ca))


async def send(server, request):
    headers = {"Content-Type": request.get("contentType") or "application/json"}
    if request.get("accept"):
        headers["Accept"] = request["accept"]
    if request.get("agent"):
        headers["User-Agent"] = request["agent"]
    body = None if request.get("body") is None else json.dumps(request["body"])
    url = URL(request["path"], encoded=True)
    async with server.request(request["method"], url, data=body, headers=headers) as response:
        return response.status, response.headers, await response.json()


async def prepare(server, steps):
    for step in steps:
        request = EXCHANGES[step]["request"] if isinstance(step, str) else step
        code, _headers, body = await send(server, request)
        assert code < 300, (step, body)


ASIDE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "description",
    "remainingItemCount",
}


def plain(value, key=""):
    """A body without ids, times and versions."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items() if name not in ASIDE}
    if key == "managedFields":
        value = sorted(value, key=lambda row: (row["manager"], row.get("subresource", "")))
    if isinstance(value, list):
        return [plain(one) for one in value]
    if key in ("lastTransitionTime", "startTime") and value is not None:
        return "TIME"
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", value)
        value = re.sub(r'"a\.\w{5}"', '"a.XXXXX"', value)
        value = re.sub(r"(previously negative\))\n.*", r"\1", value, flags=re.DOTALL)
        return re.sub(r"^\d+s$", "AGE", re.sub(r"^a\.\w{5}$", "a.XXXXX", value))
    return value


@pytest.mark.parametrize("name", BEFORE)
async def test_exchange(server, name):
    """A recorded request is answered with the recorded status, reason, message and object."""
    await prepare(server, BEFORE[name])
    exchange = EXCHANGES[name]
    code, headers, body = await send(server, await with_uid(server, exchange["request"]))
    assert code == exchange["response"]["status"]
    for header, value in exchange["response"]["headers"].items():
        assert headers[header] == value
    assert plain(body) == plain(exchange["response"]["body"])


async def with_uid(server, request):
    """The request with the uid that the object has here."""
    uid = ((request.get("body") or {}).get("metadata") or {}).get("uid") if request["method"] == "PUT" else None
    if uid is None:
        return request
    _code, _headers, current = await send(server, {"method": "GET", "path": request["path"]})
    return json.loads(json.dumps(request).replace(uid, current["metadata"]["uid"]))


async def test_expired_continue_token(server, cluster):
    """A continue token of a revision no longer kept is a 410 that carries a token to go on inconsistently."""
    await prepare(server, PENDING)
    cluster.store.compact()
    exchange = EXCHANGES["list-expired-continue"]
    code, _headers, body = await send(server, exchange["request"])
    assert (code, body) == (410, exchange["response"]["body"])
    token = body["metadata"]["continue"]
    code, _headers, page = await send(server, {"method": "GET", "path": f"/api/v1/pods?limit=1&continue={token}"})
    assert (code, [item["metadata"]["name"] for item in page["items"]]) == (200, ["a"])


async def test_list_of_priority_classes(server):
    """A list has the recorded items: without kind and apiVersion, in order of their names."""
    exchange = EXCHANGES["priorityclass-list"]
    items = exchange["response"]["body"]["items"]
    for item in items:
        metadata = {key: item["metadata"].get(key) for key in ("name", "annotations")}
        body = {**item, "metadata": {key: value for key, value in metadata.items() if value}}
        agent = item["metadata"]["managedFields"][0]["manager"]
        if not item["metadata"]["name"].startswith("system-"):
            path = exchange["request"]["path"]
            await prepare(server, [{"method": "POST", "path": path, "agent": agent, "body": body}])
    _code, _headers, body = await send(server, exchange["request"])
    assert plain(body) == plain(exchange["response"]["body"])


async def events_of(server, path, count):
    """The first events of a watch."""
    events = []
    async with asyncio.timeout(5), server.get(URL(path, encoded=True)) as response:
        async for line in response.content:
            events.append(json.loads(line))
            if len(events) == count:
                break
    return events


async def test_watch_of_a_deletion(server):
    """A pod that is labelled, deleted and then killed is three modifications and a deletion, as recorded."""
    await prepare(server, BOUND)
    _code, _headers, pod = await send(server, {"method": "GET", "path": POD})
    exchange = EXCHANGES["pod-watch-modify-delete"]
    path = exchange["request"]["path"].replace("112823", pod["metadata"]["resourceVersion"])
    watched = asyncio.create_task(events_of(server, path, 4))
    await prepare(server, [LABELLED, EXCHANGES["pod-delete-graceful"]["request"], KILLED])
    assert plain(await watched) == plain(exchange["response"]["stream"])


async def test_watch_with_initial_events(server):
    """A streaming list sends what there is, then a bookmark that says so, as recorded."""
    await prepare(server, ["node-create", "node-status-patch", TTL])
    exchange = EXCHANGES["pod-watch-sendinitialevents"]
    events = await events_of(server, exchange["request"]["path"], 2)
    assert plain(events) == plain(exchange["response"]["stream"])


async def test_watch_that_is_too_old(server, cluster):
    """A watch from a revision no longer kept gets the recorded error event."""
    await prepare(server, PENDING)
    cluster.store.compact()
    exchange = EXCHANGES["pod-watch-too-old"]
    events = await events_of(server, exchange["request"]["path"], 2)
    assert [without_number(event) for event in events] == [
        without_number(event) for event in exchange["response"]["stream"]
    ]


def without_number(event):
    """An error event without the oldest revision kept."""
    return json.loads(re.sub(r"\(\d+\)", "(N)", json.dumps(event)))


@pytest.mark.parametrize("name", [name for name in DISCOVERY if re.search(r"-v1$", name)])
async def test_discovery_of_resources(server, name):
    """Every resource served is listed as recorded; what is not served is known, with the reason."""
    exchange = EXCHANGES[name]
    code, _headers, body = await send(server, exchange["request"])
    recorded = {row["name"]: row for row in exchange["response"]["body"]["resources"]}
    for row in recorded.values():  # nobody deletes a whole collection at once
        row["verbs"] = [verb for verb in row["verbs"] if verb != "deletecollection"]
    served = {row["name"]: row for row in body["resources"]}
    assert code == 200
    assert {key: value for key, value in body.items() if key != "resources"} == {
        key: value for key, value in exchange["response"]["body"].items() if key != "resources"
    }
    assert served == {row: recorded[row] for row in served}
    assert set(recorded) - set(served) <= set(NOT_SERVED)


async def test_discovery_of_groups(server):
    """Every group served is listed as recorded and in the recorded order."""
    code, _headers, body = await send(server, EXCHANGES["discovery-apis"]["request"])
    recorded = EXCHANGES["discovery-apis"]["response"]["body"]
    names = {group["name"] for group in body["groups"]}
    assert (code, body["kind"], body["apiVersion"]) == (200, recorded["kind"], recorded["apiVersion"])
    assert body["groups"] == [group for group in recorded["groups"] if group["name"] in names]
    assert {"apps", "batch", "policy", "scheduling.k8s.io", "coordination.k8s.io"} <= names


async def test_discovery_of_versions(server):
    """`/api` is as recorded but for the server's address."""
    code, _headers, body = await send(server, EXCHANGES["discovery-api"]["request"])
    recorded = EXCHANGES["discovery-api"]["response"]["body"]
    assert code == 200
    recorded["serverAddressByClientCIDRs"][0]["serverAddress"] = f"{server._base_url.host}:{server._base_url.port}"
    assert body == recorded


async def test_version(server):
    """`/version` tells the recorded Kubernetes minor version, by which clients choose their ways."""
    code, _headers, body = await send(server, EXCHANGES["discovery-version"]["request"])
    recorded = EXCHANGES["discovery-version"]["response"]["body"]
    assert code == 200
    assert body.keys() == recorded.keys()
    assert (body["major"], body["minor"]) == (recorded["major"], recorded["minor"])


def test_every_exchange_is_replayed():
    """No recorded exchange is left out."""
    alone = {name for name in EXCHANGES if name.startswith(("discovery-", "pod-watch-"))}
    assert set(BEFORE) | alone | {"list-expired-continue", "priorityclass-list"} == set(EXCHANGES)
