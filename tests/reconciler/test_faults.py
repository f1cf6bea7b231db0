"""What servers, networks and clocks do: nothing is lost, nobody is evicted twice, no pod gets two plans."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.reconciler.acting import Wire, playing
from tests.workloads import eventually
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods

pytestmark = [pytest.mark.slow, pytest.mark.skipped_waits]

PREEMPTORS = 4


async def full_nodes(play, count: int = PREEMPTORS) -> None:
    """Nodes of 8 CPU, each with two pods of 3 CPU: one must go for a preemptor of 4."""
    for number in range(1, count + 1):
        await play.victim(f"a{number}", f"node-{number}", "3")
        await play.victim(f"b{number}", f"node-{number}", "3")


async def all_settled(play, count: int = PREEMPTORS) -> None:
    """All preemptors are bound, one victim each is gone, no plan is left."""
    await asyncio.gather(*(play.bound(f"p{number}", 40) for number in range(count)))
    await asyncio.gather(*(play.nominated(f"p{number}", "") for number in range(count)))
    here = await play.here()
    assert len([name for name in here if name[0] in "ab"]) == count


async def preemptors(play, count: int = PREEMPTORS) -> None:
    await asyncio.gather(*(play.preemptor(f"p{number}", "4") for number in range(count)))


async def test_a_server_that_is_started_again():
    """Watches that break amid plans lose nothing and repeat nothing; the caches hold what the server has."""
    async with playing(PREEMPTORS, termination_seconds=0.5) as play, play.reconciling() as service:
        await full_nodes(play)
        await preemptors(play)
        for _ in range(5):
            await play.cluster.restart()
            await asyncio.sleep(0.15)
        await all_settled(play)

        async def equal() -> bool:
            pods, _ = await play.client.list("/api/v1/pods", Pod)
            kept = map(SharedPods(), pods)
            return {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in kept} == dict(
                service.state.pods.items()
            )

        await eventually(equal, 10)
        assert len(service.state.pending) == 0


async def test_two_reconcilers_and_a_stalling_server():
    """Two fight for the lease while the server stalls for the one that leads: never two plans for one pod.

    What the stalled leader had sent arrives when the other one leads already.
    """
    async with playing(PREEMPTORS) as play, AsyncExitStack() as stack:
        wires = [Wire(), Wire()]
        for wire in wires:
            await wire.begin(play.cluster)
            stack.push_async_callback(wire.end)
        services = [await stack.enter_async_context(play.reconciling(through=wire)) for wire in wires]
        leading = lambda: [place for place, one in enumerate(services) if one.time_to_write() > 0]  # noqa: E731
        await full_nodes(play)
        leaders = []
        for number in range(PREEMPTORS):
            [leader] = await eventually(leading)
            leaders.append(leader)
            await play.preemptor(f"p{number}", "4")
            await asyncio.sleep(0.03 * number)
            wires[leader].hold()
            for _ in range(25):
                await asyncio.sleep(0.1)
                assert len(leading()) < 2, "never two leaders at once"
            wires[leader].release()
        await all_settled(play)
        assert set(leaders) == {0, 1}, "the lease did change hands"
        bound = [line for line in play.lines("plan ended") if line["ending"] == "bound"]
        assert len({line["preemptor"] for line in bound}) == len(bound)
