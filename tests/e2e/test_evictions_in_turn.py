"""Who goes next beside a stock kube-scheduler: evictions in turn, and signals with an end."""

import pytest

from tests.e2e.software import policies

KARPENTER, TOLERATES = "karpenter.sh/do-not-disrupt", "preemption-toleration.scheduling.x-k8s.io"


@pytest.mark.parametrize("keep", ["Evictor", "Nobody"])
async def test_who_stays_in_a_cycle(sandbox, giveway, keep):
    """A workload whose class was raised does not evict its evictor in turn, or does and tells it."""
    await sandbox.node("n1", cpu="2")
    low, high, top = [
        await sandbox.priority_class(name, value, preemptionPolicy="Never")
        for name, value in (("low", 80), ("high", 100), ("top", 120))
    ]
    await sandbox.victim("b1", low, "2", owner="batch")
    classes = {"priorityClasses": [high, top]}
    limits = {"cycles": {"keep": keep, "window": "1h"}}
    await giveway.reconcile(policies(high, preemptors=classes, victims={"mode": "opt-out"}, limits=limits))
    await sandbox.preemptor(high, "2", "a1", owner="web")
    await sandbox.running("a1", 30)
    await sandbox.preemptor(top, "2", "b2", owner="batch")
    way = f"Training/{sandbox.id}/web evicted Training/{sandbox.id}/batch"
    if keep == "Nobody":
        await sandbox.bound("b2", 30)
        await sandbox.told(way, "PreemptionCycle")
    else:
        await sandbox.told(f"pods of Training/{sandbox.id}/web stay", "PreemptionWaits")
        assert "a1" in await sandbox.here()


@pytest.mark.parametrize("signal", ["a duration", "a toleration"])
async def test_a_signal_with_an_end(sandbox, giveway, signal):
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
    await sandbox.run("v", annotations=annotations, priorityClassName=low)
    await giveway.reconcile(policies(high, victims=victims))
    await sandbox.preemptor(high, "2")
    await sandbox.told("the protection of a pod of lower priority ends", "PreemptionWaits")
    assert "v" in await sandbox.here()
    await sandbox.bound("p", 40)
    assert "v" not in await sandbox.here()
