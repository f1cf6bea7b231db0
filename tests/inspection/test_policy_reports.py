"""The reports that a scan writes for the viewers of policies."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

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


class Reports:
    """An API server that has nothing but these APIs, and keeps the reports that are applied."""

    def __init__(self, *apis, gone=()):
        self.apis, self.gone, self.kept, self.refused = apis, gone, {}, None
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.server = TestServer(app)

    async def answer(self, request):
        path = request.path
        api = next((one for one in self.apis if path.startswith(f"/apis/{one}")), None)
        if api is None or any(f"/namespaces/{name}/" in path for name in self.gone):
            return self.status(404)
        if path == f"/apis/{api}":
            return web.json_response({"resources": [{"name": plural} for plural in PLURALS[api]]})
        if self.refused == request.method:
            return self.status(403)
        if request.method == "PATCH":
            assert request.content_type == "application/apply-patch+yaml"
            assert dict(request.query) == {"fieldManager": "giveway-scan", "force": "true"}
            self.kept[path] = await request.json()
        if request.method == "DELETE":
            del self.kept[path]
        if request.method == "GET":
            plural = path.rpartition("/")[2]
            assert request.query["labelSelector"] == "app.kubernetes.io/managed-by=giveway"
            items = [body for at, body in self.kept.items() if at.split("/")[-2] == plural]
            return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})
        return web.json_response(self.kept.get(path, {}))

    @staticmethod
    def status(code):
        return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)

    async def write(self, found):
        async with self.server, Client.for_server(str(self.server.make_url(""))) as client:
            return await write_policy_reports(client, found, NOW)


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
    assert of_class["resources"][0] == {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "name": "web-1",
    }


def test_reports_are_bounded():
    """However much is found, a report stays within what the API server stores; the summary counts all."""
    found = policy_reports(report(*(row(rule=f"p/r{n}", message="x" * 5000) for n in range(MOST_RESULTS + 50))), NOW)
    assert len(found["team-a"]["results"]) == MOST_RESULTS
    assert found["team-a"]["summary"]["fail"] == 3 * (MOST_RESULTS + 50)
    assert len(json.dumps(found["team-a"])) < 1_500_000


@pytest.mark.parametrize("apis", [(OLD,), (NEW,), (OLD, NEW)], ids=["PolicyReport", "OpenReports", "both"])
async def test_reports_are_written_to_what_the_cluster_has(apis):
    """To the API that a viewer reads: the one, its successor, or both while a cluster moves."""
    cluster = Reports(*apis)
    written = await cluster.write(report(row(), row(namespace="")))
    assert (written.groups, written.reports) == ([api.partition("/")[0] for api in apis], 2 * len(apis))
    for api in apis:
        body = cluster.kept[path(api, PLURALS[api][0])]
        assert (body["apiVersion"], body["kind"]) == (api, {OLD: "PolicyReport", NEW: "Report"}[api])
        assert body["metadata"] == {
            "name": "giveway-scan",
            "namespace": "team-a",
            "labels": {"app.kubernetes.io/managed-by": "giveway"},
        }
        assert body.get("source") == (None if api == OLD else "giveway")
        assert path(api, PLURALS[api][1], "") in cluster.kept


async def test_a_cluster_without_the_api_gets_none():
    """Nothing is written, and the answer says so."""
    assert (await Reports().write(report(row()))).groups == []


async def test_a_report_goes_when_nothing_is_found_any_more():
    """A namespace that is clean has no report; after an incomplete scan none is taken away."""
    cluster = Reports(OLD)
    cluster.kept[path(OLD, "policyreports", "clean")] = {"metadata": {"name": "giveway-scan", "namespace": "clean"}}
    cluster.kept[path(OLD, "clusterpolicyreports", "")] = {"metadata": {"name": "giveway-scan"}}
    other = {"metadata": {"name": "other", "namespace": "clean"}}
    cluster.kept["/apis/wgpolicyk8s.io/v1alpha2/namespaces/clean/policyreports/other"] = other
    assert (await cluster.write(report(row(), problems=["jobs: not scanned"]))).removed == 0
    again = Reports(OLD)
    again.kept = cluster.kept
    assert (await again.write(report(row()))).removed == 2
    assert sorted(again.kept) == [
        "/apis/wgpolicyk8s.io/v1alpha2/namespaces/clean/policyreports/other",
        path(OLD, "policyreports"),
    ]


async def test_a_namespace_that_is_gone_by_now():
    """Its report is not written, and the others are."""
    cluster = Reports(OLD, gone=("gone",))
    assert (await cluster.write(report(row(namespace="gone"), row()))).reports == 1


async def test_a_missing_right_is_told():
    """It is no success without reports."""
    cluster = Reports(OLD)
    cluster.refused = "PATCH"
    with pytest.raises(ApiError):
        await cluster.write(report(row()))
