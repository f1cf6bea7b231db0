"""A request that comes whole is answered in the turn in which it was read, as it is answered in any other way."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.admission.builders import make_class, make_pod, make_review
from tests.policy.builders import namespace
from webhook.admission.context import Objects, Overlay
from webhook.serving import review_handler
from webhook.serving.cluster_objects import GivenObjects
from webhook.serving.http_connection import HttpConnection

pytestmark = pytest.mark.slow

HIGH = make_class("high", 100)
OBJECTS = Objects([HIGH], [namespace("team-a")])


DEEP = '{"a":' * 1500 + "0" + "}" * 1500


def request(
    name: str = "web",
    *fields: str,
    class_name: str = "high",
    version: str = "1.1",
    path: str = "/mutate",
    extra: str = "0",
) -> bytes:
    """A review of a pod of that name, as it goes over the wire; `extra` is JSON in its spec."""
    pod = make_pod(name, priorityClassName=class_name, extra="EXTRA")
    body = json.dumps(make_review(pod)).replace('"EXTRA"', extra).encode()
    fields = ("Host: a", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields)
    return "\r\n".join([f"POST {path} HTTP/{version}", *fields, "", ""]).encode() + body


async def answer(reader) -> tuple[list[bytes], bytes]:
    """The lines of the next response's head, apart from its date, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
    return [line for line in head.split(b"\r\n") if not line.startswith(b"Date")], body


@pytest.fixture
def handled(monkeypatch):
    """The requests that went through aiohttp's task."""
    requests = []
    handle = HttpConnection._handle_request

    def noting(self, request, *arguments):
        requests.append(request.raw_path)
        return handle(self, request, *arguments)

    monkeypatch.setattr(HttpConnection, "_handle_request", noting)
    return requests


@pytest.fixture
def reviews(monkeypatch):
    """How many reviews have been carried out."""
    calls = []
    review = review_handler.review

    def noting(*arguments):
        calls.append(arguments)
        return review(*arguments)

    monkeypatch.setattr(review_handler, "review", noting)
    return calls


CASES = {
    "HTTP/1.1": request(),
    "HTTP/1.1, the client closes": request("web", "Connection: close"),
    "HTTP/1.0": request(version="1.0"),
    "HTTP/1.0, the client stays": request("web", "Connection: keep-alive", version="1.0"),
    "a refusal": request(extra=DEEP),
    "no review": b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "no body": b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("sent", CASES.values(), ids=CASES)
async def test_the_same_whether_it_comes_whole_or_in_two_parts(start, connect, handled, sent):
    """Head, body, what is kept of the connection, and what is logged."""
    answers = []
    has_body = not sent.endswith(b"\r\n\r\n")
    async with start(objects=OBJECTS) as running:
        for pieces in ([sent], [sent[:-1], sent[-1:]]):
            reader, writer = await connect(running)
            writer.write(request("first"))
            await answer(reader)
            handled.clear()
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.05)
            answers.append([await answer(reader), len(reader._buffer), reader.at_eof()])
            assert len(handled) == (has_body and len(pieces) > 1)
    assert answers[0] == answers[1]
    _, whole, _, apart = ({**line, "time": "", "ms": 0} for line in running.lines() if line["message"] == "review")
    assert whole == apart


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(request(path="/other"), b"404", id="another path"),
        pytest.param(request().replace(b"POST", b"PUT ", 1), b"405", id="another method"),
        pytest.param(request().replace(b"application/json", b"text/plain", 1), b"415", id="another type"),
        pytest.param(request().replace(b"application/json", b"application/json; a=b", 1), b"200", id="parameters"),
        pytest.param(b"GARBAGE\r\n\r\n", b"400", id="garbage"),
    ],
)
async def test_what_is_unusual_is_left_to_aiohttp(start, connect, handled, sent, status):
    """It is answered as well."""
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        writer.write(request("first"))
        await answer(reader)
        handled.clear()
        writer.write(sent)
        head, _ = await answer(reader)
        assert head[0].split()[1] == status
        assert len(handled) == 1


async def test_requests_that_come_in_one_go_are_answered_in_their_order(start, connect):
    """Those that follow wait for the one before them, and one that comes meanwhile for all of them."""
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        writer.write(request("a") + request("b") + request("c")[:300])
        await asyncio.sleep(0.05)
        writer.write(request("c")[300:] + request("d"))
        for _ in range(4):
            head, _ = await answer(reader)
            assert head[0].split()[1] == b"200"
        writer.write(request("e"))
        await answer(reader)
        await running.logged(object="team-a/e")
        assert [line["object"][-1] for line in running.lines() if line["message"] == "review"] == [*"abcde"]


async def test_nothing_is_parsed_after_a_body_that_was_not_held_back(start, connect, monkeypatch):
    """As aiohttp does it after each body; what was held back of a large one still comes."""
    parsed = []
    receive = HttpConnection.data_received

    def noting(self, data):
        parsed.append(len(data))
        return receive(self, data)

    monkeypatch.setattr(HttpConnection, "data_received", noting)
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        for name in ("first", "second"):
            writer.write(request(name))
            await answer(reader)
        assert parsed == [len(request("first")), len(request("second"))]
        large = json.dumps("n" * 200_000)
        writer.write(request("large", extra=large) + request("next"))
        for _ in range(2):
            head, _ = await answer(reader)
            assert head[0].split()[1] == b"200"


async def test_what_was_found_before_a_look_up_is_not_found_again(start, connect, reviews, handled):
    """A review whose class is not known is carried out once before it is looked up, and once after."""

    class Asked(GivenObjects):
        async def ask(self, unsure, flow):
            return Overlay(self.lookup, {name: None for _, name in unsure}, {}, {})

    async with start(source=Asked(OBJECTS)) as running:
        reader, writer = await connect(running)
        writer.write(request("first"))
        await answer(reader)
        reviews.clear()
        handled.clear()
        writer.write(request(class_name="ghost", path="/validate"))
        head, _ = await answer(reader)
        assert head[0].split()[1] == b"200"
        assert (len(reviews), len(handled)) == (2, 1)


async def test_an_idle_connection_keeps_its_place(start, connect):
    """It need not be looked for among the others, and whoever came first still comes first."""
    async with start(objects=OBJECTS) as running:
        pairs = [await connect(running) for _ in range(3)]
        for reader, writer in pairs:
            writer.write(request())
            await answer(reader)
        idle = running.server._connections._idle
        before = idle.all()
        reader, writer = pairs[0]
        writer.write(request("again"))
        await answer(reader)
        assert idle.all() == before
        assert len(before) == 3


async def test_a_client_that_takes_no_answers_gets_no_more(start, connect):
    """Of a client that leaves its answers unread one more request is carried out, and no further one."""
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        writer.write(request("first"))
        await answer(reader)
        [served] = running.server._listener._server.connections
        served.pause_writing()
        for name in ("second", "third", "fourth"):
            writer.write(request(name))
            await asyncio.sleep(0.05)
        await answer(reader)
        assert not reader._buffer
        served.resume_writing()
        await answer(reader)
        await answer(reader)


async def test_a_server_that_stops_closes_the_connection_with_the_answer(start, connect):
    """So that the API server opens the next one elsewhere."""
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        writer.write(request("first"))
        await answer(reader)
        running.server.handler.draining = True
        writer.write(request("last"))
        head, _ = await answer(reader)
        assert b"Connection: close" in head
        assert await reader.read() == b""
        writer.close()
        await asyncio.sleep(0.05)
        assert not running.server._listener._server.connections
        assert not [task for task in asyncio.all_tasks() if "RequestHandler.start" in repr(task)]


async def test_what_fails_beside_the_review_is_a_500_and_logged(start, connect, monkeypatch, caplog):
    """As it is where aiohttp's task answers; the connection ends, and its task, too."""
    async with start(objects=OBJECTS) as running:
        reader, writer = await connect(running)
        writer.write(request("first"))
        await answer(reader)
        monkeypatch.setattr(running.server.handler._metrics, "observe", None)
        writer.write(request("second"))
        assert b" 500 " in await reader.readuntil(b"\r\n")
        assert b"Internal Server Error" in await reader.read()
        assert "TypeError" in caplog.text
