"""The policies on a cluster: what cannot be used is refused when it is applied, a restart finds what was in force."""

import signal
from contextlib import suppress

import pytest

from tests.e2e.software import SYSTEM
from tests.workloads import eventually, pod, refusal
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: e2e}\nspec:\n  rules:\n"
FORBIDDEN = HEAD + "  - {name: none, priorityClasses: {deny: ['*-forbidden']}}\n"
WITHOUT = HEAD + "  - {name: other, priorityClasses: {deny: [nothing]}}\n"
APPLIED, IN_FORCE = (CONFIG_MAP.path(SYSTEM, name) for name in ("giveway-policies", "giveway-policies-in-force"))


@pytest.fixture
async def no_policies(sandbox):
    """Neither ConfigMap is there before or after."""

    async def clean() -> None:
        for path in (APPLIED, IN_FORCE):
            with suppress(ApiError):
                await sandbox.client.delete(path)

    await clean()
    yield
    await clean()


async def test_what_is_in_force_outlives_broken_files(sandbox, giveway, no_policies):
    """A typo and a lost rule are refused when applied; a server restarted on such files goes by what was in force."""
    forbidden = await sandbox.priority_class("forbidden", 7)
    tried = pod("tried", priorityClassName=forbidden)

    server = await giveway.serve(FORBIDDEN)
    assert "e2e/none" in await refusal(sandbox.client.create(sandbox.pods, tried, dryRun="All"))
    body = {"metadata": {"name": "giveway-policies"}, "data": {"policies.yaml": FORBIDDEN}}
    await sandbox.client.create(CONFIG_MAP.path(SYSTEM), body)
    for text, words in (
        (FORBIDDEN.replace("deny", "denny"), "unknown field"),
        (WITHOUT, "e2e/none: the rule is gone"),
    ):
        with pytest.raises(ApiError, match=words):
            await sandbox.client.patch(APPLIED, {"data": {"policies.yaml": text}})

    assert await server.stop(signal.SIGKILL) == -signal.SIGKILL
    server = await giveway.serve(FORBIDDEN.replace("deny", "denny"))
    assert "e2e/none" in await refusal(sandbox.client.create(sandbox.pods, tried, dryRun="All"))

    async def told() -> bool:
        return any("the set in force stays" in line["message"] for line in server.lines())

    await eventually(told, what="the server's log says so")
    meant = {"metadata": {"annotations": {"giveway.dev/allow-removal": "e2e/none"}}}
    await sandbox.client.patch(APPLIED, {**meant, "data": {"policies.yaml": WITHOUT}})
