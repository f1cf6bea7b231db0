"""Carrying plans out on a control plane: order, budgets, nominations and their end (docs/semantics.md E)."""

import asyncio
import math
import time

import pytest

from tests.failing import fail
from tests.reconciler.acting import PODS, earlier_plans, managing, playing
from tests.workloads import budget, condition, deployment, eventually, never
from webhook.kube.instants import rfc3339
from webhook.kube.resources import DEPLOYMENT, EVENT, NODE, POD_DISRUPTION_BUDGET
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord, decision_of, encode
from webhook.reconciler.state.plan_victims import PlanVictim

pytestmark = pytest.mark.skipped_waits


async def events(play, reason: str) -> list[dict]:
    found, _ = await play.client.list(EVENT.path("default"), dict)
    return [event for event in found if event.get("reason") == reason]


async def test_plan_from_nomination_to_binding():
    """The preemptor is bound, both sides have their Event, the decision is recorded, and no plan is left."""
    async with playing() as play, play.reconciling():
        await play.victim("victim", "node-1", "6")
        await play.preemptor("p")
        assert await play.bound("p") == "node-1"

        async def told() -> bool:
            return bool(await events(play, "Preempted") and await events(play, "PreemptForPodSuccessfully"))

        await eventually(told)
        preempted = (await events(play, "Preempted"))[0]
        assert preempted["regarding"]["name"] == "victim"
        assert preempted["note"].startswith("Preempted by pod default/p of priority 100 on node node-1 (test/opt-in: ")
        assert '(test/opt-in: the annotation of PriorityClass low says "true")' in preempted["note"]
        await play.nominated("p", "")
        record = decision_of(await play.get("p"))
        assert (record.node, [victim.pod for victim in record.victims], record.attempt) == (
            "node-1",
            ["default/victim"],
            1,
        )


async def test_the_victims_deployment_is_told():
    """Its Event carries the uid by which `kubectl describe deployment` finds it."""
    async with playing() as play, play.reconciling():
        made = deployment("batch", 2, cpu="3")
        made["spec"]["template"]["spec"]["priorityClassName"] = "low"
        created = await play.client.create(DEPLOYMENT.path("default"), made)

        async def runs() -> bool:
            found = await play.client.get(DEPLOYMENT.path("default", "batch"))
            return found.get("status", {}).get("readyReplicas") == 2

        await eventually(runs)
        await play.preemptor("p")
        [told] = await eventually(lambda: events(play, "PodPreempted"))
        assert (told["regarding"]["kind"], told["regarding"]["uid"]) == ("Deployment", created["metadata"]["uid"])


async def test_delete_mode_marks_the_victim_first():
    """With `eviction: delete` the victim carries DisruptionTarget before it goes, and budgets are not asked."""
    async with playing(termination_seconds=3.0) as play, play.reconciling(managing(eviction=EvictionMode.DELETE)):
        await play.victim("victim", "node-1", "6")
        await play.preemptor("p")

        async def target() -> dict:
            found = await play.client.get(f"{PODS}/victim")
            return condition(found, "DisruptionTarget") if "deletionTimestamp" in found["metadata"] else {}

        row = await eventually(target)
        assert (row["status"], row["reason"]) == ("True", "PreemptionByScheduler")


async def test_budget_that_refuses_drops_the_plan():
    """429: the nomination is cleared, nobody else is evicted, and the pod is tried again later."""
    async with playing(without=("disruption",)) as play:
        for number in range(2):
            await play.victim(f"v{number}", "node-1", "4")
        body = budget("all", {"app": "v0"}, maxUnavailable=0)
        await play.client.create(POD_DISRUPTION_BUDGET.path("default"), body)
        status = {
            "status": {
                "disruptionsAllowed": 1,
                "currentHealthy": 1,
                "desiredHealthy": 0,
                "expectedPods": 1,
                "observedGeneration": 99,
            }
        }
        await play.client.patch(POD_DISRUPTION_BUDGET.path("default", "all", "status"), status)
        async with play.reconciling() as service:
            # The watch of the budgets is behind: by the time of the eviction nothing is allowed any more.
            service.state.budgets.handlers.clear()
            seen = service.state.budgets.get("default/all")
            service.state.budgets.get = lambda key: seen if key == "default/all" else None
            await asyncio.sleep(0.3)
            await play.client.patch(
                POD_DISRUPTION_BUDGET.path("default", "all", "status"), {"status": {"disruptionsAllowed": 0}}
            )
            await play.preemptor("p", "7")
            await eventually(lambda: play.lines("budget refused"))
            await play.nominated("p", "")
            assert await play.here() == {"v0", "v1", "p"}
            assert service.metrics.budget_refusals._value.get() >= 1


async def test_victim_that_cannot_be_evicted_is_passed_over():
    """Where the API server does not let a pod go, the preemptor gets its room on another node instead."""
    async with playing(2) as play, play.reconciling():
        await play.victim("kept", "node-1", "6")
        await play.victim("one", "node-2", "4")
        await play.victim("two", "node-2", "4")
        await play.client.patch(NODE.path(name="node-2"), {"spec": {"unschedulable": True}})
        fail(play.cluster, math.inf, "pods/eviction", name="kept")
        await play.preemptor("p", "5")
        await eventually(lambda: play.lines("plan ended"))
        assert play.lines("plan ended")[0]["ending"] == "failed"
        await play.client.patch(NODE.path(name="node-2"), {"spec": {"unschedulable": None}})
        assert await play.bound("p") == "node-2"
        assert await play.here() == {"kept", "p"}


async def test_lower_nomination_is_cleared():
    """A preemptor of higher priority takes the node, and the plan of the lower one starts over elsewhere."""
    async with playing(2, termination_seconds=1.5) as play, play.reconciling():
        await play.victim("a", "node-1", "6")
        await play.victim("b", "node-2", "8", schedulerName="other")
        await play.preemptor("low-one", "6")
        await play.nominated("low-one", "node-1")
        await play.preemptor("high-one", "6", "higher")
        assert await play.bound("high-one") == "node-1"
        await play.nominated("low-one", "")
        assert "b" in await play.here()


@pytest.mark.parametrize("how", ["node deleted", "pod deleted"])
async def test_pointless_nomination_is_cleared(how: str):
    """When the node is gone the nomination goes; when the pod is gone, so does its plan."""
    async with playing(termination_seconds=30.0) as play, play.reconciling() as service:
        await play.victim("a", "node-1", "6", terminationGracePeriodSeconds=40)
        await play.preemptor("p")
        await play.nominated("p", "node-1")
        if how == "node deleted":
            await play.client.delete(NODE.path(name="node-1"))
        if how == "pod deleted":
            await play.client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
            await eventually(lambda: not len(service.reconciler.plans))
        else:
            await play.nominated("p", "")
            await never(lambda: len(play.lines("decision")) > 1, 1.0)


async def test_nomination_of_a_pod_that_is_slow_to_go_is_cleared():
    """A preemptor that is being deleted but has finalizers keeps no room reserved."""
    async with playing(termination_seconds=30.0) as play, play.reconciling():
        await play.victim("a", "node-1", "6", terminationGracePeriodSeconds=40)
        await play.preemptor("p")
        await play.client.patch(f"{PODS}/p", {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}})
        await play.nominated("p", "node-1")
        await play.client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        await play.nominated("p", "")
        await never(lambda: len(play.lines("decision")) > 1, 1.0)
        assert (await play.get("p")).metadata.deletion_timestamp
        assert [line["ending"] for line in play.lines("plan ended")] == ["deleted"]


async def test_plan_times_out():
    """A victim that does not end in time holds the node for no longer than that, and costs nobody else their place."""
    async with playing(2) as play, play.reconciling(managing(plan_timeout=1.0)):
        await play.victim("a", "node-1", "6", terminationGracePeriodSeconds=1)
        await play.client.patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.com/slow"]}})
        await play.victim("b", "node-2", "8", schedulerName="other")
        await play.preemptor("p")
        await play.nominated("p", "node-1")
        await play.nominated("p", "")
        assert play.lines("plan ended")[0]["ending"] == "timed-out"
        await never(lambda: len([line for line in play.lines("decision") if line.get("victims")]) > 1, 1.0)


async def test_plan_gives_its_victims_their_time():
    """With victims that take longer to end than the plan's time, the room is held for them and nobody else goes."""
    async with playing(2, termination_seconds=4.0) as play, play.reconciling(managing(plan_timeout=1.0)):
        await play.victim("a", "node-1", "6", terminationGracePeriodSeconds=4)
        await play.victim("b1", "node-2", "4", terminationGracePeriodSeconds=4)
        await play.victim("b2", "node-2", "4", terminationGracePeriodSeconds=4)
        await play.preemptor("p", "5")
        assert await play.bound("p") == "node-1"
        assert await play.here() == {"b1", "b2", "p"}


async def test_attempts_count_over_a_change_of_leader():
    """A plan that comes to nothing under a new leader counts, though its victims were asked by the one before."""
    policies = managing(plan_timeout=1.0, limits=Limits(attempts_per_preemptor=1))
    async with playing(termination_seconds=30.0) as play:
        await play.victim("a", "node-1", "4", terminationGracePeriodSeconds=3)
        await play.client.patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.com/slow"]}})
        await play.victim("b", "node-1", "4")
        await play.preemptor("p")
        uid = (await play.get("a")).metadata.uid
        await play.client.delete(f"{PODS}/a")
        record = PlanRecord(id="earlier", node="node-1", victims=(PlanVictim("default", "a", uid),))
        await earlier_plans(play, ("p", record))
        async with play.reconciling(policies):
            await play.nominated("p", "")
            told = await eventually(lambda: play.lines("no preemption"), 150)
            assert "1 plans evicted pods for it in vain" in told[-1]["reason"]
            assert "b" in await play.here()


async def test_space_taken_by_a_higher_priority():
    """A pod of higher priority that kube-scheduler put on the node takes the plan's room: the pod starts over."""
    async with playing(termination_seconds=1.0) as play, play.reconciling():
        await play.victim("a", "node-1", "6")
        await play.preemptor("p", "6")
        await play.nominated("p", "node-1")
        await play.preemptor("thief", "6", "higher", nodeName="node-1")
        await play.nominated("p", "")
        assert play.lines("plan ended")[0]["ending"] in ("space-taken", "outdated")


async def test_foreign_nomination_is_left_alone():
    """A nomination that somebody else set on a pod of no concern is not touched."""
    async with playing() as play, play.reconciling():
        await play.victim("a", "node-1", "7")
        await play.client.create(
            PODS,
            {
                "metadata": {"name": "other"},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]},
            },
        )
        await play.client.patch(f"{PODS}/other/status", {"status": {"nominatedNodeName": "node-9"}})
        await asyncio.sleep(1.0)
        assert (await play.get("other")).status.nominated_node_name == "node-9"


async def test_dry_run_touches_nothing():
    """A dry run reports the plan it would make, and neither the pods nor a lease show a trace of it."""
    async with playing() as play, play.reconciling(dry_run=True):
        await play.victim("a", "node-1", "6")
        await play.preemptor("p")
        line = (await eventually(lambda: play.lines("decision")))[0]
        assert (line["dryRun"], line["node"], line["victims"][0]["pod"]) == (True, "node-1", "default/a")
        await asyncio.sleep(0.5)
        found = await play.get("p")
        assert not {PLAN, DECISION} & set(found.metadata.annotations or {})
        assert await play.here() == {"a", "p"}
        leases, _ = await play.client.list("/apis/coordination.k8s.io/v1/leases", dict)
        assert leases == []


async def test_policies_are_reloaded():
    """A pod whose class becomes managed is acted for from then on, by annotations the policy names."""
    async with playing() as play, play.reconciling(managing()) as service:
        await play.victim("a", "node-1", "6")
        policies = managing()
        service.use(type(policies)())
        await play.preemptor("p")
        await never(lambda: play.lines("decision"), 0.7)
        service.use(policies)
        assert await play.bound("p") == "node-1"


async def test_nomination_that_was_taken_is_made_again():
    """If somebody nominates the pod to a node without room, the room is reserved again and nobody else is evicted."""
    async with playing(2, termination_seconds=3.0) as play, play.reconciling():
        await play.victim("a", "node-1", "6")
        await play.victim("b", "node-2", "8", schedulerName="other")
        await play.preemptor("p", "6")
        await play.nominated("p", "node-1")
        await play.client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "node-2"}})
        assert await play.bound("p") == "node-1"
        assert play.lines("plan ended")[0]["ending"] == "nomination-lost"
        assert len([line for line in play.lines("decision") if line.get("victims")]) == 1
        assert "b" in await play.here()


async def test_nomination_by_somebody_else_is_respected():
    """A pod that somebody else nominated to a node where room is coming up is left to them."""
    async with playing(1, termination_seconds=3.0) as play:
        await play.victim("a", "node-1", "6")
        await play.preemptor("p", "6")
        await play.client.delete(f"{PODS}/a")
        await play.client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "node-1"}})
        async with play.reconciling():
            assert await play.bound("p") == "node-1"
        assert play.lines("decision") == []


async def test_rates_are_not_used_up_by_anybody():
    """A decision that somebody wrote on a pod of no concern counts for no rate."""
    policies = managing(limits=Limits(per_cluster=Rate(1, 60.0)))
    async with playing() as play:
        await play.victim("a", "node-1", "6")
        said = DecisionRecord(
            plan="x",
            at=rfc3339(time.time()),
            node="node-1",
            policy="test",
            attempt=1,
            victims=(DecidedVictim(pod="default/z", priority=1),),
        )
        await play.client.patch(f"{PODS}/a", {"metadata": {"annotations": {DECISION: encode(said)}}})
        async with play.reconciling(policies):
            await play.preemptor("p")
            assert await play.bound("p") == "node-1"


async def test_two_plans_that_block_each_other_are_resolved():
    """Two pods nominated to one node with room for one keep each other out: it is noticed, and one gets in."""
    async with playing(termination_seconds=0.5) as play:
        await play.victim("a", "node-1", "6", schedulerName="other")
        await play.preemptor("p1", "6")
        await play.preemptor("p2", "6")
        plans = (PlanRecord(id=name, node="node-1", deadline="2099-01-01T00:00:00Z") for name in ("p1", "p2"))
        await earlier_plans(play, *((plan.id, plan) for plan in plans))
        await play.client.delete(f"{PODS}/a")
        async with play.reconciling():
            await eventually(lambda: some_bound(play, "p1", "p2"), 25)


async def some_bound(play, *names: str) -> bool:
    return any([(await play.get(name)).spec.node_name for name in names])
