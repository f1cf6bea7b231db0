"""The embedded API server answers requests as a Kubernetes 1.36 API server answered them."""

import ssl

import aiohttp
import pytest

from tests.clusters.embedded.apiserver.exchanges import Replay, scenarios
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS

SCENARIOS = scenarios()
EXPIRED = [name for name in SCENARIOS if name.endswith("from a revision no longer kept")]
DECODING = (400, 406, 415)
"""What cannot be read is refused in the words of Go's decoders; here only status and reason are the same."""
NOT_SERVED = {
    "componentstatuses": "deprecated",
    "controllerrevisions": "no controller keeps any",
    "endpoints": "there is no network",
    "mutatingadmissionpolicies": "policies in CEL inside the API server",
    "mutatingadmissionpolicybindings": "policies in CEL inside the API server",
    "validatingadmissionpolicies": "policies in CEL inside the API server",
    "validatingadmissionpolicybindings": "policies in CEL inside the API server",
    "validatingadmissionpolicies/status": "policies in CEL inside the API server",
    "nodes/proxy": "there is no kubelet to reach",
    "podtemplates": "nobody makes any",
    "pods/attach": "there are no containers",
    "pods/ephemeralcontainers": "there are no containers",
    "pods/exec": "there are no containers",
    "pods/log": "there are no containers",
    "pods/portforward": "there are no containers",
    "pods/proxy": "there are no containers",
    "pods/resize": "there are no containers",
    "services/proxy": "there is no network",
}
"""What Kubernetes serves of the groups that are served here, and the embedded server does not, and why."""


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=0, without=STAND_INS, disabled_plugins=("ServiceAccount",)) as running:
        yield running


@pytest.fixture
async def replay(cluster):
    tokens = {"admin": cluster.token, "alice": cluster.add_user("alice", "dev"), "nobody": "wrong"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(cluster.ca)))
    async with aiohttp.ClientSession(cluster.url, connector=connector) as session:
        yield Replay(session, tokens)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(cluster, replay, name):
    """Each exchange has the recorded status, headers and body."""
    if name in EXPIRED:
        for collection in cluster.store.collections.values():
            collection.floor = cluster.store.revision
    for number, exchange in enumerate(SCENARIOS[name]):
        recorded = exchange["response"]
        said = await replay.send(exchange["request"], len(recorded.get("stream", ())))
        assert comparable(said, said) == comparable(recorded, said), (number, exchange["request"])


def comparable(response, served):
    """A response without what is said in other words or not served here."""
    body = response.get("body", {})
    if response.get("status") in DECODING:
        body = {"reason": body.get("reason")}
    elif body.get("kind") == "Table":
        shown = [column["name"] for column in served["body"]["columnDefinitions"]]
        at = [place for place, column in enumerate(body["columnDefinitions"]) if column["name"] in shown]
        rows = [{**row, "cells": [row["cells"][place] for place in at]} for row in body["rows"]]
        body = {**body, "columnDefinitions": [body["columnDefinitions"][place] for place in at], "rows": rows}
    elif body.get("kind") == "APIGroupList":
        names = [group["name"] for group in served["body"]["groups"]]
        body = {**body, "groups": [group for group in body["groups"] if group["name"] in names]}
    elif body.get("kind") == "APIResourceList":
        rows = [
            {
                **{key: value for key, value in row.items() if key != "storageVersionHash"},
                "verbs": [verb for verb in row["verbs"] if verb != "deletecollection"],
            }
            for row in body["resources"]
            if row["name"] not in NOT_SERVED
        ]
        body = {**body, "resources": rows}
    elif "gitVersion" in body:
        body = {name: body[name] for name in ("major", "minor")}
    return {**response, "body": body}
