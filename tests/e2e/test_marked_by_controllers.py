"""A tenant's controller that selects its pods by giveway's mark makes no pods without end, in either mode."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from tests.e2e.native import natively
from tests.e2e.software import policies
from tests.e2e.users import TENANT, may_edit
from tests.policy.builders import engine
from tests.workloads import deployment, eventually, pod
from webhook.kube.errors import ApiError
from webhook.policy.model.values import MANAGED, MARK

pytestmark = pytest.mark.kubectl

SECONDS, MOST = 2.0, 1
"""For how long pods are counted, and how many there may be."""


def marked(body: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A pod or template with the mark and further metadata."""
    body["metadata"] |= meta | {"labels": {**body["metadata"].get("labels", {}), MARK: MANAGED}}
    return body


async def nothing_runs_away(sandbox: Any, kubectl: Any, *, templates: bool) -> None:
    """What the tenant makes with the mark: a ReplicaSet, a pod of a custom resource, and a copy of a pod."""
    here = ("-f", "-", "-n", sandbox.id, *TENANT)
    replicas = deployment("runaway", 1, kind="ReplicaSet")
    marked(replicas["spec"]["template"])["spec"]["schedulerName"] = "nobody"
    replicas["spec"]["selector"] = {"matchLabels": {MARK: MANAGED}}
    said = await kubectl("create", *here, stdin=json.dumps(replicas), code=1 if templates else 0)
    assert ("builtin/mark" in said) == templates
    await asyncio.sleep(SECONDS)
    found, _ = await sandbox.client.list(sandbox.pods, dict)
    assert len(found) <= MOST
    owner = json.loads(
        await kubectl(
            "create",
            *here,
            "-o",
            "json",
            stdin=json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}),
        )
    )["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"], "controller": True}
    made = marked(pod("made", schedulerName="nobody"), ownerReferences=[reference])
    assert "builtin/mark" in await kubectl("create", *here, stdin=json.dumps(made), code=1)
    await kubectl("create", *here, stdin=json.dumps(marked(pod("copy", schedulerName="nobody"))))
    assert MARK not in (await sandbox.get("copy"))["metadata"]["labels"]


async def test_with_the_webhook(sandbox, giveway, kubectl):
    """The template is refused, and so is the pod that an operator makes."""
    await may_edit(sandbox, TENANT, sandbox.id)
    await giveway.serve(policies(f"{sandbox.id}-managed"))
    await nothing_runs_away(sandbox, kubectl, templates=True)


async def test_natively(sandbox, kubectl):
    """The template gets in, as templates are not judged there; its pods are refused."""
    await may_edit(sandbox, TENANT, sandbox.id)
    rules = engine(preemption=f"preemptors: {{priorityClasses: ['{sandbox.id}-managed*']}}").policies
    async with natively(sandbox, rules):
        body = marked(pod("probe", schedulerName="nobody"))

        async def in_force() -> bool:
            with suppress(ApiError):
                made = await sandbox.client.create(sandbox.pods, body, dryRun="All")
                return MARK not in made["metadata"].get("labels", {})
            return False

        await eventually(in_force, 60, "the policies are in force")
        await nothing_runs_away(sandbox, kubectl, templates=False)
