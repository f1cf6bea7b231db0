"""How many requests go out at a time, and what becomes of those that wait when the lease is lost."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import table
from tests.kube.server import Server
from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodSpec, PodStatus
from webhook.kube.pods import RESIZE_PENDING
from webhook.kube.resources import POD
from webhook.policy.model.values import PLAN
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.evictions.store import DeposedError
from webhook.reconciler.plans.actions import Effect
from webhook.reconciler.state.annotations import PlanRecord, encode

pytestmark = pytest.mark.skipped_waits

VICTIM = Pod(metadata=ObjectMeta(name="v", namespace="default", uid="u", resource_version="1"))


class FakeServer:
    """An API server that answers evictions with these errors first, or not until it is let."""

    def __init__(self, *errors: ApiError, hangs: bool = False) -> None:
        self.errors, self.asked, self.patched, self.answer = list(errors), 0, list[dict](), asyncio.Event()
        if not hangs:
            self.answer.set()

    async def create(self, path: str, body: dict, **query: str) -> dict:
        self.asked += 1
        await self.answer.wait()
        if self.errors:
            raise self.errors.pop(0)
        return {}

    async def patch(self, path: str, body: dict, **_: Any) -> Pod:
        self.patched.append(body)
        return VICTIM


def leading(server: Any, fence: Callable[[], float] = lambda: math.inf) -> Writer:
    """The writer of a leader whose lease lasts as long as the fence says."""
    return Writer(server, fence, lambda *_: None)


@pytest.mark.parametrize("lost", [False, True], ids=["it leads", "the lease is lost meanwhile"])
async def test_many_writes_take_turns(lost: bool):
    """Of 300 evictions a bounded number is under way, and the others follow, unless the lease is lost until then.

    A nomination is not behind them: it has a gate of its own. Only answers are timed.
    """
    server, times, leads = FakeServer(hangs=True), [], [math.inf]
    writer = Writer(server, lambda: leads[0], lambda kind, seconds: times.append((kind, seconds)))
    victims = [Pod(metadata=ObjectMeta(name=f"v-{number}", namespace="default")) for number in range(300)]
    tasks = [asyncio.create_task(writer.evict(victim, None, "")) for victim in victims]
    await asyncio.sleep(0.5)
    await asyncio.wait_for(writer.patch_status("nominate", VICTIM, {}, "1"), 0.1)
    assert (server.asked, len(server.patched)) == (256, 1)
    leads[0] = 0.0 if lost else math.inf
    server.answer.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Effect] * 256 + [DeposedError if lost else Effect] * 44
    assert server.asked == (256 if lost else 300)
    assert sum(seconds > 0.1 for _, seconds in times) == 256, "waiting for a turn is not waiting for the server"


@pytest.mark.parametrize(("fence", "patience"), [(math.inf, 12.0), (13.0, 12.0), (7.0, 7.0), (0.1, 0.1)])
async def test_writes_have_more_time_than_webhooks(fence: float, patience: float):
    """They are given more time than admission webhooks have (10 s by default), but no more than the lease has."""
    now, server = asyncio.get_running_loop().time, FakeServer(hangs=True)
    server.patch = server.create
    writer = leading(server, lambda: fence)
    for write in (writer.evict(VICTIM, None, ""), writer.mark(VICTIM, 0.0, "")):
        began = now()
        with pytest.raises(ApiError, match="no answer within"):
            await write
        assert now() - began == pytest.approx(patience, abs=0.05)


@table(
    "resize, deferred, version",
    ("it wants to grow and was given up", True, True, "1"),
    ("it has grown, and may want more", True, False, "1"),
    ("it was bound by the plan, and wants to grow", False, True, "1"),
    ("it was bound by the plan, and gets none any more", False, False, None),
)
async def test_only_the_own_plan_is_taken_off(resize: bool, deferred: bool, version: str | None):
    """What may be written for the next plan meanwhile stays."""
    text = encode(PlanRecord(id="a" * 16, node="n1", resize=resize))
    meta = ObjectMeta(name="p", namespace="default", uid="u", resource_version="1", annotations={PLAN: text})
    conditions = [Condition(type=RESIZE_PENDING, reason="Deferred")] if deferred else []
    server = FakeServer()
    await leading(server).clear(Pod(meta, PodSpec(node_name="n1"), PodStatus(conditions=conditions)), "n1")
    assert [body["metadata"].get("resourceVersion") for body in server.patched] == [version]


@pytest.mark.parametrize("lost", [True, False])
async def test_a_write_waits_while_the_lease_is_in_doubt(lost: bool):
    """It is sent once the lease is held again, and never if it is lost."""
    server, now = FakeServer(), asyncio.get_running_loop().time
    until = now() + 5.0
    fence = lambda: 0.0 if now() < until or lost else 10.0  # noqa: E731
    writer = Writer(server, fence, lambda *_: None, lambda: now() < until)
    evicting = asyncio.create_task(writer.evict(VICTIM, None, ""))
    await asyncio.sleep(4.0)
    assert (evicting.done(), server.asked) == (False, 0)
    await asyncio.wait({evicting})
    assert isinstance(evicting.exception(), DeposedError) if lost else evicting.result() is Effect.DONE


@table(
    "fences, requests",
    ("it leads", [10.0, 10.0, 10.0], 1),
    ("it stood still until there was a connection", [10.0, 10.0, 0.0], 0),
)
async def test_the_fence_is_asked_again_when_the_request_is_sent(fences: list[float], requests: int):
    """The server gets no request from a process that lost its lease while it opened the connection."""
    asked = iter(fences)
    async with Server() as server, Client.for_server(server.url, timeout=2) as client:
        writer = leading(client, lambda: next(asked, 0.0))
        with pytest.raises((ApiError, DeposedError)) as caught:
            await writer.timely(
                "evict", lambda: client.create(f"{POD.path('default')}/v/eviction", {"kind": "Eviction"})
            )
        assert [path for method, path, *_ in server.requests if method == "POST"] == [
            "/api/v1/namespaces/default/pods/v/eviction"
        ] * requests
        assert requests or caught.value.status == NO_ANSWER


async def test_a_pod_that_is_on_its_way():
    """To a try that says nothing; after an eviction it is an error, so that the victim is asked again."""
    on_its_way = [ApiError(429, "TooManyRequests", "Evacuation in progress") for _ in range(2)]
    writer = leading(FakeServer(*on_its_way))
    assert await writer.evict(VICTIM, None, "", dry_run=True) is Effect.UNKNOWN
    with pytest.raises(ApiError, match="in progress"):
        await writer.evict(VICTIM, None, "")
