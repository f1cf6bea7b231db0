"""The eviction sub-resource: budgets, preconditions, what a victim is told (docs/kubernetes-behaviour.md K16, K17)."""

import asyncio

import pytest

from tests.workloads import condition, eventually
from webhook.kube.errors import ApiError
from webhook.kube.resources import POD_DISRUPTION_BUDGET

WEB = {"app": "web"}


async def start(sandbox, count: int) -> list[str]:
    """Running pods labelled app=web on one node."""
    await sandbox.node("n1", cpu="8")
    names = [f"web-{number}" for number in range(count)]
    for name in names:
        await sandbox.run(name, "100m", labels=WEB)
    return names


async def allowed_disruptions(sandbox, expected: int) -> None:
    path = POD_DISRUPTION_BUDGET.path(sandbox.id, "web")

    async def check():
        return (await sandbox.client.get(path))["status"]["disruptionsAllowed"] == expected

    await eventually(check)


async def test_eviction_marks_the_victim(sandbox):
    """An evicted pod carries DisruptionTarget with the eviction API's reason until it is gone."""
    names = await start(sandbox, 1)
    await sandbox.evict(names[0], gracePeriodSeconds=30)
    target = condition(await sandbox.get(names[0]), "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_budget_refuses_with_429_and_cause(sandbox):
    """An exhausted budget answers 429 with the cause DisruptionBudget, also to a dry run."""
    names = await start(sandbox, 2)
    await sandbox.budget("web", WEB, minAvailable=2)
    for options in ({}, {"dryRun": ["All"]}):
        with pytest.raises(ApiError) as caught:
            await sandbox.evict(names[0], **options)
        assert (caught.value.status, caught.value.reason) == (429, "TooManyRequests")
        assert caught.value.details["causes"][0]["reason"] == "DisruptionBudget"


async def test_budget_is_spent_atomically(sandbox):
    """Of simultaneous evictions as many succeed as the budget allows, and no more."""
    names = await start(sandbox, 5)
    await sandbox.budget("web", WEB, minAvailable=3)
    await allowed_disruptions(sandbox, 2)
    outcomes = await asyncio.gather(*(sandbox.evict(name) for name in names), return_exceptions=True)
    assert sorted(one.status for one in outcomes if isinstance(one, ApiError)) == [429] * 3


async def test_plain_delete_ignores_the_budget(sandbox):
    """DELETE takes the pod whose eviction its budget refuses."""
    names = await start(sandbox, 1)
    await sandbox.budget("web", WEB, minAvailable=1)
    with pytest.raises(ApiError, match="would violate"):
        await sandbox.evict(names[0])
    await sandbox.client.delete(f"{sandbox.pods}/{names[0]}")
    await sandbox.gone(names[0])


async def test_precondition_and_absence(sandbox):
    """A wrong uid is a 409 that shows both, a victim already gone a 404."""
    [name] = await start(sandbox, 1)
    uid, other = (await sandbox.get(name))["metadata"]["uid"], "00000000-0000-0000-0000-000000000000"
    with pytest.raises(ApiError, match=f"(?s){other}.*{uid}") as caught:
        await sandbox.evict(name, preconditions={"uid": other})
    assert caught.value.status == 409
    with pytest.raises(ApiError) as caught:
        await sandbox.evict("never-was")
    assert caught.value.status == 404


async def test_a_pod_that_is_not_ready_spends_no_disruption(sandbox):
    """It goes while enough others are healthy (K27), and the disruption that there is lets another one go."""
    names = await start(sandbox, 3)
    await sandbox.budget("web", WEB, minAvailable=1)
    await allowed_disruptions(sandbox, 2)
    unready = [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]
    await sandbox.client.patch(
        f"{sandbox.pods}/{names[0]}/status", {"status": {"conditions": unready}}, kind="strategic"
    )
    async with sandbox.held(names[0]):
        await allowed_disruptions(sandbox, 1)
        await sandbox.evict(names[0])
        await sandbox.evict(names[1])
        with pytest.raises(ApiError, match="would violate"):
            await sandbox.evict(names[2])
