"""A tenant's controller that selects its pods by giveway's mark makes no pods without end, in either mode."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from tests.e2e.native import BY, enforced
from tests.e2e.software import policies
from tests.e2e.users import TENANT, may_edit
from tests.workloads import deployment, pod
from webhook.kube.errors import ApiError
from webhook.policy.model.values import MANAGED, MARK

pytestmark = pytest.mark.kubectl

SECONDS, MOST = 2.0, 1
"""For how long pods are counted, and how many there may be."""


def marked(body: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A pod or template with the mark and further metadata."""
    body["metadata"] |= meta | {"labels": {**body["metadata"].get("labels", {}), MARK: MANAGED}}
    return body


@BY
async def test_nothing_runs_away(sandbox, giveway, kubectl, native):
    """What the tenant makes with the mark: a ReplicaSet, a pod of a custom resource, and a copy of a pod.

    The webhook refuses the template. Natively templates are not judged, so it gets in, and its pods are refused.
    """
    await may_edit(sandbox, TENANT, sandbox.id)
    probe = marked(pod("probe", schedulerName="nobody"))

    async def holds() -> bool:
        with suppress(ApiError):
            made = await sandbox.client.create(sandbox.pods, probe, dryRun="All")
            return MARK not in made["metadata"].get("labels", {})
        return False

    async with enforced(sandbox, giveway, policies(f"{sandbox.id}-managed*"), holds, native=native):
        await made_by_the_tenant(sandbox, kubectl, templates=not native)


async def made_by_the_tenant(sandbox: Any, kubectl: Any, *, templates: bool) -> None:
    """A template with the mark is refused if `templates` are judged; either way few pods come of it."""
    here = ("-f", "-", "-n", sandbox.id, *TENANT)
    replicas = deployment("runaway", 1, kind="ReplicaSet")
    marked(replicas["spec"]["template"])["spec"]["schedulerName"] = "nobody"
    replicas["spec"]["selector"] = {"matchLabels": {MARK: MANAGED}}
    said = await kubectl("create", *here, stdin=json.dumps(replicas), code=1 if templates else 0)
    assert ("builtin/mark" in said) == templates
    await asyncio.sleep(SECONDS)
    found, _ = await sandbox.client.list(sandbox.pods, dict)
    assert len(found) <= MOST
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    owner = json.loads(await kubectl("create", *here, "-o", "json", stdin=body))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"], "controller": True}
    made = marked(pod("made", schedulerName="nobody"), ownerReferences=[reference])
    assert "builtin/mark" in await kubectl("create", *here, stdin=json.dumps(made), code=1)
    await kubectl("create", *here, stdin=json.dumps(marked(pod("copy", schedulerName="nobody"))))
    assert MARK not in (await sandbox.get("copy"))["metadata"]["labels"]
