"""How many requests go out at a time, and what becomes of those that wait when the lease is lost."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import table
from tests.kube.server import Server
from tests.workloads import eventually
from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodSpec, PodStatus
from webhook.kube.pods import RESIZE_PENDING
from webhook.kube.resources import POD
from webhook.policy.model.values import PLAN
from webhook.reconciler.evict.writer import DeposedError, Writer
from webhook.reconciler.plans.actions import Effect
from webhook.reconciler.state.annotations import DecisionRecord, PlanRecord, encode

VICTIM = Pod(metadata=ObjectMeta(name="v", namespace="default", uid="u", resource_version="1"))


class FakeServer:
    """An API server that answers evictions with these errors first, or not at all; it has a pod, or none."""

    def __init__(self, *errors: ApiError, there: Pod | None = None, hangs: bool = False) -> None:
        self.errors, self.there = list(errors), there
        self.asked = self.patched = self.reads = 0
        self.answer = asyncio.Event()
        if not hangs:
            self.answer.set()

    async def create(self, path: str, body: dict, **query: str) -> dict:
        self.asked += 1
        await self.answer.wait()
        if self.errors:
            raise self.errors.pop(0)
        return {}

    async def patch(self, path: str, body: dict, as_: type[Pod]) -> Pod:
        self.patched += 1
        return Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", resource_version="2"))

    async def get(self, path: str, as_: type[Pod]) -> Pod:
        self.reads += 1
        if self.there is None:
            raise ApiError(404, "NotFound", 'pods "v" not found')
        return self.there


def hung() -> FakeServer:
    """One that answers no eviction at all; the victim is there."""
    return FakeServer(there=VICTIM, hangs=True)


def leading(server: Any, fence: Callable[[], float] = lambda: math.inf) -> Writer:
    """The writer of a leader whose lease lasts as long as the fence says."""
    return Writer(server, fence, lambda *_: None)


def evictions(writer: Writer, count: int) -> list[asyncio.Task]:
    victims = [Pod(metadata=ObjectMeta(name=f"v-{number}", namespace="default")) for number in range(count)]
    return [asyncio.create_task(writer.evict(victim, None, "")) for victim in victims]


async def test_many_writes_take_turns():
    """Of a hundred evictions at once a bounded number is under way; the others follow, and only answers are timed."""
    server, times = FakeServer(hangs=True), []
    tasks = evictions(Writer(server, lambda: math.inf, lambda kind, seconds: times.append((kind, seconds))), 300)
    await eventually(lambda: server.asked >= 256)
    await asyncio.sleep(0.2)
    assert server.asked == 256
    server.answer.set()
    assert await asyncio.gather(*tasks) == [Effect.DONE] * 300
    assert server.asked == 300
    assert sum(seconds > 0.1 for _, seconds in times) == 256, "waiting for a turn is not waiting for the server"


async def test_nomination_is_not_behind_evictions():
    """However many evictions hang, a nomination is sent at once: it has a gate of its own."""
    server = FakeServer(hangs=True)
    writer = leading(server)
    tasks = evictions(writer, 300)
    await asyncio.sleep(0.05)
    pod = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u", resource_version="1"))
    record = PlanRecord(id="x", node="n1")
    decision = DecisionRecord(plan="x", at=rfc3339(0), node="n1", policy="test", attempt=1)
    await asyncio.wait_for(writer.nominate(pod, record, decision, lambda _: None), 1.0)
    assert (server.asked, server.patched) == (256, 1)
    server.answer.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(("fence", "patience"), [(math.inf, 12.0), (13.0, 12.0), (7.0, 7.0)])
async def test_eviction_has_more_time_than_webhooks(monkeypatch, fence: float, patience: float):
    """An eviction is given more time than admission webhooks have (10 s by default), if the lease lasts that long."""
    given, timeout = [], asyncio.timeout

    def recording(seconds: float) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(0.01)

    monkeypatch.setattr(asyncio, "timeout", recording)
    writer = leading(hung(), lambda: fence)
    with pytest.raises(ApiError, match="no answer within"):
        await writer.evict(VICTIM, None, "")
    assert given[0] == patience


async def test_lease_lost_while_waiting_for_a_turn():
    """A write that comes to its turn after the lease was lost is not sent."""
    server, leads = FakeServer(hangs=True), [10.0]
    tasks = evictions(leading(server, lambda: leads[0]), 264)
    await asyncio.sleep(0.05)
    leads[0] = 0.0
    server.answer.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Effect] * 256 + [DeposedError] * 8
    assert server.asked == 256


async def test_no_write_outlasts_the_lease():
    """A write that hangs is given up before anybody else may lead, and without the lease nothing is sent at all."""
    with pytest.raises(ApiError, match=r"no answer within 0\.1 s"):
        await asyncio.wait_for(leading(hung(), lambda: 0.1).evict(VICTIM, None, ""), 3.0)
    server = FakeServer()
    with pytest.raises(DeposedError):
        await leading(server, lambda: 0.0).evict(VICTIM, None, "")
    assert not server.asked


class Changed:
    """An API server on which the lower pod has changed since it was seen: the first patch is a conflict."""

    def __init__(self, fresh: Pod | None) -> None:
        self.fresh, self.patched = fresh, []

    async def patch(self, path: str, body: dict, as_: type[Pod]) -> Pod:
        self.patched.append(body["metadata"].get("resourceVersion"))
        if self.fresh is not None and self.patched[-1] == self.fresh.metadata.resource_version:
            return self.fresh
        raise ApiError(409, "Conflict", "the object has been modified")

    async def get(self, path: str, as_: type[Pod]) -> Pod:
        if self.fresh is None:
            raise ApiError(404, "NotFound", "gone")
        return self.fresh


def lower(version: str, *, nominated: str = "", on: str = "", uid: str = "u") -> Pod:
    meta = ObjectMeta(name="low", namespace="default", uid=uid, resource_version=version)
    return Pod(metadata=meta, spec=PodSpec(node_name=on), status=PodStatus(nominated_node_name=nominated))


@table(
    "fresh, said, writes",
    ("only changed otherwise: written again", lower("2", nominated="n1"), Effect.DONE, ["1", "2"]),
    ("nominated elsewhere by now", lower("2", nominated="n2"), Effect.GONE, ["1"]),
    ("bound elsewhere by now", lower("2", on="n2"), Effect.GONE, ["1"]),
    ("another pod of the name", lower("2", nominated="n1", uid="w"), Effect.GONE, ["1"]),
    ("gone", None, Effect.GONE, ["1"]),
    ("bound to the node: the room is taken", lower("2", on="n1"), Effect.UNKNOWN, ["1"]),
)
async def test_a_conflict_on_displacing_is_looked_into(fresh: Pod | None, said: Effect, writes: list[str]):
    """After a 409 the pod is read again: what it has become says what there is to do."""
    server = Changed(fresh)
    assert await leading(server).displace(lower("1", nominated="n1")) is said
    assert server.patched == writes


def carrying(plan: str, version: str, *, resize: bool, deferred: bool) -> Pod:
    """A bound pod with that plan on it."""
    text = encode(PlanRecord(id=plan, node="n1", resize=resize))
    meta = ObjectMeta(name="p", namespace="default", uid="u", resource_version=version, annotations={PLAN: text})
    conditions = [Condition(type=RESIZE_PENDING, reason="Deferred")] if deferred else []
    return Pod(metadata=meta, spec=PodSpec(node_name="n1"), status=PodStatus(conditions=conditions))


@table(
    "resize, deferred, versions",
    ("it wants to grow and was given up", True, True, ["1"]),
    ("it has grown, and may want more", True, False, ["1"]),
    ("it was bound by the plan, and wants to grow", False, True, ["1"]),
    ("it was bound by the plan, and gets none any more", False, False, [None]),
)
async def test_only_the_own_plan_is_taken_off(resize: bool, deferred: bool, versions: list[str | None]):
    """What was written for the next plan meanwhile stays."""
    server = Changed(carrying("b" * 16, "2", resize=True, deferred=True))
    known = carrying("a" * 16, "1", resize=resize, deferred=deferred)
    await leading(server).clear(known, "a" * 16, "n1")
    assert server.patched == versions


@pytest.mark.skipped_waits
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
    "fences, requests", ("it leads", [10.0, 10.0], 1), ("it stood still until there was a connection", [10.0, 0.0], 0)
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
