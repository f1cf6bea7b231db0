"""Clients that send slowly, nothing, garbage or in numbers do not keep honest reviews from their answer."""

import asyncio
import errno
import gc
import json
import re
import socket
import time

import pytest

from tests.admission.builders import make_class, make_pod, make_review
from tests.policy.builders import table
from tests.processor_time import slowness
from tests.workloads import eventually as until
from webhook.admission.context import Objects
from webhook.component_base import listener
from webhook.serving import bodies, connections
from webhook.serving.review_handler import _budget

pytestmark = pytest.mark.slow

HIGH = make_class("high", 100)
GOOD = json.dumps(make_review(make_pod(priorityClassName="high"))).encode()


def head(length: int, query: str = "timeout=30s") -> bytes:
    return (
        f"POST /mutate?{query} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def chunked(body: bytes, size: int) -> bytes:
    """A request whose body comes in chunks of so many bytes."""
    start, _, _ = head(0).partition(b"Content-Length")
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return start + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def ask(reader, writer) -> int:
    """Send a review as API servers do, the body after the head; the status of the answer."""
    writer.write(head(len(GOOD)))
    await asyncio.sleep(0.01)
    writer.write(GOOD)
    return await answered(reader)


async def answer(reader) -> tuple[list[bytes], bytes]:
    """The lines of the next response's head, and its body."""
    lines = await reader.readuntil(b"\r\n\r\n")
    return lines.split(b"\r\n"), await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", lines)[1]))


async def answered(reader) -> int:
    """The status of the next response, once all of it is there."""
    lines, _ = await answer(reader)
    return int(lines[0].split()[1])


async def ended(reader) -> bool:
    """Wait for the end of a connection, by a reset or in order; whether nothing came before it."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def metric(running, name: str, **labels: str) -> float:
    """The value of a metric."""
    wanted = name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
    _, text = await running.get("/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(wanted))


@table(
    "sent",
    {
        "chunks-of-one-byte": chunked(b" " * 30_000, 1),
        "requests-in-a-row": (head(2) + b"{}") * 300,
    },
)
async def test_what_is_dear_to_parse_ends_its_connection(running, connect, sent):
    """What has more lines than any request is not parsed, so others have their turn."""
    reader, writer = await connect(running)
    writer.write(head(len(GOOD)) + GOOD)
    assert await answered(reader) == 200
    writer.write(sent)
    longest = 0.0
    for _ in range(400):
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    assert longest < 0.015 * slowness()
    assert await ended(reader)
    assert await metric(running, "giveway_connections_closed_total", reason="lines") == 1


async def present(running, count: int) -> bool:
    """Whether the server has so many connections."""
    return len(running.server._connections) == count


async def test_requests_of_a_client_that_has_gone_are_not_answered(start, connect, caplog):
    """Of those that came in one piece few are still reviewed, and none leaves a line in the log of asyncio."""
    async with start(objects=Objects([HIGH])) as running:
        _, writer = await connect(running)
        writer.write((head(len(GOOD)) + GOOD) * 15)
        writer.transport._ssl_protocol._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await until(lambda: present(running, 0))
        await asyncio.sleep(0.1)
        assert len([line for line in running.lines() if line["message"] == "review"]) < 10
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_connection_that_ends_with_its_request_is_no_failure(start, connect, caplog):
    """Whenever it ends: before its request has been read, while it is answered, or after."""
    async with start(objects=Objects([HIGH])) as running:
        for pause in (0, 0, 0.001, 0.002, 0.003, 0.005, 0.01):
            _, writer = await connect(running)
            writer.write(head(len(GOOD)) + GOOD)
            await asyncio.sleep(pause)
            writer.transport.abort()
        await until(lambda: present(running, 0))
        gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_body_in_chunks_is_reviewed(running, connect):
    """A client that does not say the length of a body gets the same answer."""
    reader, writer = await connect(running)
    writer.write(chunked(GOOD, 100) * 2)
    assert [await answered(reader), await answered(reader)] == [200, 200]


async def test_bodies_that_do_not_come_hold_up_nobody(running, connect):
    """A review is answered at once beside forty clients without credentials that sent a byte and wait."""
    for _ in range(40):
        _, writer = await connect(running)
        writer.write(head(5000) + b"{")
    async with asyncio.timeout(1):
        assert await ask(*await connect(running)) == 200


async def test_a_body_must_come_at_a_minimum_rate(running, connect, monkeypatch):
    """A byte now and then is not enough: the request is ended long before its own deadline."""
    monkeypatch.setattr(bodies, "_PAUSE", 0.2)
    reader, writer = await connect(running)
    writer.write(head(5000))
    for _ in range(50):
        writer.write(b" ")
        await asyncio.sleep(0.02)
        if reader._buffer:
            break
    assert await answered(reader) == 504
    line = await running.logged(message="review", code=504)
    assert line["error"].startswith("the body came too slowly")
    assert await metric(running, "giveway_requests_ended_total", reason="slow") == 1


async def test_a_body_that_came_while_the_server_was_held_up_is_not_late(running, connect, monkeypatch):
    """What has arrived counts, also if this process had no time to look."""
    monkeypatch.setattr(bodies, "_PAUSE", 0.3)
    reader, writer = await connect(running)
    writer.write(head(len(GOOD)) + GOOD[:10])
    await until(lambda: unfinished(running, 1))
    writer.write(GOOD[10:])
    time.sleep(0.6)  # noqa: ASYNC251 - the server shares this loop: nobody gets a turn
    assert await answered(reader) == 200


async def test_a_large_body_at_a_fair_rate_is_read(running, connect, monkeypatch):
    """What keeps coming is waited for, longer than any pause may be."""
    monkeypatch.setattr(bodies, "_PAUSE", 0.2)
    reader, writer = await connect(running)
    writer.write(head(len(GOOD) + 200_000))
    for _ in range(20):
        writer.write(b" " * 10_000)
        await asyncio.sleep(0.02)
    writer.write(GOOD)
    assert await answered(reader) == 200


async def unfinished(running, count: int) -> bool:
    return len(running.server.handler._bodies._held) == count


async def test_bytes_of_unfinished_bodies_are_bounded(start, connect, monkeypatch):
    """If there is no room for a further body, the oldest goes; what is counted is what has come in."""
    monkeypatch.setattr(bodies, "BUDGET", 250_000)
    async with start(objects=Objects([HIGH])) as running:
        hanging = []
        for count in range(1, 4):
            reader, writer = await connect(running)
            writer.write(head(5_000_000) + b" " * 100_000)
            hanging.append(reader)
            await until(lambda count=count: received(running, min(count, 2) * 100_000))
        assert await answered(hanging[0]) == 503
        assert await ask(*await connect(running)) == 200
        assert await metric(running, "giveway_requests_ended_total", reason="room") == 1
    assert running.server.handler._bodies.bytes == 0


async def received(running, count: int) -> bool:
    return running.server.handler._bodies.bytes == count


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("timeout=5s", 4.0), ("", 8.0), ("timeout=10s", 8.0), ("timeout=30s", 8.0), ("timeout=1h", 8.0)],
)
def test_no_client_gets_more_time_than_the_server_gives(query, seconds):
    """The timeout of the query shortens the time of a review and never makes it longer than the default."""
    assert _budget(query) == seconds


async def test_a_new_connection_gets_in_beside_idle_ones(start, connect, monkeypatch):
    """The oldest connections that never carried a review go first; one that did stays, as long as there are such."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    async with start(objects=Objects([HIGH])) as running:
        honest = await connect(running)
        assert await ask(*honest) == 200
        for _ in range(100):
            await connect(running)
        assert await ask(*honest) == 200
        assert await ask(*await connect(running)) == 200
        assert len(running.server._connections) == 20
        assert await metric(running, "giveway_connections_closed_total", reason="room") == 82
        assert (await running.get("/readyz"))[0] == 200


async def test_connections_that_only_shake_hands_halfway_are_bounded_too(start, connect, monkeypatch):
    """Connections without a TLS handshake count as well, and push out each other."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    async with start(objects=Objects([HIGH])) as running:
        opened = [await asyncio.open_connection("127.0.0.1", running.server.secure_port) for _ in range(50)]
        async with asyncio.timeout(2):
            assert await ask(*await connect(running)) == 200
        assert len(running.server._connections) <= 20
        for _, writer in opened:
            writer.close()


async def test_all_that_an_api_server_begins_at_once_get_their_handshake(running):
    """It has a connection for each review under way, 600 by default: none of them is ended because many begin."""
    begun = [socket.create_connection(("127.0.0.1", running.server.secure_port)) for _ in range(600)]
    for one in begun:
        one.send(b"\x16")  # the beginning of a handshake
        one.setblocking(False)
    await until(lambda: present(running, len(begun)))
    for one in begun:
        with pytest.raises(BlockingIOError):
            one.recv(1)
        one.close()


async def test_handshakes_begin_a_few_at_a_time(running, monkeypatch):
    """Each takes a millisecond, and others have their turn between those of an address that begins many."""
    loop, begun = asyncio.get_running_loop(), [0]
    accept = loop.connect_accepted_socket

    async def counted(*args, **options):
        begun[-1] += 1
        return await accept(*args, **options)

    monkeypatch.setattr(loop, "connect_accepted_socket", counted)
    clients = [socket.create_connection(("127.0.0.1", running.server.secure_port)) for _ in range(40)]
    async with asyncio.timeout(10):
        while sum(begun) < len(clients):
            begun.append(0)
            await asyncio.sleep(0)
    assert max(begun) <= connections._GREETINGS
    for client in clients:
        client.close()


async def test_if_every_connection_is_busy_the_longest_busy_one_goes(start, connect, monkeypatch):
    """A review takes milliseconds, so a new connection never waits for those that hang."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    async with start(objects=Objects([HIGH])) as running:
        hanging = []
        for count in (1, 2):
            reader, writer = await connect(running)
            writer.write(head(5000) + b"{")
            hanging.append(reader)
            await until(lambda count=count: unfinished(running, count))
        assert await ask(*await connect(running)) == 200
        assert await ended(hanging[0])
        assert await unfinished(running, 1)


async def test_a_server_that_cannot_accept_is_not_ready(running, connect, monkeypatch):
    """At the limit of open files nobody gets in, and readiness says so until somebody does."""
    monkeypatch.setattr(listener, "_RECENT_SECONDS", 0.3)
    with monkeypatch.context() as patched:
        patched.setattr(running.server._acceptor, "serve", no_file)
        with pytest.raises(OSError):
            await connect(running)
        await until(lambda: running.ready(503))
        _, report = await running.get("/readyz")
        assert "[-]listener failed: [Errno 24] Too many open files" in report
    await until(running.ready)
    assert await ask(*await connect(running)) == 200


async def no_file(connection):
    connection.close()
    raise OSError(errno.EMFILE, "Too many open files")


async def test_a_connection_must_begin_a_request_in_time(running, connect, monkeypatch):
    """One whose first head does not come is closed; one that carried a review is kept, also if it came in one go."""
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.2)
    honest, whole = await connect(running), await connect(running)
    assert await ask(*honest) == 200
    whole[1].write(head(len(GOOD)) + GOOD)
    assert await answered(whole[0]) == 200
    reader, writer = await connect(running)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: a")
    async with asyncio.timeout(2):
        assert await ended(reader)
    assert [await ask(*honest), await ask(*whole)] == [200, 200]
    assert await metric(running, "giveway_connections_closed_total", reason="head") == 1


@table(
    "garbage",
    {
        "no HTTP": b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        "a broken head": b"POST /mutate HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "a long head": b"POST /mutate HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        "broken chunks": b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "a negative length": (
            b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n"
        ),
        "upgrades": b"GET /mutate HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" * 50,
    },
)
async def test_garbage_is_refused_without_a_traceback(start, connect, caplog, capsys, garbage):
    """Whoever reaches the port cannot fill the log with tracebacks."""
    async with start(objects=Objects([HIGH])) as running:
        for _ in range(3):
            reader, writer = await connect(running)
            writer.write(garbage)
            assert 400 <= int((await reader.readline()).split()[1]) < 500
        assert await ask(*await connect(running)) == 200
    assert not [record for record in caplog.records if record.exc_info]
    assert "Traceback" not in capsys.readouterr().err


async def test_probes_are_answered_beside_connections_that_hang(running):
    """The private port closes its oldest connections when there are too many."""
    opened = [await asyncio.open_connection("127.0.0.1", running.manager.health_port) for _ in range(200)]
    assert (await running.get("/readyz"))[0] == 200
    assert await asyncio.wait_for(opened[0][0].read(), 2) == b""
    assert sum(not reader.at_eof() for reader, _ in opened) <= 64
    for _, writer in opened:
        writer.close()


@table(
    "fields",
    {
        "long": [b"x: " + b"x" * 3000],
        "many": [b"x%d: " % number + b"x" * 1000 for number in range(60)],
    },
)
async def test_a_head_that_does_not_end_takes_little(running, connect, fields):
    """It is refused before it is whole, so that a thousand of them do not take the memory."""
    reader, writer = await connect(running)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: a\r\n" + b"\r\n".join([*fields, b""]))
    assert b" 400 " in await asyncio.wait_for(reader.readline(), 5)


async def test_a_head_with_a_token_and_fields_of_proxies_is_read(running, connect):
    """An API server may show a token, and what stands between may add fields."""
    fields = [b"Authorization: Bearer " + b"x" * 1800, *(b"X-Hop-%d: value" % number for number in range(20)), b""]
    reader, writer = await connect(running)
    first, _, rest = head(len(GOOD)).partition(b"\r\n")
    writer.write(first + b"\r\n" + b"\r\n".join(fields) + rest + GOOD)
    assert await asyncio.wait_for(answered(reader), 5) == 200
