"""HTTP around reviews: in a row, in parts, in old versions, and with clients that take no answers."""

import asyncio
import json

import pytest

from tests.admission.builders import make_pod, make_review
from tests.bench.mutated import send_all
from tests.policy.builders import table
from tests.serving.conftest import trusting
from tests.serving.test_hostile import answer, ended, metric
from webhook.clusters.demo.recorded_reviews import POLICIES, recorded_objects

pytestmark = pytest.mark.slow


def request(name: str = "web", *fields: str, version: str = "1.1") -> bytes:
    """A review of a pod of that name, as it goes over the wire."""
    body = json.dumps(make_review(make_pod(name, priorityClassName="high"))).encode()
    fields = ("Host: a", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields)
    return "\r\n".join([f"POST /mutate HTTP/{version}", *fields, "", ""]).encode() + body


@table(
    "sent, stays",
    {
        "HTTP/1.1": (request(), True),
        "HTTP/1.1, the client closes": (request("web", "Connection: close"), False),
        "HTTP/1.0": (request(version="1.0"), False),
        "HTTP/1.0, the client stays": (request("web", "Connection: keep-alive", version="1.0"), True),
    },
)
async def test_the_same_whether_it_comes_whole_or_in_parts(running, connect, sent, stays):
    """The body, what is kept of the connection, and what is logged."""
    answers = []
    for pieces in ([sent], [sent[:-1], sent[-1:]], [sent[:20], sent[20:200], sent[200:]]):
        reader, writer = await connect(running)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.05)
        head, body = await answer(reader)
        await asyncio.sleep(0.02)
        answers.append((head[0].split()[1:], body, reader.at_eof()))
    lines = [{**line, "time": "", "ms": 0} for line in running.lines() if line["message"] == "review"]
    assert answers == [([b"200", b"OK"], answers[0][1], not stays)] * 3
    assert lines == [lines[0]] * 3


async def test_requests_that_come_in_one_go_are_answered_in_their_order(running, connect):
    """Those that follow wait for the one before them, and one that comes meanwhile for all of them."""
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


async def test_a_client_that_takes_no_answers_is_ended(running, connect):
    """What it is sent does not pile up, neither as answers nor in TLS itself."""
    reader, writer = await connect(running)
    writer.write(request("first"))
    await answer(reader)
    [served] = running.server._connections.connections
    writer.transport.pause_reading()
    for _ in range(3):
        served.transport.write(b" " * 10_000_000)
    writer.transport.resume_reading()
    await ended(reader)
    assert await metric(running, "giveway_connections_closed_total", reason="unread") == 1


async def test_a_server_that_stops_closes_the_connection_with_the_answer(running, connect):
    """So that the API server opens the next one elsewhere."""
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
    assert not running.server._connections.connections


async def test_what_fails_beside_the_review_is_a_500_and_logged(running, connect, monkeypatch, caplog):
    """The connection ends."""
    reader, writer = await connect(running)
    monkeypatch.setattr(running.server.handler._metrics, "observe", None)
    writer.write(request())
    assert b" 500 " in await reader.readuntil(b"\r\n")
    assert b"Internal Server Error" in await reader.read()
    assert "TypeError" in caplog.text


async def test_mutated_reviews_get_well_formed_answers(start, authority, caplog):
    """Whatever a review holds and however it is sent, the answer is well formed and no exception is logged."""
    async with start(policies=POLICIES, objects=recorded_objects()) as running:
        found = await send_all(running.server.secure_port, trusting(authority), 1500, seed=7)
        assert found.total() == 1500
        assert {"patched", "allowed", "denied", "400", "415"} <= set(found)
        assert running.server.handler._bodies.bytes == 0
    assert not [record for record in caplog.records if record.exc_info]
