"""Victims that are asked to leave and do not: passed over if they are kept, waited for if they are on their way."""

import asyncio
import math

import pytest

from tests.reconciler.acting import PODS, managing, playing
from tests.workloads import eventually, never
from webhook.clusters.embedded.apiserver.faults import FaultMatch

pytestmark = pytest.mark.skipped_waits

EVICTION = FaultMatch(resource="pods/eviction", name="kept")
MIGRATING = (
    'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
    'Evacuation in progress: Eviction triggered evacuation of VMI "default/vm"'
)


async def two_ways(play) -> None:
    """Node 1 with one victim, `kept`, which every decision prefers as the latest start; node 2 with two."""
    await play.victim("one", "node-2", "4")
    await play.victim("two", "node-2", "4")
    await play.victim("kept", "node-1", "6", terminationGracePeriodSeconds=1)


def endings(play) -> list[str]:
    return [line["ending"] for line in play.lines("plan ended")]


@pytest.mark.parametrize(
    "inject",
    [
        pytest.param(lambda faults: faults.delay(60.0, math.inf, EVICTION), id="no answer"),
        pytest.param(lambda faults: faults.fail(429, math.inf, EVICTION), id="429 of a webhook"),
        pytest.param(lambda faults: faults.fail(503, math.inf, EVICTION), id="503"),
        pytest.param(lambda faults: faults.fail(500, math.inf, EVICTION), id="500"),
    ],
)
async def test_victim_that_is_kept_is_passed_over(inject):
    """However the API server keeps a pod: after one plan the preemptor gets its room on the other node."""
    async with playing(2) as play, play.reconciling():
        await two_ways(play)
        inject(play.cluster.faults)
        await play.preemptor("p", "4")
        assert await play.bound("p", 12) == "node-2"
        await play.nominated("p", "")
        assert endings(play) == ["failed", "bound"]
        assert len(await play.here()) == 3, "one of node 2 is gone"


async def test_pod_that_is_on_its_way_out_is_waited_for():
    """A 429 that says that a migration is in progress is no refusal: the plan waits, and nobody else is asked."""
    async with playing(2) as play, play.reconciling():
        await two_ways(play)
        play.cluster.faults.fail(429, math.inf, EVICTION, retry_after=0, message=MIGRATING)
        await play.preemptor("p", "4")
        await play.nominated("p", "node-1")
        await never(lambda: play.lines("plan ended"), 3.0)
        await play.client.delete(f"{PODS}/kept")
        assert await play.bound("p") == "node-1"
        await eventually(lambda: endings(play) == ["bound"])
        assert await play.here() == {"one", "two", "p"}


async def test_last_victim_waits_for_one_that_is_on_its_way_out():
    """While a victim is only about to leave, the last one is not asked: the migration may fail yet."""
    async with playing(1) as play, play.reconciling():
        await play.victim("kept", "node-1", "4")
        await play.victim("last", "node-1", "4")
        play.cluster.faults.fail(429, math.inf, EVICTION, retry_after=0, message=MIGRATING)
        await play.preemptor("p", "8")
        await play.nominated("p", "node-1")

        async def asked() -> bool:
            return "last" not in await play.here()

        await never(asked, 1.5)
        await play.client.delete(f"{PODS}/kept")
        assert await play.bound("p") == "node-1"


async def test_pod_that_says_for_too_long_that_it_is_on_its_way():
    """A migration that takes longer than the plan has costs the plan, and the pod is passed over then."""
    async with playing(2) as play, play.reconciling(managing(plan_timeout=1.0)):
        await two_ways(play)
        play.cluster.faults.fail(429, math.inf, EVICTION, retry_after=0, message=MIGRATING)
        await play.preemptor("p", "4")
        assert await play.bound("p", 12) == "node-2"
        assert endings(play)[0] == "timed-out"


async def test_outage_is_nobodys_refusal():
    """While the API server is away the plan waits; once it is back the same plan goes on, and no pod is passed over."""
    async with playing(2) as play, play.reconciling(leader_elect=False) as service:
        await two_ways(play)
        play.cluster.faults.delay(60.0, 1, EVICTION)
        await play.preemptor("p", "4")
        await play.nominated("p", "node-1")
        await play.cluster._server.stop()
        await asyncio.sleep(2.5)
        await play.cluster._server.start()
        assert await play.bound("p", 20) == "node-1"
        await eventually(lambda: endings(play) == ["bound"])
        assert not len(service.reconciler.evaluator.eviction_backoff)


async def test_eviction_under_way_counts_when_its_plan_ends():
    """A plan that ends while a victim is being asked has not lost it: the next decision counts on its leaving."""
    async with playing(2) as play, play.reconciling():
        await two_ways(play)
        play.cluster.faults.delay(0.7, 1, EVICTION)
        await play.preemptor("p", "4")
        await play.nominated("p", "node-1")
        await play.client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "node-2"}})
        assert await play.bound("p") == "node-1"
        assert endings(play)[0] == "nomination-lost"
        assert len([line for line in play.lines("decision") if line.get("victims")]) == 1
        assert await play.here() == {"one", "two", "p"}


async def test_victim_that_hangs_holds_up_nobody_else():
    """With hung evictions of one preemptor under way, another one is nominated and bound at once."""
    async with playing(2) as play, play.reconciling(leader_elect=False):
        await two_ways(play)
        play.cluster.faults.delay(60.0, math.inf, EVICTION)
        await play.preemptor("p", "4")
        await play.nominated("p", "node-1")
        await play.preemptor("q", "4", "higher", nodeSelector={"kubernetes.io/hostname": "node-2"})
        assert await play.bound("q", 3.0) == "node-2"
