"""The rights of the keeper of native policies and of the scan are enough and no more: each is used, none is missed.

Admission policies and reports are kinds that the embedded control plane lacks; there the roles stand before a server
that has nothing else.
"""

import asyncio
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.admission.builders import make_policy, make_rule, manage
from tests.inspection import test_policy_reports as reports
from tests.inspection.builders import policies
from tests.kube.server import Server, answer
from tests.manifests.at_work import with_base
from tests.manifests.objects import COMPONENTS, NAMESPACE, POLICIES, documents
from tests.manifests.rendering import rules_of
from tests.native.test_drift import RESOURCES
from tests.rights import unused, used_rights
from tests.workloads import eventually, namespace, pod, priority_class
from webhook.clusters.embedded.access.users import allows
from webhook.clusters.embedded.protocol.calls import Right
from webhook.inspection.policy_reports import write_policy_reports
from webhook.inspection.reading import read_policies
from webhook.inspection.scan import scan
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.objects.meta import LabelSelector
from webhook.native.objects import Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.model.rules import PriorityClasses

_PATH = re.compile(r"/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/([^/]+)(?=/))?/([^/]+)(?:/([^/]+))?")
TOLERATED = {("get", "validatingwebhookconfigurations")}
"""What the scan asks for without a right: if nothing is kept, is there a webhook? It then takes what was applied."""
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Guard:
    """Roles before a server that knows none: what they do not allow is refused, and what is used is noted.

    `kept` is what the server has, by path: a patch that makes an object needs the right to create it as well
    (`withAuthorization` in the API server's patch handler).
    """

    def __init__(self, rules: list[dict[str, Any]], kept: Container[str]) -> None:
        self._rules = rules
        self._kept = kept
        self.used: set[Right] = set()
        self.refused: set[Right] = set()

    async def asked(self, request: web.Request) -> web.StreamResponse | None:
        """What is answered to a request instead of the server; discovery is everybody's right."""
        found = _PATH.fullmatch(request.path)
        if found is None:
            return None
        group, space, resource, name = (part or "" for part in found.groups())
        verbs = [_VERBS[request.method]]
        if request.method == "GET" and not name:
            verbs = ["watch" if "watch" in request.query else "list"]
        if request.method == "PATCH" and request.path not in self._kept:
            verbs.append("create")
        for verb in verbs:
            right = Right(verb, group, resource, namespace=space, name=name)
            if not any(allows(rule, right) for rule in self._rules):
                self.refused.add(right)
                return await answer(403, "Forbidden")(request)
            self.used.add(right)
        return None


async def test_the_keeper_needs_its_rights_and_no_more():
    """A look at shipped policies that somebody changed reads and writes each that the role names, after the classes."""
    rules = rules_of("giveway-native", "native-policies")
    applied = documents(COMPONENTS / "native-policies" / "policies.yaml")
    for one in applied:
        one["spec"]["failurePolicy"] = "Ignore"
    settings = Settings(
        namespace=NAMESPACE, reconciler=f"system:serviceaccount:{NAMESPACE}:giveway-reconciler", kept=True
    )

    async with Server() as server, Client.for_server(server.url) as client:
        guard = Guard(rules, server.objects)
        server.fault(guard.asked, times=10_000)
        server.put(resources.PRIORITY_CLASS.path(name="plain"), value=1)
        for one in (one for one in applied if one["kind"] in RESOURCES):
            server.put(RESOURCES[one["kind"]].path(name=one["metadata"]["name"]), **one)
        keeper = PolicyKeeper(client, await read_policies(client, POLICIES, NAMESPACE), settings)
        task = asyncio.create_task(keeper.run())
        await eventually(lambda: keeper.note == "in step", what="a look")
        await eventually(lambda: any(right.verb == "watch" for right in guard.used), what="the watch")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not guard.refused
    assert unused(rules, guard.used) == []
    for verb in ("get", "update"):
        named = {name for rule in rules for name in rule.get("resourceNames", ())}
        assert {right.name for right in guard.used if right.verb == verb} == named


async def test_the_scan_needs_its_rights_and_no_more(tmp_path: Path):
    """Policies of both ConfigMaps, what it judges and why, and reports in both APIs."""
    rules = rules_of("giveway-scan", "scan")
    denies = make_policy(
        "p",
        make_rule("no-urgent", priority_classes=PriorityClasses(deny=("urgent",))),
        namespace_selector=LabelSelector(match_labels={"team": "a"}),
    )
    async with with_base(tmp_path, "scan", deployments=False) as installed:
        cluster, admin = installed.cluster, installed.admin
        found = await admin.get(resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies"))
        await admin.create(resources.NAMESPACE.path(), namespace("new", team="a"))
        await admin.create(resources.PRIORITY_CLASS.path(), priority_class("urgent", 1000))
        await admin.create(resources.POD.path("new"), pod("p", priorityClassName="urgent"))
        async with cluster.client(cluster.authentication.issue_to_account(NAMESPACE, "giveway-scan")) as client:
            await read_policies(client, None, NAMESPACE)  # without a webhook: what was applied
            kept = {"metadata": {"name": "giveway-policies-in-force"}, "data": found["data"]}
            await admin.create(resources.CONFIG_MAP.path(NAMESPACE), kept)
            await read_policies(client, None, NAMESPACE)
            report = await scan(client, policies(denies, manage("urgent")), NAMESPACE)
        assert [(row.rule, row.namespace) for row in report.rows] == [("p/no-urgent", "new")]
        assert not report.problems
        user = f"system:serviceaccount:{NAMESPACE}:giveway-scan"
        assert {(one.verb, one.resource) for one in used_rights(cluster, user, allowed=False)} == TOLERATED
        used = set(used_rights(cluster, user))
    async with reports.cluster(reports.OLD, reports.NEW) as (server, client):
        guard = Guard(rules, server.objects)
        server.fault(guard.asked, times=10_000)
        for found in (reports.report(reports.row(), reports.row(namespace="")), reports.report()):
            await write_policy_reports(client, found, reports.NOW)
        assert set(server.objects) == {f"/apis/{api}" for api in (reports.OLD, reports.NEW)}
    assert not guard.refused
    assert unused(rules, used | guard.used) == []
