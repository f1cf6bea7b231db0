"""Who goes next beside a stock kube-scheduler: evictions in turn, turns of namespaces, signals with an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox
from tests.e2e.software import installed
from tests.e2e.test_eviction_costs import KARPENTER, YES, alive, policy
from tests.workloads import Json, eventually, pod
from webhook.kube.resources import EVENT
from webhook.policy.model.values import MANAGED, MARK

TOLERATES = "preemption-toleration.scheduling.x-k8s.io"


def owned(owner: str) -> list[Json]:
    """An owner of a kind that no controller of the cluster knows."""
    return [{"apiVersion": "example.com/v1", "kind": "Training", "name": owner, "uid": owner, "controller": True}]


async def preemptor(sandbox: Any, name: str, high: str, *, owner: str = "", namespace: str = "") -> None:
    """A pod of two CPUs of a managed class, with the mark that the webhook would give it."""
    body = pod(name, cpu="2", labels={MARK: MANAGED}, priorityClassName=high)
    body["metadata"]["ownerReferences"] = owned(owner) if owner else []
    body["spec"] |= {"nodeSelector": {"giveway.dev/e2e": sandbox.id}, "tolerations": [{"operator": "Exists"}]}
    path = sandbox.pods if not namespace else f"/api/v1/namespaces/{namespace}/pods"
    await sandbox.client.create(path, body)


async def told(sandbox: Any, reason: str, words: str) -> None:
    """Wait for an Event of this reason whose note has these words."""

    async def found() -> bool:
        events, _ = await sandbox.client.list(EVENT.path(sandbox.id), dict)
        return any(event.get("reason") == reason and words in str(event.get("note")) for event in events)

    await eventually(found, 30, f"an Event {reason} says {words!r}")


@pytest.mark.parametrize("keep", ["Evictor", "Nobody"])
async def test_who_stays_in_a_cycle(sandbox, kubeconfig, tmp_path, keep):
    """A workload whose class was raised does not evict its evictor in turn, or does and tells it."""
    await sandbox.node("n1", cpu="2")
    low, high, top = [
        await sandbox.priority_class(name, value, preemptionPolicy="Never")
        for name, value in (("low", 80), ("high", 100), ("top", 120))
    ]
    body = pod("b1", cpu="2", priorityClassName=low)
    body["metadata"] |= {"annotations": YES, "ownerReferences": owned("batch")}
    body["spec"] |= {"nodeSelector": {"giveway.dev/e2e": sandbox.id}, "tolerations": [{"operator": "Exists"}]}
    await sandbox.client.create(sandbox.pods, body)
    await sandbox.running("b1")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        classes = {"priorityClasses": [high, top]}
        limits = {"cycles": {"keep": keep, "window": "1h"}}
        await giveway.reconcile(policy(high, preemptors=classes, victims={"mode": "opt-out"}, limits=limits))
        await preemptor(sandbox, "a1", high, owner="web")
        await sandbox.running("a1", 30)
        await preemptor(sandbox, "b2", top, owner="batch")
        way = f"Training/{sandbox.id}/web evicted Training/{sandbox.id}/batch"
        if keep == "Nobody":
            await sandbox.bound("b2", 30)
            await told(sandbox, "PreemptionCycle", way)
        else:
            await told(sandbox, "PreemptionWaits", f"pods of Training/{sandbox.id}/web stay")
            assert await alive(sandbox, "a1")


async def test_namespaces_take_turns(sandbox, kubeconfig, tmp_path):
    """With one eviction in three seconds the only pod of a namespace waits for one or two of many, not for all."""
    other = Sandbox(sandbox.client)
    await other.begin()
    try:
        await sandbox.node("n1", cpu="8")
        low = await sandbox.priority_class("low", 80)
        for number in range(4):
            body = pod(f"v{number}", cpu="2", priorityClassName=low)
            body["metadata"]["annotations"] = YES
            body["spec"] |= {"nodeSelector": {"giveway.dev/e2e": sandbox.id}, "tolerations": [{"operator": "Exists"}]}
            await sandbox.client.create(sandbox.pods, body)
        for number in range(4):
            await sandbox.running(f"v{number}")
        high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
        async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
            await giveway.reconcile(policy(high, limits={"perCluster": {"evictions": 1, "window": "3s"}}))
            for number in range(3):
                await preemptor(sandbox, f"greedy{number}", high)
            await asyncio.sleep(1.1)
            await preemptor(sandbox, "modest", high, namespace=other.id)
            await other.bound("modest", 40)
            bound = [(await sandbox.get(f"greedy{number}"))["spec"].get("nodeName") for number in range(3)]
            assert bound.count(None) >= 1, "it did not wait until all the others had been served"
            for number in range(3):
                await sandbox.bound(f"greedy{number}", 40)
    finally:
        await other.end()


@pytest.mark.parametrize("signal", ["a duration", "a toleration"])
async def test_a_signal_with_an_end(sandbox, kubeconfig, tmp_path, signal):
    """The pod stays for the time that its annotation or class asks for, and goes then without anyone touching it."""
    await sandbox.node("n1", cpu="2")
    low, high = [await sandbox.priority_class(n, v, preemptionPolicy="Never") for n, v in (("low", 80), ("high", 100))]
    annotations, victims = {}, {"mode": "opt-out", "signals": [{"annotation": KARPENTER, "duration": True}]}
    if signal == "a duration":
        annotations = {KARPENTER: "12s"}
    else:
        victims = {"mode": "opt-out", "preemptionToleration": True}
        asked = {f"{TOLERATES}/minimum-preemptable-priority": "101", f"{TOLERATES}/toleration-seconds": "12"}
        path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{low}"
        await sandbox.client.patch(path, {"metadata": {"annotations": asked}})
    body = pod("v", cpu="2", priorityClassName=low)
    body["metadata"]["annotations"] = annotations
    body["spec"] |= {"nodeSelector": {"giveway.dev/e2e": sandbox.id}, "tolerations": [{"operator": "Exists"}]}
    await sandbox.client.create(sandbox.pods, body)
    await sandbox.running("v")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, victims=victims))
        await preemptor(sandbox, "p", high)
        await told(sandbox, "PreemptionWaits", "the protection of a pod of lower priority ends")
        assert await alive(sandbox, "v")
        await sandbox.bound("p", 40)
        assert not await alive(sandbox, "v")
