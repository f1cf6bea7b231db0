"""Somebody who may patch `pods/status` and nothing else makes no victim of a running pod, and keeps none.

Nothing that they write is refused: controllers relabel running pods all the time. It decides nothing.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.native import BY, enforced
from tests.e2e.software import SYSTEM, Software, policies
from tests.e2e.users import granted
from tests.workloads import never, pod
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.policy.model.values import CREATION, PROTECTION_DURATION

JOB_SET, VOLCANO = "jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name"
FORGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "labels": ({"metadata": {"labels": {"tier": "batch"}}}, {"metadata": {"labels": {"tier": "web"}}}),
    "groups": (
        {"metadata": {"labels": {"tier": "batch"}}},
        {"metadata": {"labels": {JOB_SET: "a"}, "annotations": {VOLCANO: "g"}}},
    ),
    "starts": (
        {"status": {"startTime": "2000-01-01T00:00:00Z"}},
        {"status": {"startTime": "2099-01-01T00:00:00Z"}},
    ),
}
"""What is written on the pod that stays, and on the one that goes."""


@asynccontextmanager
async def somebody(giveway: Software, sandbox: Any) -> AsyncIterator[Client]:
    """Who may patch the status of the namespace's pods, and nothing else."""
    name = f"{sandbox.id}-status"
    await giveway.account(name)
    rule = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    await granted(sandbox, name, [account], rules=[rule], where=sandbox.id)
    async with await Client.connect(await giveway.kubeconfig_of(name)) as client:
        yield client


@pytest.mark.parametrize("what", FORGED)
@BY
async def test_what_is_written_into_the_status_decides_nothing(sandbox, giveway, native, what):
    """Of two pods the one goes that went without it: by its label, its group, the end of its protection."""
    high = await sandbox.priority_class("high", 1000, preemptionPolicy="Never")
    low = await sandbox.priority_class("low", 10)
    by_label = [{"victims": {"labels": {"matchLabels": {"tier": "batch"}}}}]
    victims = {"mode": "opt-out"} | ({} if what == "starts" else {"pairs": by_label})
    given = policies(high, victims=victims, groups={"disruption": "Never"})

    async def recorded() -> bool:
        made = await sandbox.client.create(sandbox.pods, pod("probe"), dryRun="All")
        return CREATION in made["metadata"].get("annotations", {})

    async with enforced(sandbox, giveway, given, recorded, native=native), somebody(giveway, sandbox) as writer:
        for name, tier, seconds in (("stays", "web", "3600"), ("goes", "batch", "1")):
            await sandbox.node(f"for-{name}")
            annotations = {PROTECTION_DURATION: seconds} if what == "starts" else {}
            await sandbox.run(name, "3", annotations=annotations, labels={"tier": tier}, priorityClassName=low)
        await giveway.reconcile(given)
        with pytest.raises(ApiError, match="forbidden"):
            await writer.patch(f"{sandbox.pods}/stays", {"metadata": {"labels": {"a": "b"}}})
        for name, written in zip(("stays", "goes"), FORGED[what], strict=True):
            await writer.patch(f"{sandbox.pods}/{name}/status", written)
        await sandbox.pod("preemptor", cpu="3", priorityClassName=high)
        await sandbox.bound("preemptor", 30)
        await sandbox.gone("goes")

        async def left() -> bool:
            return bool((await sandbox.get("stays"))["metadata"].get("deletionTimestamp"))

        await never(left, 2, "the other one is asked to leave")
