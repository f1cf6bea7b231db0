"""A budget of five and thirty preemptors: never more than five disrupted at once, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from tests.e2e.conftest import LABEL
from tests.e2e.software import policies
from tests.workloads import deployment, eventually
from webhook.kube.informer import Informer
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import DEPLOYMENT, NODE, POD, POD_DISRUPTION_BUDGET
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN

POOL = "giveway.dev/e2e-pool"
REPLICAS, PREEMPTORS, UNAVAILABLE = 40, 30, 5


class Watched:
    """The deployment's healthy pods, counted at every event."""

    def __init__(self, sandbox) -> None:
        self.cache = Informer(sandbox.client, POD.path(sandbox.id), Pod)
        self.fewest = REPLICAS
        self._began = False
        self.cache.handlers.append(lambda _: self._count())

    def healthy(self) -> int:
        pods = self.cache.items().values()
        return sum((pod.metadata.labels or {}).get("app") == "web" and is_ready(pod) for pod in pods)

    def _count(self) -> None:
        self._began |= self.healthy() == REPLICAS
        if self._began:
            self.fewest = min(self.fewest, self.healthy())


def is_ready(pod: Pod) -> bool:
    rows = pod.status.conditions or ()
    return not pod.metadata.deletion_timestamp and any(row.type == "Ready" and row.status == "True" for row in rows)


async def crowd(sandbox, spare: int) -> Watched:
    """Ten nodes full of the deployment's pods, the budget, and spare nodes for replacements only."""
    low = await sandbox.priority_class("low", 80)
    for number in range(10 + spare):
        name = await sandbox.node(f"n{number}", cpu="8")
        pool = "spare" if number >= 10 else "main"
        await sandbox.client.patch(NODE.path(name=name), {"metadata": {"labels": {POOL: pool}}})
        if pool == "spare":
            await sandbox.client.patch(NODE.path(name=name), {"spec": {"unschedulable": True}})
    body = deployment("web", REPLICAS, "2")
    template = body["spec"]["template"]
    template["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    template["spec"] |= {"priorityClassName": low, "nodeSelector": {LABEL: sandbox.id}}
    watched = Watched(sandbox)
    sandbox.watching = asyncio.create_task(watched.cache.run())
    await sandbox.client.create(DEPLOYMENT.path(sandbox.id), body)
    await eventually(lambda: watched.healthy() == REPLICAS, 60, "the deployment is up")
    await sandbox.budget("web", {"app": "web"}, maxUnavailable=UNAVAILABLE)
    for number in range(10, 10 + spare):
        await sandbox.client.patch(NODE.path(name=f"{sandbox.id}-n{number}"), {"spec": {"unschedulable": None}})
    return watched


async def thirty(sandbox) -> None:
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    selector = {LABEL: sandbox.id, POOL: "main"}
    labels = {MARK: MANAGED}
    for number in range(PREEMPTORS):
        await sandbox.pod(f"p{number}", cpu="2", priorityClassName=high, labels=labels, nodeSelector=selector)


def bound(watched: Watched) -> list[Pod]:
    return [pod for pod in watched.cache.items().values() if pod.metadata.name.startswith("p") and pod.spec.node_name]


async def test_all_thirty_are_bound_as_replacements_come_up(sandbox, giveway):
    """Where replacements find room elsewhere, wave after wave gets in; never are more than five pods missing."""
    watched = await crowd(sandbox, spare=8)
    await giveway.reconcile(policies(f"{sandbox.id}-high"))
    await thirty(sandbox)
    await eventually(lambda: len(bound(watched)) == PREEMPTORS, 60, "all thirty are bound")
    assert watched.fewest >= REPLICAS - UNAVAILABLE
    sandbox.watching.cancel()


async def test_the_others_wait_where_replacements_find_no_room(sandbox, giveway):
    """Where replacements cannot run, five get in and twenty-five wait: Pending, promised nothing, evicting nobody."""
    watched = await crowd(sandbox, spare=0)
    await giveway.reconcile(policies(f"{sandbox.id}-high"))
    await thirty(sandbox)
    await eventually(lambda: len(bound(watched)) == UNAVAILABLE, 30, "five are bound")
    await asyncio.sleep(4)
    assert len(bound(watched)) == UNAVAILABLE
    assert watched.fewest == REPLICAS - UNAVAILABLE
    waiting = [
        pod for pod in watched.cache.items().values() if pod.metadata.name.startswith("p") and not pod.spec.node_name
    ]
    assert len(waiting) == PREEMPTORS - UNAVAILABLE
    assert not [pod for pod in waiting if pod.status.nominated_node_name or PLAN in (pod.metadata.annotations or {})]
    sandbox.watching.cancel()


async def test_a_victim_that_was_not_ready_does_not_use_up_the_budget(sandbox, giveway):
    """It went past the budget and cannot end, and the disruption that is left lets another pod go (K27)."""
    values = {"lowest": 70, "low": 80, "kept": 200}
    lowest, low, kept = [await sandbox.priority_class(name, value) for name, value in values.items()]
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    labels, selector, held = {"app": "db"}, {LABEL: sandbox.id}, f"{sandbox.pods}/unready"
    for name, class_name in (("unready", lowest), ("ready", low), ("other", kept)):
        node = await sandbox.node(f"of-{name}")
        gates = {"readinessGates": [{"conditionType": "giveway.dev/never"}]} if name == "unready" else {}
        await sandbox.victim(name, class_name, node=node, labels=labels, **gates)
    not_ready = [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]
    await sandbox.client.patch(f"{held}/status", {"status": {"conditions": not_ready}}, kind="strategic")
    await sandbox.client.patch(held, {"metadata": {"finalizers": ["giveway.dev/held"]}})
    await sandbox.budget("db", labels, minAvailable=1)

    async def one_is_left() -> bool:
        status = (await sandbox.client.get(POD_DISRUPTION_BUDGET.path(sandbox.id, "db")))["status"]
        return (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 1)

    await eventually(one_is_left)
    try:
        await giveway.reconcile(policies(high))
        more = {"cpu": "4", "priorityClassName": high, "labels": {MARK: MANAGED}, "nodeSelector": selector}
        await sandbox.pod("first", **more)

        async def is_leaving() -> bool:
            return "deletionTimestamp" in (await sandbox.get("unready"))["metadata"]

        await eventually(is_leaving, 15, "the pod that is not ready is asked first")
        await sandbox.pod("second", **more)
        await sandbox.one_bound("first", "second")
        assert await is_leaving(), "the other victim's object is still there"
        assert await one_is_left() is False
    finally:
        await sandbox.client.patch(held, {"metadata": {"finalizers": None}})
