"""How many requests go out at a time, and what becomes of those that wait when the lease is lost."""

from __future__ import annotations

import asyncio
import math

import pytest

from webhook.kube.errors import ApiError
from webhook.kube.objects import ObjectMeta, Pod
from webhook.reconciler.record import PlanVictim
from webhook.reconciler.writing import DeposedError, Left, Writer


class Slow:
    """An API server that answers no eviction until it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def create(self, path: str, body: dict) -> dict:
        self.asked += 1
        await self.answer.wait()
        return {}


def evictions(writer: Writer, count: int) -> list[asyncio.Task]:
    victims = [PlanVictim("default", f"v-{number}", f"uid-{number}") for number in range(count)]
    return [asyncio.create_task(writer.evict(victim, None)) for victim in victims]


async def test_many_writes_take_turns():
    """Of a hundred evictions at once a bounded number is under way; the others follow, and only answers are timed."""
    server, times = Slow(), []
    tasks = evictions(Writer(server, lambda: math.inf, lambda kind, seconds: times.append((kind, seconds))), 100)
    await asyncio.sleep(0.2)
    assert server.asked == 32
    server.answer.set()
    assert await asyncio.gather(*tasks) == [Left.ASKED] * 100
    assert server.asked == 100
    assert sum(seconds > 0.1 for _, seconds in times) == 32, "waiting for a turn is not waiting for the server"


async def test_lease_lost_while_waiting_for_a_turn():
    """A write that comes to its turn after the lease was lost is not sent."""
    server, leads = Slow(), [10.0]
    tasks = evictions(Writer(server, lambda: leads[0], lambda *_: None), 40)
    await asyncio.sleep(0.05)
    leads[0] = 0.0
    server.answer.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Left] * 32 + [DeposedError] * 8
    assert server.asked == 32


async def test_write_does_not_outlast_the_lease():
    """A write that hangs is given up before anybody else may lead, however short the lease is."""
    writer = Writer(Slow(), lambda: 0.1, lambda *_: None)
    with pytest.raises(ApiError, match=r"no answer within 0\.1 s"):
        await asyncio.wait_for(writer.evict(PlanVictim("default", "v", "u"), None), 3.0)


async def test_no_write_without_the_lease():
    """Without the lease nothing is sent at all."""
    server = Slow()
    with pytest.raises(DeposedError):
        await Writer(server, lambda: 0.0, lambda *_: None).evict(PlanVictim("default", "v", "u"), None)
    assert not server.asked


class Refusing:
    """An API server that answers every eviction with the same error and has one pod, or none, of the victim's name."""

    def __init__(self, error: ApiError, uid: str | None) -> None:
        self.error, self.uid = error, uid

    async def create(self, path: str, body: dict) -> dict:
        raise self.error

    async def get(self, path: str, as_: type[Pod]) -> Pod:
        if self.uid is None:
            raise ApiError(404, "NotFound", 'pods "v" not found')
        return Pod(metadata=ObjectMeta(name="v", namespace="default", uid=self.uid))


OTHER_UID = (
    'Operation cannot be fulfilled on Pod "v": the UID in the precondition (u) does not match the UID in record (w).'
    " The object might have been deleted and then recreated"
)


@pytest.mark.parametrize(
    ("uid", "left"),
    [
        pytest.param("w", Left.GONE, id="another pod has the name"),
        pytest.param(None, Left.GONE, id="gone by now"),
        pytest.param("u", None, id="still there"),
    ],
)
async def test_conflict_says_nothing_by_itself(uid: str | None, left: Left | None):
    """After a 409 the server is asked what is there: a StatefulSet's new pod of the victim's name is not the victim."""
    writer = Writer(Refusing(ApiError(409, "Conflict", OTHER_UID), uid), lambda: math.inf, lambda *_: None)
    asking = writer.evict(PlanVictim("default", "v", "u"), None)
    if left is None:
        with pytest.raises(ApiError, match="UID in record"):
            await asking
    else:
        assert await asking is left
