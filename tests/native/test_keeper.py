"""Applied policies follow the classes and the time; what is in force is not the keeper's to say."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.policy.builders import engine, rules
from webhook.kube.client import Client
from webhook.native import policy_keeper
from webhook.native.compiler import compile_policies
from webhook.native.objects import Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.model.values import CAN_BE_PREEMPTED

SETTINGS = Settings(namespace="giveway-system", reconciler="system:serviceaccount:a:b", kept=True)
SHIELD = f"{{name: shield, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}]}}}}"
SPEC = rules(
    f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}",
    SHIELD,
    exceptions="[{match: {namespaces: [a]}, rules: [shield], reason: r, owner: o, until: 2026-11-30}]",
)
POLICIES = engine(SPEC).policies
END = 1_796_083_200.0
GROUP = "/apis/admissionregistration.k8s.io/v1"


class Api:
    """Admission policies and PriorityClasses behind a real socket; `classes` is a queue of what the watch tells."""

    def __init__(self, objects) -> None:
        plural = {
            "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
            "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
        }
        self.stored = {
            f"{GROUP}/{plural[one['kind']]}/{one['metadata']['name']}": copy.deepcopy(one)
            for one in objects
            if one["kind"] in plural
        }
        self.writes: list[str] = []
        self.status = 200
        self.classes: asyncio.Queue[dict | None] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/priorityclasses"):
            return await self._classes(request)
        if self.status != 200:
            return web.json_response({"kind": "Status", "code": self.status, "message": "no"}, status=self.status)
        if request.path not in self.stored:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        assert request.method in ("GET", "PUT")
        if request.method == "PUT":
            self.stored[request.path] = await request.json()
            self.writes.append(request.path.rpartition("/")[2])
        return web.json_response(self.stored[request.path])

    async def _classes(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        stream = web.StreamResponse()
        await stream.prepare(request)
        while (found := await self.classes.get()) is not None:
            await stream.write(json.dumps({"type": "ADDED", "object": found}).encode() + b"\n")
        return stream


@asynccontextmanager
async def keeping(api: Api, now: list[float], **settings) -> AsyncIterator[PolicyKeeper]:
    """A keeper at work."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with Client.for_server(url) as client:
            keeper = PolicyKeeper(client, POLICIES, SETTINGS, clock=lambda: now[0], **settings)
            task = asyncio.create_task(keeper.run())
            try:
                yield keeper
            finally:
                api.classes.put_nowait(None)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    finally:
        await runner.cleanup()


async def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)


def applied(now: float):
    return compile_policies(POLICIES, [], SETTINGS, now).objects


async def test_a_new_class_gets_into_the_table_at_once():
    """What is in step is not written; the watch tells of the class, and only the object with the table is written."""
    api = Api(applied(END - 60))
    async with keeping(api, [END - 60]) as keeper:
        await until(lambda: keeper.note == "in step", 5, "the first look")
        assert api.writes == []
        meta = {"name": "offline", "resourceVersion": "2", "annotations": {CAN_BE_PREEMPTED: "true"}}
        api.classes.put_nowait({"kind": "PriorityClass", "metadata": meta, "value": 1})
        await until(lambda: bool(api.writes), 5, "the class is in the table")
    assert api.writes == ["giveway-builtin-pods-mutate"]
    assert "{'offline/1': 'true'}" in json.dumps(api.stored)


async def test_an_exception_ends_on_time():
    """At its end the policies are compiled again, without waiting for the next round."""
    now = [END - 0.3]
    api = Api(applied(now[0]))
    async with keeping(api, now, period=600.0) as keeper:
        await until(lambda: keeper.note == "in step" or "applied" in keeper.note, 5, "the first look")
        now[0] = END + 1
        await until(lambda: "giveway-builtin-annotations-enforce" in api.writes, 5, "the exception has ended")


async def test_what_somebody_changed_is_put_back_and_what_is_not_giveways_is_left_alone():
    """A policy of the same name that somebody else made is not written."""
    objects = applied(END + 1)
    objects[0]["metadata"]["labels"] = {}
    objects[0]["spec"] = {}
    objects[4]["spec"]["failurePolicy"] = "Ignore"
    api = Api(objects)
    async with keeping(api, [END + 1]):
        await until(lambda: bool(api.writes), 5, "it is put back")
    assert api.writes == [objects[4]["metadata"]["name"]]


async def test_nothing_is_made_or_bound():
    """What is not applied stays so, and the keeper says which."""
    api = Api([])
    async with keeping(api, [END + 1]) as keeper:
        await until(lambda: "are not applied: giveway-builtin-pods-mutate" in keeper.note, 5, "a look")
    assert api.writes == []


@pytest.mark.parametrize("status", [403, 500])
async def test_an_api_server_that_refuses_is_asked_again(status):
    """The keeper says why, and goes on."""
    api = Api(applied(END + 1))
    api.status = status
    async with keeping(api, [END + 1], period=0.05) as keeper:
        await until(lambda: keeper.note not in ("not looked at yet", "in step"), 10, "a failed look")
        api.status = 200
        await until(lambda: keeper.note == "in step", 10, "a good look")


async def test_classes_that_cannot_be_compiled_leave_the_policies_as_they_are(monkeypatch):
    """The keeper says what raised, and goes on when it can."""
    api = Api(applied(END + 1))
    compiled = policy_keeper.compile_policies
    monkeypatch.setattr(policy_keeper, "compile_policies", lambda *_: 1 / 0)
    async with keeping(api, [END + 1], period=0.05) as keeper:
        await until(lambda: "cannot be kept: ZeroDivisionError" in keeper.note, 10, "a failed look")
        monkeypatch.setattr(policy_keeper, "compile_policies", compiled)
        await until(lambda: keeper.note == "in step", 10, "a good look")
    assert api.writes == []
