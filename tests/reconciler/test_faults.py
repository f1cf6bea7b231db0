"""What servers, networks and clocks do: nothing is lost, nobody is evicted twice, no pod gets two plans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.reconciler.acting import playing
from tests.workloads import eventually
from webhook.kube.client import Client
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods

pytestmark = [pytest.mark.slow, pytest.mark.skipped_waits]

NUMBERS = range(1, 5)


async def full_nodes(play) -> None:
    """Nodes of 8 CPU, each with two pods of 3 CPU: one must go for a preemptor of 4."""
    for number in NUMBERS:
        await play.victim(f"a{number}", f"node-{number}", "3")
        await play.victim(f"b{number}", f"node-{number}", "3")


async def all_settled(play) -> None:
    """All preemptors are bound, one victim each is gone, no plan is left."""
    await asyncio.gather(*(play.bound(f"p{number}", 40) for number in NUMBERS))
    await asyncio.gather(*(play.nominated(f"p{number}", "") for number in NUMBERS))
    assert len([name for name in await play.here() if name[0] in "ab"]) == len(NUMBERS)


async def test_a_server_that_is_started_again():
    """Watches that break amid plans lose nothing and repeat nothing; the caches hold what the server has."""
    async with playing(len(NUMBERS), termination_seconds=0.5) as play, play.reconciling() as service:
        await full_nodes(play)
        await asyncio.gather(*(play.preemptor(f"p{number}", "4") for number in NUMBERS))
        for _ in range(5):
            await play.cluster.restart()
            await asyncio.sleep(0.15)
        await all_settled(play)

        async def equal() -> bool:
            pods, _ = await play.client.list("/api/v1/pods", Pod)
            kept = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in map(SharedPods(), pods)}
            return kept == dict(service.state.pods.items())

        await eventually(equal, 10)
        assert len(service.state.pending) == 0


@asynccontextmanager
async def wire(cluster, is_open: asyncio.Event) -> AsyncIterator[Client]:
    """A client over a connection that can be held: what is on its way then arrives when it `is_open` again."""
    tasks = set()

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await is_open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", int(cluster.url.rpartition(":")[2]))
        tasks.update({asyncio.create_task(carry(reader, back)), asyncio.create_task(carry(there, writer))})

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield Client.for_server(f"https://127.0.0.1:{port}", token=cluster.token, ca_file=str(cluster.ca))
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_reconcilers_and_a_stalling_server():
    """Two fight for the lease while the server stalls for the one that leads: never two plans for one pod.

    What the stalled leader had sent arrives when the other one leads already.
    """
    opened = [asyncio.Event(), asyncio.Event()]
    for event in opened:
        event.set()
    async with (
        playing(len(NUMBERS)) as play,
        wire(play.cluster, opened[0]) as one,
        wire(play.cluster, opened[1]) as another,
        play.reconciling(client=one) as first,
        play.reconciling(client=another) as second,
    ):
        leading = lambda: [place for place, each in enumerate((first, second)) if each.time_to_write() > 0]  # noqa: E731
        await full_nodes(play)
        leaders = []
        for number in NUMBERS:
            [leader] = await eventually(leading)
            leaders.append(leader)
            await play.preemptor(f"p{number}", "4")
            await asyncio.sleep(0.03 * number)
            opened[leader].clear()
            for _ in range(25):
                await asyncio.sleep(0.1)
                assert len(leading()) < 2, "never two leaders at once"
            opened[leader].set()
        await all_settled(play)
        assert set(leaders) == {0, 1}, "the lease did change hands"
        bound = [line for line in play.lines("plan ended") if line["ending"] == "bound"]
        assert len({line["preemptor"] for line in bound}) == len(bound)
