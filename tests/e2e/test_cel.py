"""CEL's functions at their ends in a real API server: the table that the webhook's are held against, by dry runs."""

from typing import Any

import pytest

from tests.e2e.native import applied, need_admission_policies
from tests.policy.cel.ends import DIFFER, FAIL, HOLD
from tests.workloads import eventually, refusal
from webhook.kube.resources import CONFIG_MAP
from webhook.native.objects import CompiledCondition, Validation, validating_policy

_LOADED = "object.metadata.name != 'loaded'"


def judging(sandbox: Any, name: str, expressions: tuple[str, ...]) -> list[dict[str, Any]]:
    """A policy and its binding by which ConfigMaps of this name in the sandbox are judged, and one called `loaded`."""
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [sandbox.id]}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    return validating_policy(
        "e2e",
        f"{sandbox.id}-{name}",
        "enforce",
        constraints={"namespaceSelector": {"matchExpressions": [here]}, "resourceRules": [rule]},
        conditions=[CompiledCondition("asked", f"object.metadata.name in ['{name}', 'loaded']")],
        validations=[Validation("e2e", one, one.replace("\n", " ")) for one in (_LOADED, *expressions)],
    )


async def refused(sandbox: Any, name: str) -> str:
    """Why a ConfigMap of this name would be refused; empty if it would not."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": sandbox.id}}
    return await refusal(sandbox.client.create(CONFIG_MAP.path(sandbox.id), body, dryRun="All"))


@pytest.mark.parametrize("number", range(4))
async def test_what_is_true_here_is_true_there(sandbox, number):
    """Every row of the table, and what is named as different, as the table says that it is in the API server."""
    await need_admission_policies(sandbox.client)
    rows = (*HOLD, *(there for _, there in DIFFER))[number::4]
    async with applied(sandbox.client, judging(sandbox, "ends", rows)):
        await eventually(lambda: refused(sandbox, "loaded"), 60, "the policy is in force")
        assert await refused(sandbox, "ends") == ""


async def test_what_fails_here_fails_there(sandbox):
    """Each by itself, so that none hides another one."""
    await need_admission_policies(sandbox.client)
    policies = [one for place, row in enumerate(FAIL) for one in judging(sandbox, f"fails-{place}", (row,))]
    async with applied(sandbox.client, policies):
        await eventually(lambda: refused(sandbox, "loaded"), 60, "the policies are in force")
        for place, row in enumerate(FAIL):
            await eventually(lambda name=f"fails-{place}": refused(sandbox, name), 20, f"{row} fails")
