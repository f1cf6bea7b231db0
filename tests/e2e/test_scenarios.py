"""Gödel's six quickstart scenarios (docs/semantics.md G), with real processes under the rights of manifests/base."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.e2e.conftest import class_is_usable
from tests.e2e.native import applied, need_admission_policies
from tests.native.test_same_verdicts import KEPT
from tests.workloads import eventually, is_there
from webhook.clusters.demo.scenarios import HIGH, PLAIN, POLICIES, PREEMPTIBLE, SCENARIOS, Stage, prepare
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import NAMESPACE, POD, PRIORITY_CLASS
from webhook.native.compiler import compile_policies
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.files.loading import load_texts

PROTECTION = 8
"""Seconds: the document's 30 shortened, by the pods' own annotation."""
CLASSES = (HIGH, PLAIN, PREEMPTIBLE)


@pytest.mark.parametrize("mode", ["webhook", "backstop", "native"])
async def test_the_six_scenarios(sandbox, giveway, mode):
    """Each comes out as the document says, all six at once on one cluster, whoever enforces the policies."""
    client = sandbox.client
    if mode != "webhook":
        await need_admission_policies(client)
    nodes = [await sandbox.node(f"n{scenario.number}", cpu="8") for scenario in SCENARIOS]
    async with enforced(client, mode):
        if mode != "native":
            await giveway.serve(POLICIES, *(["--failure-policy=Ignore"] if mode == "backstop" else []))
        reconciler = await giveway.reconcile(POLICIES)
        await eventually(lambda: managed(client), 20, "the webhook is at work")
        await prepare(client, nodes)
        for name in CLASSES:
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
async def enforced(client: Client, mode: str) -> AsyncIterator[None]:
    """The compiled policies applied, and kept in step, unless the webhook is alone; nothing is left at the end."""
    policies = load_texts([("scenarios.yaml", POLICIES)]).policies
    objects = [] if mode == "webhook" else compile_policies(policies, [], KEPT, time.time()).objects
    async with applied(client, objects):
        keeper = asyncio.create_task(PolicyKeeper(client, policies, KEPT).run()) if objects else None
        try:
            yield
        finally:
            if keeper is not None:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
            await clear(client)


async def managed(client: Client) -> bool:
    """Whether the webhook turns a managed class into one that leaves preemption to the reconciler."""
    body = {"metadata": {"name": HIGH}, "value": 100}
    with suppress(ApiError):
        made = await client.create(PRIORITY_CLASS.path(), body, dryRun="All")
        return made.get("preemptionPolicy") == "Never"
    return False


async def clear(client: Client) -> None:
    """Leave nothing of the scenarios, while their nodes have a kubelet; a namespace is empty some seconds later."""
    spaces = [NAMESPACE.path(name=f"scenario-{scenario.number}") for scenario in SCENARIOS]
    pods = [POD.path("kube-system", f"system-{scenario.number}") for scenario in SCENARIOS]
    for path in (*spaces, *pods, *(PRIORITY_CLASS.path(name=name) for name in CLASSES)):
        await unless_absent(client.delete(path))

    async def gone() -> bool:
        return not any([await is_there(client, path) for path in (*spaces, *pods)])

    await eventually(gone, 60, "nothing is left of the scenarios")
