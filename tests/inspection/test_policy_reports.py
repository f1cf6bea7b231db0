"""The reports that a scan writes for the viewers of policies."""

import json
from contextlib import asynccontextmanager

import pytest

from tests.kube.server import Server, answer
from webhook.inspection.policy_reports import MOST_RESULTS, policy_reports, write_policy_reports
from webhook.inspection.scan import Report, Row
from webhook.kube.client import Client
from webhook.kube.errors import ApiError

NOW = 1_800_000_000.0
OLD, NEW = "wgpolicyk8s.io/v1alpha2", "openreports.io/v1alpha1"
PLURALS = {OLD: ["policyreports", "clusterpolicyreports"], NEW: ["reports", "clusterreports"]}


def row(*, rule="teams/allowed", verdict="refused", namespace="team-a", objects=3, kind="Pod", message="m"):
    return Row(rule, verdict, kind, namespace, "Deployment web", message, objects, ["web-1", "web-2"])


def report(*rows, **more):
    return Report(rows=list(rows), **more)


@asynccontextmanager
async def cluster(*apis):
    """A server that has these APIs and no reports yet, and its client."""
    async with Server() as server, Client.for_server(server.url) as client:
        for api in apis:
            server.objects[f"/apis/{api}"] = {"resources": [{"name": plural} for plural in PLURALS[api]]}
        yield server, client


def path(api, plural, namespace="team-a"):
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{api}/{where}{plural}/giveway-scan"


def test_one_report_a_namespace():
    """Each rule about the objects of an owner is a result; the summary counts objects."""
    found = policy_reports(
        report(
            row(),
            row(verdict="warned", objects=2),
            row(verdict="audited", objects=1),
            row(verdict="cannot be judged", objects=4),
            row(namespace="team-b"),
            row(namespace="", kind="PriorityClass"),
        ),
        NOW,
    )
    assert list(found) == ["", "team-a", "team-b"]
    assert found["team-a"]["summary"] == {"pass": 0, "fail": 3, "warn": 3, "error": 0, "skip": 4}
    assert found["team-a"]["results"][0] == {
        "source": "giveway",
        "policy": "teams",
        "rule": "allowed",
        "category": "Priority",
        "severity": "high",
        "result": "fail",
        "scored": True,
        "message": "m",
        "timestamp": {"seconds": 1_800_000_000, "nanos": 0},
        "resources": [
            {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "namespace": "team-a"},
            {"apiVersion": "v1", "kind": "Pod", "name": "web-2", "namespace": "team-a"},
        ],
        "properties": {"verdict": "refused if made again", "owner": "Deployment web", "objects": "3"},
    }
    (of_class,) = found[""]["results"]
    assert of_class["resources"][0] == {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": "web-1"}


def test_reports_are_bounded():
    """However much is found, a report stays within what the API server stores; the summary counts all."""
    found = policy_reports(report(*(row(rule=f"p/r{n}", message="x" * 5000) for n in range(MOST_RESULTS + 50))), NOW)
    assert len(found["team-a"]["results"]) == MOST_RESULTS
    assert found["team-a"]["summary"]["fail"] == 3 * (MOST_RESULTS + 50)
    assert len(json.dumps(found["team-a"])) < 1_500_000


@pytest.mark.parametrize("apis", [(OLD,), (NEW,), (OLD, NEW)], ids=["PolicyReport", "OpenReports", "both"])
async def test_reports_are_written_to_what_the_cluster_has(apis):
    """To the API that a viewer reads: the one, its successor, or both while a cluster moves."""
    async with cluster(*apis) as (server, client):
        written = await write_policy_reports(client, report(row(), row(namespace="")), NOW)
    assert (written.groups, written.reports) == ([api.partition("/")[0] for api in apis], 2 * len(apis))
    for api in apis:
        body = server.objects[path(api, PLURALS[api][0])]
        assert (body["apiVersion"], body["kind"]) == (api, {OLD: "PolicyReport", NEW: "Report"}[api])
        assert body["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "giveway"}
        assert body.get("source") == (None if api == OLD else "giveway")
        assert path(api, PLURALS[api][1], "") in server.objects
    assert all(asked.endswith("?fieldManager=giveway-scan&force=true") for asked in server.asked("PATCH"))


async def test_a_cluster_without_the_api_gets_none():
    """Nothing is written, and the answer says so."""
    async with cluster() as (_, client):
        assert (await write_policy_reports(client, report(row()), NOW)).groups == []


async def test_a_report_goes_when_nothing_is_found_any_more():
    """A namespace that is clean has no report; after an incomplete scan none is taken away."""
    other = path(OLD, "policyreports", "clean").replace("giveway-scan", "other")
    async with cluster(OLD) as (server, client):
        for place in (path(OLD, "policyreports", "clean"), path(OLD, "clusterpolicyreports", ""), other):
            server.put(place)
        incomplete = report(row(), problems=["jobs: not scanned"])
        assert (await write_policy_reports(client, incomplete, NOW)).removed == 0
        assert (await write_policy_reports(client, report(row()), NOW)).removed == 2
    assert sorted(server.objects)[1:] == [other, path(OLD, "policyreports")]
    assert all("labelSelector=app.kubernetes.io" in asked for asked in server.asked("GET", "reports?"))


async def test_a_namespace_that_is_gone_by_now():
    """Its report is not written, and the others are."""
    async with cluster(OLD) as (server, client):
        server.fault(answer(404, "NotFound"), contains="/namespaces/gone/")
        assert (await write_policy_reports(client, report(row(namespace="gone"), row()), NOW)).reports == 1


async def test_a_missing_right_is_told():
    """It is no success without reports."""
    async with cluster(OLD) as (server, client):
        server.fault(answer(403, "Forbidden"), method="PATCH")
        with pytest.raises(ApiError):
            await write_policy_reports(client, report(row()), NOW)
