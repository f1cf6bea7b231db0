"""What people see of a reconciler: its private port, its metrics, and `giveway explain`."""

import asyncio
import math

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import generate_latest

from tests.reconciler.acting import SHORT, playing
from tests.workloads import deployment, eventually
from webhook.cli.explain import print_workload, read_evictions
from webhook.kube.events import Occurrence
from webhook.kube.resources import DEPLOYMENT, EVENT
from webhook.page.html import document
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler import debug
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.state.annotations import decision_of

pytestmark = pytest.mark.slow


def page(service):
    """What the page of a process shows."""
    return overview(service, 6060, Surroundings())


async def read(service, *paths):
    """The answers of its private port."""
    async with TestClient(TestServer(debug.pages(service))) as client:
        for path in paths:
            answer = await client.get(path)
            yield answer.status, await (answer.text() if path == "/" else answer.json())


async def test_pages_of_a_leader_and_of_a_follower():
    """The queue shows who waits and why, the plans who is to leave and how far that is; the page is the root.

    A follower shows what is written on the pods, and says whom to ask and how. All of them show who was evicted, also
    one that writes nothing, and that has evicted nobody.
    """
    async with playing(2, termination_seconds=4.0) as play, play.reconciling() as leader:
        await eventually(lambda: leader.led_elsewhere() is None)
        async with play.reconciling() as follower:
            await eventually(follower.led_elsewhere)
            await play.victim("a", "node-1", "6")
            await play.victim("b", "node-2", "8", schedulerName="other")
            await play.preemptor("going", "6")
            await play.nominated("going", "node-1")
            await play.preemptor("hopeless", "8")
            await eventually(lambda: {row.pod: row.reason for row in page(leader).waiting}.get("default/hopeless"))
            await eventually(lambda: page(follower).waiting_total == 2)
            # 1. What the leader's port says
            paths = ("/debug/queue", "/debug/plans", "/", "/changes")
            (_, rows), (_, (plan,)), (_, root), (_, changes) = [said async for said in read(leader, *paths)]
            queue = {row["pod"]: (row["state"], row["reason"]) for row in rows}
            assert "<h1>giveway</h1>" in root
            assert changes["sections"].keys() > {"ladder", "queue"}
            assert queue["default/hopeless"][0] in ("unschedulable", "backoff")
            assert "no node" in queue["default/hopeless"][1]
            assert queue["default/going"][0] == "busy"
            assert (plan["preemptor"], plan["node"], plan["victims"][0]["name"]) == ("default/going", "node-1", "a")
            metrics = generate_latest(leader.metrics.registry).decode().splitlines()
            assert {"giveway_nominations 1.0", 'giveway_queue_depth{state="busy"} 1.0'} <= set(metrics)
            # 2. What the follower's says
            command = f"port-forward pod/{leader.identity.partition('_')[0]} 6060"
            async for status, said in read(follower, "/debug/queue", "/debug/plans"):
                assert (status, said["leader"]) == (503, leader.identity)
                assert said["message"].endswith(f"kubectl -n kube-system {command}")
            # 3. What both pages show
            led, followed = page(leader), page(follower)
            assert (led.leadership.role, followed.leadership.role) == ("leads", "follows")
            assert followed.leadership.command.endswith(command)
            assert {row.pod: row.state for row in led.waiting}["default/going"] == "busy"
            for shown in (led, followed):
                assert shown.waiting_total == 2
                ((plan,), (made,)) = shown.plans, shown.decisions
                assert (plan.preemptor, plan.node, plan.victims[0].pod) == ("default/going", "node-1", "default/a")
                assert (made.preemptor, made.selected.node) == ("default/going", "node-1")
                assert "default/hopeless" in document(shown)
            await play.bound("going")
            async with play.reconciling(dry_run=True) as rehearsing:
                for service in (leader, follower, rehearsing):
                    await eventually(lambda service=service: page(service).decisions[0].ending == "bound")
                    await eventually(lambda service=service: page(service).evictions.total == 1)


async def events(play, reason: str) -> list[dict]:
    found, _ = await play.client.list(EVENT.path("default"), dict)
    return [event for event in found if event.get("reason") == reason]


@pytest.mark.skipped_waits
async def test_plan_from_nomination_to_binding(capsys: pytest.CaptureFixture[str]):
    """The preemptor is bound, both sides have their Event, the decision is recorded, and all is counted.

    The Event of the victim's Deployment carries the uid by which `kubectl describe deployment` finds it, and
    `giveway explain` tells for whom it was evicted. An Event that will not be written is counted by its reason.
    """
    async with playing() as play, play.reconciling() as service:
        made = deployment("batch", 1, cpu="6")
        made["spec"]["template"]["spec"]["priorityClassName"] = "low"
        created = await play.client.create(DEPLOYMENT.path("default"), made)
        [victim] = await eventually(play.here)
        await play.runs(victim)
        await play.preemptor("p")
        assert await play.bound("p") == "node-1"
        for reason in ("Preempted", "PreemptForPodSuccessfully", "PodPreempted"):
            await eventually(lambda reason=reason: events(play, reason))
        [preempted], [told] = await events(play, "Preempted"), await events(play, "PodPreempted")
        assert preempted["regarding"]["name"] == victim
        because = '(test/opt-in: the annotation of PriorityClass low says "true")'
        assert preempted["note"].startswith(f"Preempted by pod default/p of priority 100 on node node-1 {because}")
        assert (told["regarding"]["kind"], told["regarding"]["uid"]) == ("Deployment", created["metadata"]["uid"])
        await play.nominated("p", "")
        record = decision_of(await play.get("p"))
        assert (record.node, record.attempt) == ("node-1", 1)
        assert [row.pod for row in record.victims] == [f"default/{victim}"]

        async def explained() -> bool:
            record = await read_evictions(play.client, "kube-system")
            print_workload("default", "deployment/batch", record, Policies())
            said = capsys.readouterr().out
            return "Deployment/default/batch was evicted: 1 in the last hour" in said and "for Pod/default/p" in said

        await eventually(explained)
        text = generate_latest(service.metrics.registry).decode()
        await service._recorder.close()
        service._recorder.event(Occurrence({"name": "a"}, None, "Normal", "Preempted", "Preempting", "-", urgent=True))
        assert 'dropped_total{reason="Preempted"} 1.0' in generate_latest(service.metrics.registry).decode()
    for line in (
        'giveway_preemption_attempts_total{result="evicts"} 1.0',
        'giveway_preemption_plans_total{ending="bound"} 1.0',
        'giveway_evictions_total{namespace="default",policy="test",rule="test/opt-in"} 1.0',
        "giveway_preemption_victims_sum 1.0",
        "giveway_leader 1.0",
        "giveway_nominations 0.0",
        'giveway_queue_depth{state="active"} 0.0',
    ):
        assert line in text, line


@pytest.mark.skipped_waits
async def test_who_may_write():
    """A dry run reports the plan it would make, and neither the pods nor a lease show a trace of it.

    A leader may write until its lease lapses for the others; who does not lead, or rehearses, may not write.
    """
    async with playing() as play, play.reconciling(dry_run=True) as rehearsing:
        await play.victim("a", "node-1", "6")
        await play.preemptor("p")
        line = (await eventually(lambda: play.lines("decision")))[0]
        assert (line["dryRun"], line["node"], line["victims"][0]["pod"]) == (True, "node-1", "default/a")
        await asyncio.sleep(0.5)
        assert not {PLAN, DECISION} & set((await play.get("p")).metadata.annotations or {})
        assert await play.here() == {"a", "p"}
        assert (await play.client.list("/apis/coordination.k8s.io/v1/leases", dict))[0] == []
        async with play.reconciling() as leader, play.reconciling() as other:
            await eventually(lambda: leader.time_to_write() + other.time_to_write())
            writes = sorted(service.time_to_write() for service in (rehearsing, leader, other))
            assert writes[:2] == [0.0, 0.0]
            assert 0 < writes[2] <= SHORT["lease_duration"]
        async with play.reconciling(leader_elect=False) as alone:
            assert alone.time_to_write() == math.inf
