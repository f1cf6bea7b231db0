"""The response to a review, against what aiohttp's own Response sends."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from webhook.serving.responses import JsonResponse

BODY = b'{"kind":"AdmissionReview"}'
CASES = {
    "HTTP/1.1": ("HTTP/1.1", "", 200, False),
    "HTTP/1.1, the client closes": ("HTTP/1.1", "Connection: close\r\n", 200, False),
    "HTTP/1.1, the server closes": ("HTTP/1.1", "", 200, True),
    "HTTP/1.0": ("HTTP/1.0", "", 200, False),
    "HTTP/1.0, the client stays": ("HTTP/1.0", "Connection: keep-alive\r\n", 200, False),
    "HTTP/1.0, the client stays and the server closes": ("HTTP/1.0", "Connection: keep-alive\r\n", 200, True),
    "a refusal": ("HTTP/1.1", "", 503, True),
}


def _plain(body: bytes, status: int) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


async def _sent(make, version, header, status, closes):
    """What a server sends to one request, until it closes or the body is whole: status line, headers, body, closed."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        del request
        response = make(BODY, status)
        if closes:
            response.force_close()
        return response

    server = web.Server(handle, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(f"POST /mutate {version}\r\nHost: a\r\nContent-Length: 0\r\n{header}\r\n".encode())
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        body = await reader.readexactly(len(BODY))
        writer.write(f"POST /mutate {version}\r\nHost: a\r\nContent-Length: 0\r\n{header}\r\n".encode())
        try:
            closed = not await reader.read(1)
        except ConnectionError:
            closed = True
        writer.close()
    finally:
        listener.close()
        await server.shutdown()
    dated = [line for line in headers if line.startswith("Date: ")]
    assert [line.endswith(" GMT") for line in dated] == [True]
    return first, sorted(set(headers) - set(dated)), body, closed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_same_as_aiohttp_sends(case):
    """Status line, headers, body and the end of the connection, in every version and with either side closing."""
    sent = await _sent(JsonResponse, *case)
    assert sent == await _sent(_plain, *case)
    assert sent[2] == BODY


async def test_a_client_that_does_not_read_is_waited_for():
    """Pipelined requests are not answered ahead of a client that leaves the answers unread."""
    answered, large = 0, b"x" * 32768

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal answered
        del request
        answered += 1
        return JsonResponse(large, 200)

    server = web.Server(handle, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    client = socket.create_connection(listener.sockets[0].getsockname())
    try:
        client.setblocking(False)
        request = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(client, request * 1000)
        before = -1
        while answered != before:
            before = answered
            await asyncio.sleep(0.1)
        assert 0 < answered < 1000
    finally:
        client.close()
        listener.close()
        await server.shutdown()
