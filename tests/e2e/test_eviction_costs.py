"""Who goes beside a stock kube-scheduler: costs, signals, limits of workloads and namespaces.

Each case has nodes full of pods of equal priority, and the pod that has to go by the policy is not the one that
Kubernetes would take by its start.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.conftest import LABEL
from tests.e2e.software import installed
from tests.workloads import eventually, pod
from webhook.kube.pods import POD_DELETION_COST
from webhook.kube.resources import EVENT
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

YES = {CAN_BE_PREEMPTED: "true"}
KARPENTER = "karpenter.sh/do-not-disrupt"


def policy(high: str, **spec: Any) -> str:
    """A PreemptionPolicy for this class, as JSON, which is YAML."""
    body = {"preemptors": {"priorityClasses": [high]}, "victims": {"mode": "opt-in"}, **spec}
    return json.dumps(
        {"apiVersion": "giveway.dev/v1alpha1", "kind": "PreemptionPolicy", "metadata": {"name": "e2e"}, "spec": body}
    )


async def made(
    sandbox: Any,
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str],
    owner: str = "",
    **spec: Any,
) -> None:
    """A running pod with these annotations; its owner is of a kind that no controller of the cluster knows."""
    body = pod(name, cpu="2", labels=labels, **spec)
    body["metadata"]["annotations"] = annotations
    if owner:
        reference = {
            "apiVersion": "example.com/v1",
            "kind": "Training",
            "name": owner,
            "uid": owner,
            "controller": True,
        }
        body["metadata"]["ownerReferences"] = [reference]
    body["spec"] |= {"nodeSelector": {LABEL: sandbox.id}, "tolerations": [{"operator": "Exists"}]}
    await sandbox.client.create(sandbox.pods, body)
    await sandbox.running(name)


async def full(sandbox: Any, *pods: dict[str, Any]) -> str:
    """A node that these pods of equal priority fill, begun one second after the other; the class of preemptors."""
    await sandbox.node("n1", cpu="4")
    low = await sandbox.priority_class("low", 80)
    for number, fields in enumerate(pods):
        await asyncio.sleep(1.1 if number else 0)  # start times are whole seconds
        await made(sandbox, priorityClassName=low, **fields)
    return await sandbox.priority_class("high", 100, preemptionPolicy="Never")


async def alive(sandbox: Any, name: str) -> bool:
    found, _ = await sandbox.client.list(sandbox.pods, dict)
    return any(one["metadata"]["name"] == name and "deletionTimestamp" not in one["metadata"] for one in found)


CASES = [
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"deletionCost": True}}},
        [
            {"name": "goes", "annotations": {**YES, POD_DELETION_COST: "-5"}},
            {"name": "stays", "annotations": {**YES, POD_DELETION_COST: "5"}},
        ],
        id="the lower deletion cost goes",
    ),
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"groupRestarts": True}}},
        [
            {"name": "goes", "annotations": YES},
            {"name": "stays", "annotations": YES, "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
        ],
        id="a pod of no group goes",
    ),
    pytest.param(
        {"victims": {"mode": "opt-in", "cost": {"lostWork": {"checkpoints": ["example.com/saved-at"]}}}},
        [
            {"name": "goes", "annotations": {**YES, "example.com/saved-at": "2199-01-01T00:00:00Z"}},
            {"name": "stays", "annotations": YES},
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
async def test_who_goes(sandbox, kubeconfig, tmp_path, spec, pods):
    """The pod that goes started first, so by Kubernetes' own order the other one would."""
    high = await full(sandbox, *pods)
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, **spec))
        await sandbox.pod("p", cpu="2", priorityClassName=high, labels={MARK: MANAGED})
        await sandbox.bound("p", 30)
        assert await alive(sandbox, "stays")
        assert not await alive(sandbox, "goes")


async def test_a_workload_that_had_its_evictions_stays(sandbox, kubeconfig, tmp_path):
    """After one eviction of a workload its next pod stays, and the waiting pod says why."""
    high = await full(sandbox, *({"name": name, "owner": "db", "annotations": YES} for name in ("a", "b")))
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, limits={"perWorkload": {"evictions": 1, "window": "1h"}}))
        await sandbox.pod("p", cpu="2", priorityClassName=high, labels={MARK: MANAGED})
        await sandbox.bound("p", 30)
        await sandbox.pod("q", cpu="2", priorityClassName=high, labels={MARK: MANAGED})

        async def told() -> bool:
            found, _ = await sandbox.client.list(EVENT.path(sandbox.id), dict)
            return any("limits.perWorkload" in str(event.get("note")) for event in found)

        await eventually(told, 30, "the waiting pod is told of the limit")
        assert [await alive(sandbox, name) for name in ("a", "b")].count(True) == 1


async def test_a_namespace_has_its_share(sandbox, kubeconfig, tmp_path):
    """One eviction a window: the second preemptor waits for the rate of the namespace."""
    high = await full(sandbox, *({"name": name, "annotations": YES} for name in ("a", "b")))
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, limits={"perNamespace": {"evictions": 1, "window": "10s"}}))
        for name in ("p", "q"):
            await sandbox.pod(name, cpu="2", priorityClassName=high, labels={MARK: MANAGED})
        first = await eventually(lambda: either_bound(sandbox), 30, "one of them is bound")
        await asyncio.sleep(3)
        assert [await alive(sandbox, name) for name in ("a", "b")].count(True) == 1
        await sandbox.bound("q" if first == "p" else "p", 40)


async def either_bound(sandbox: Any) -> str:
    for name in ("p", "q"):
        if (await sandbox.get(name))["spec"].get("nodeName"):
            return name
    return ""
