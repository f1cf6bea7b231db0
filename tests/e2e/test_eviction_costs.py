"""Who goes beside a stock kube-scheduler: costs, signals, limits of workloads and namespaces.

Each case has nodes full of pods of equal priority, and the pod that has to go by the policy is not the one that
Kubernetes would take by its start.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.conftest import MAY_GO
from tests.e2e.software import policies
from webhook.kube.pods import POD_DELETION_COST

KARPENTER = "karpenter.sh/do-not-disrupt"


async def full(sandbox: Any, *pods: dict[str, Any]) -> str:
    """A node that these pods of equal priority fill, begun one second after the other; the class of preemptors."""
    await sandbox.node("n1", cpu="4")
    low, high = await sandbox.classes()
    for number, fields in enumerate(pods):
        await asyncio.sleep(1.1 if number else 0)  # start times are whole seconds
        await sandbox.run(priorityClassName=low, **fields)
    return high


CASES = [
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"deletionCost": True}}},
        [
            {"name": "goes", "annotations": {**MAY_GO, POD_DELETION_COST: "-5"}},
            {"name": "stays", "annotations": {**MAY_GO, POD_DELETION_COST: "5"}},
        ],
        id="the lower deletion cost goes",
    ),
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"groupRestarts": True}}},
        [
            {"name": "goes", "annotations": MAY_GO},
            {"name": "stays", "annotations": MAY_GO, "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
        ],
        id="a pod of no group goes",
    ),
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"lostWork": {"checkpoints": ["example.com/saved-at"]}}}},
        [
            {"name": "goes", "annotations": {**MAY_GO, "example.com/saved-at": "2199-01-01T00:00:00Z"}},
            {"name": "stays", "annotations": MAY_GO},
        ],
        id="the one that saved its work goes",
    ),
    pytest.param(
        {"victims": {"mode": "opt-out", "signals": [{"annotation": KARPENTER, "protects": ["true"]}]}},
        [{"name": "goes", "annotations": {KARPENTER: "false"}}, {"name": "stays", "annotations": {KARPENTER: "true"}}],
        id="a signal of another tool protects",
    ),
]


@pytest.mark.parametrize(("spec", "pods"), CASES)
async def test_who_goes(sandbox, giveway, spec, pods):
    """The pod that goes started first, so by Kubernetes' own order the other one would."""
    high = await full(sandbox, *pods)
    await giveway.reconcile(policies(high, **spec))
    await sandbox.preemptor(high, "2")
    await sandbox.bound("p", 30)
    assert await sandbox.here() == {"stays", "p"}


async def test_a_workload_that_had_its_evictions_stays(sandbox, giveway):
    """After one eviction of a workload its next pod stays, and the waiting pod says why."""
    high = await full(sandbox, *({"name": name, "owner": "db", "annotations": MAY_GO} for name in ("a", "b")))
    await giveway.reconcile(policies(high, limits={"perWorkload": {"evictions": 1, "window": "1h"}}))
    await sandbox.preemptor(high, "2")
    await sandbox.bound("p", 30)
    await sandbox.preemptor(high, "2", "q")
    await sandbox.told("limits.perWorkload")
    assert len({"a", "b"} & await sandbox.here()) == 1


async def test_a_namespace_has_its_share(sandbox, giveway):
    """One eviction a window: the second preemptor waits for the rate of the namespace."""
    high = await full(sandbox, *({"name": name, "annotations": MAY_GO} for name in ("a", "b")))
    await giveway.reconcile(policies(high, limits={"perNamespace": {"evictions": 1, "window": "10s"}}))
    for name in ("p", "q"):
        await sandbox.preemptor(high, "2", name)
    first = await sandbox.one_bound("p", "q")
    await asyncio.sleep(3)
    assert len({"a", "b"} & await sandbox.here()) == 1
    await sandbox.bound("q" if first == "p" else "p", 40)
