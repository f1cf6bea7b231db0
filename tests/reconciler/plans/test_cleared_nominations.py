"""Schedulers that clear nominations: the plan goes on without, and who takes the room is named for what it is."""

import asyncio

import pytest

from tests.reconciler.acting import PODS, playing
from tests.workloads import eventually, priority_class
from tests.workloads import pod as pod_body
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.values import PLAN
from webhook.reconciler.evict import executor

pytestmark = pytest.mark.skipped_waits

NO_POST_FILTER = ("preemption",)
"""Without kube-scheduler's own preemption the profile has no PostFilter plugin."""


def endings(play) -> list[str]:
    return [line["ending"] for line in play.lines("plan ended")]


async def test_plan_goes_on_without_its_nomination():
    """A scheduler that clears the nomination when the first victim is gone ends no plan; that is said once."""
    async with playing(2, without=NO_POST_FILTER, termination_seconds=3.0) as play, play.reconciling() as service:
        for number in (1, 2):
            await play.victim(f"a{number}", f"node-{number}", "4")
            await play.victim(f"b{number}", f"node-{number}", "4")
        for number in (1, 2):  # each has one node: where both fit, the scheduler may put one in the other's room
            await play.preemptor(f"p{number}", "8", nodeSelector={"kubernetes.io/hostname": f"node-{number}"})
        for name in ("p1", "p2"):
            await tried_again(play, name)
        assert [await play.bound("p1"), await play.bound("p2")] == ["node-1", "node-2"]
        await eventually(lambda: endings(play) == ["bound", "bound"])
        assert len(play.lines("decision")) == 2
        assert len(play.lines("nominations are not kept")) == 1
        cleared = service.metrics.nominations_cleared.labels("default-scheduler")._value.get()
        assert cleared >= 1
        for name in ("p1", "p2"):
            await play.nominated(name, "")


async def test_replacement_that_takes_the_room():
    """A pod of lower priority that is bound in room which nothing reserves has taken it: no nomination was lost."""
    async with playing(1, without=NO_POST_FILTER, termination_seconds=3.0) as play, play.reconciling():
        await play.victim("a", "node-1", "4")
        await play.victim("b", "node-1", "4")
        await play.preemptor("p", "8")
        await tried_again(play, "p")
        await eventually(lambda: play.lines("nominations are not kept"))
        await eventually(lambda: both_asked(play))
        await play.client.create(PODS, pod_body("replacement", cpu="4", node="node-1", priorityClassName="low"))
        await eventually(lambda: endings(play))
        assert endings(play)[0] == "space-taken"
        assert await play.bound("p", 90.0) == "node-1"


async def test_higher_priority_that_takes_the_node():
    """kube-scheduler clears the nomination for a pod of higher priority that it preempts for: that took the room."""
    async with playing(1, termination_seconds=2.0) as play, play.reconciling():
        await play.client.create(PRIORITY_CLASS.path(), priority_class("top", 300))
        await play.victim("a", "node-1", "6")
        await play.preemptor("p", "6")
        await play.nominated("p", "node-1")
        await play.client.create(PODS, pod_body("top-one", cpu="6", priorityClassName="top"))
        assert await play.bound("top-one") == "node-1"
        await eventually(lambda: endings(play))
        assert endings(play)[0] == "space-taken"
        assert not play.lines("nominations are not kept")


async def test_new_leader_goes_on_without_the_nomination():
    """A plan whose nomination the scheduler has cleared is taken up by the next leader, which makes no other."""
    async with playing(1, without=NO_POST_FILTER, termination_seconds=4.0) as play:
        await play.victim("a", "node-1", "4")
        await play.victim("b", "node-1", "4", schedulerName="other")
        async with play.reconciling():
            await play.preemptor("p", "4")
            await play.nominated("p", "node-1")
            await eventually(lambda: gone_or_leaving(play, "a"))
        await play.client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": None}})
        async with play.reconciling():
            assert await play.bound("p") == "node-1"
            await play.nominated("p", "")
            await eventually(lambda: endings(play)[-1] == "bound")
        assert len(play.lines("decision")) == 1


@pytest.mark.parametrize(("looks", "waits"), [(1000, True), (3, False)], ids=["for the other plan", "not for long"])
async def test_plan_of_a_bound_pod_is_taken_off_when_the_others_have_ended(monkeypatch, looks, waits):
    """While another plan is under way it stays, since each write makes that one wait; but only for some seconds."""
    monkeypatch.setattr(executor, "_CLEAR_LOOKS", looks)
    async with playing(2) as play, play.reconciling():
        for number in (1, 2):
            await play.victim(f"v{number}", f"node-{number}", "6")
        await play.client.patch(f"{PODS}/v2", {"metadata": {"finalizers": ["example.com/stays"]}})
        await play.preemptor("p2", "6", nodeSelector={"kubernetes.io/hostname": "node-2"})
        await play.nominated("p2", "node-2")
        await play.preemptor("p1", "6", nodeSelector={"kubernetes.io/hostname": "node-1"})
        assert await play.bound("p1") == "node-1"
        await eventually(lambda: endings(play) == ["bound"])
        if waits:
            await asyncio.sleep(60)
            assert PLAN in (await play.get("p1")).metadata.annotations
        else:
            await play.nominated("p1", "")
            assert await gone_or_leaving(play, "v2")
            assert endings(play) == ["bound"]
        await play.client.patch(f"{PODS}/v2", {"metadata": {"finalizers": []}})
        assert await play.bound("p2") == "node-2"
        for name in ("p1", "p2"):
            await play.nominated(name, "")


async def both_asked(play) -> bool:
    return not {"a", "b"} & await play.here()


async def tried_again(play, name: str) -> None:
    """Let the scheduler try a preemptor once it has a plan, before its victims are gone."""
    await eventually(lambda: planned(play, name))
    await play.client.patch(f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}})


async def planned(play, name: str) -> bool:
    return PLAN in ((await play.get(name)).metadata.annotations or {})


async def gone_or_leaving(play, name: str) -> bool:
    return name not in await play.here()


@pytest.mark.parametrize("keeps", [True, False], ids=["profile with PostFilter", "profile without"])
async def test_scheduler_without_post_filter(keeps: bool):
    """The stand-in for kube-scheduler keeps an outside nomination at a failed attempt only if it preempts itself."""
    async with playing(2, without=() if keeps else NO_POST_FILTER) as play:
        await play.victim("a", "node-1", "4", schedulerName="other")
        await play.victim("b", "node-1", "4")
        await play.victim("c", "node-2", "8")
        await play.preemptor("p", "6")
        await eventually(lambda: unschedulable(play))
        await play.client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "node-1"}})
        await play.client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
        if keeps:
            await never_cleared(play)
        else:
            await eventually(lambda: nomination_is(play, ""), 5)


async def never_cleared(play) -> None:
    with pytest.raises(AssertionError):
        await eventually(lambda: nomination_is(play, ""), 1.5)


async def nomination_is(play, node: str) -> bool:
    return (await play.get("p")).status.nominated_node_name == node


async def unschedulable(play) -> bool:
    return any(row.reason == "Unschedulable" for row in (await play.get("p")).status.conditions or ())
