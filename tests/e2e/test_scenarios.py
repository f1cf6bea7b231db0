"""Gödel's six quickstart scenarios (docs/semantics.md G), with real processes under the rights of manifests/base."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.e2e.conftest import class_is_usable
from tests.e2e.native import applied, need_admission_policies
from tests.e2e.software import installed
from tests.workloads import eventually, is_there
from webhook.admission.context import RECONCILER as RECONCILER_USER
from webhook.clusters.demo.scenarios import HIGH, PLAIN, POLICIES, PREEMPTIBLE, SCENARIOS, Stage, prepare
from webhook.kube.errors import ApiError
from webhook.kube.resources import NAMESPACE, POD, PRIORITY_CLASS
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.files.loading import load_texts

PROTECTION = 8
"""Seconds: the document's 30 shortened, by the pods' own annotation."""


@pytest.mark.parametrize("mode", ["webhook", "backstop", "native"])
async def test_the_six_scenarios(sandbox, kubeconfig, tmp_path, mode):
    """Each comes out as the document says, all six at once on one cluster, whoever enforces the policies."""
    client = sandbox.client
    if mode != "webhook":
        await need_admission_policies(client)
    nodes = [await sandbox.node(f"n{scenario.number}", cpu="8") for scenario in SCENARIOS]
    async with installed(client, kubeconfig, tmp_path) as giveway, enforced(client, mode):
        if mode != "native":
            await giveway.serve(POLICIES, *(["--failure-policy=Ignore"] if mode == "backstop" else []))
        reconciler = await giveway.reconcile(POLICIES)
        await eventually(lambda: managed(client), 20, "the webhook is at work")
        await prepare(client, nodes)
        for name in (HIGH, PLAIN, PREEMPTIBLE):
            await class_is_usable(client, name)
        stages = [Stage(client, scenario.number, protection=PROTECTION, stillness=3.0) for scenario in SCENARIOS]
        plays = [scenario.play(stage) for scenario, stage in zip(SCENARIOS, stages, strict=True)]
        outcomes = await asyncio.gather(*plays)
        different = {
            scenario.number: outcome.happened
            for scenario, outcome in zip(SCENARIOS, outcomes, strict=True)
            if not outcome.as_documented
        }
        assert not different, reconciler.log.read_text()
        acted = {line["preemptor"] for line in reconciler.lines("decision")}
        assert {f"scenario-{number}/nginx-preemptor" for number in (1, 3, 6)} <= acted
        assert not {f"scenario-{number}/nginx-preemptor" for number in (2, 4)} & acted
        assert "Forbidden" not in reconciler.log.read_text(), "the rights of manifests/base are enough"


@asynccontextmanager
async def enforced(client, mode) -> AsyncIterator[None]:
    """The compiled policies applied, and kept in step, unless the webhook is alone; nothing is left at the end."""
    policies = load_texts([("scenarios.yaml", POLICIES)]).policies
    settings = Settings(namespace="giveway-system", reconciler=RECONCILER_USER, kept=True)
    objects = [] if mode == "webhook" else compile_policies(policies, [], settings, time.time()).objects
    async with applied(client, objects):
        keeper = asyncio.create_task(PolicyKeeper(client, policies, settings).run()) if objects else None
        try:
            yield
        finally:
            if keeper is not None:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
            await clear(client)


async def managed(client) -> bool:
    """Whether the webhook turns a managed class into one that leaves preemption to the reconciler."""
    body = {"metadata": {"name": "high-priority"}, "value": 100}
    with suppress(ApiError):
        made = await client.create(PRIORITY_CLASS.path(), body, dryRun="All")
        return made.get("preemptionPolicy") == "Never"
    return False


async def clear(client) -> None:
    """Leave nothing of the scenarios behind; a real cluster takes some seconds to empty a namespace."""
    for scenario in SCENARIOS:
        for path in (
            POD.path("kube-system", f"system-{scenario.number}"),
            NAMESPACE.path(name=f"scenario-{scenario.number}"),
        ):
            with suppress(ApiError):
                await client.delete(path, {"gracePeriodSeconds": 0} if "pods" in path else None)
    for name in ("low-priority", "low-priority-plain", "high-priority"):
        with suppress(ApiError):
            await client.delete(PRIORITY_CLASS.path(name=name))
    for scenario in SCENARIOS:
        path = NAMESPACE.path(name=f"scenario-{scenario.number}")

        async def gone(path: str = path) -> bool:
            return not await is_there(client, path)

        await eventually(gone, 60, f"{path} is gone")
