"""Certificates and client CAs that change between a connection's beginning and its handshake."""

import asyncio
import socket
import ssl

import pytest

from tests.serving.certificates import Authority
from tests.serving.conftest import trusting

VERSIONS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}
NAMES = {"with a name": "localhost", "without one": None}


def client_context(authority, version, client=None):
    context = trusting(authority, client)
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    return context


def shake_hands(sock: socket.socket, context: ssl.SSLContext, name: str | None, session=None) -> ssl.SSLSocket:
    """Begin TLS, and read to learn whether the server takes the client. Raises OSError if it does not."""
    sock.settimeout(5)
    tls = context.wrap_socket(sock, server_hostname=name, session=session)
    tls.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    if not tls.recv(100):
        raise ConnectionError("the server has ended the connection")
    return tls


def subject(tls: ssl.SSLSocket) -> str:
    return dict(part[0] for part in tls.getpeercert()["subject"])["commonName"]


def opened(running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server.secure_port))


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_a_handshake_takes_the_newest_certificate(start, authority, tmp_path, name, version):
    """Also of a connection that was accepted two certificates ago, and whether the client names a server or not."""
    async with start(poll_interval=60) as running:
        waiting = opened(running)
        await asyncio.sleep(0.05)
        for renewed in ("second", "third"):
            authority.renew(tmp_path, renewed)
            assert await running.server.reload_certificate()
        context = client_context(authority, version)
        for sock in (waiting, opened(running)):
            with await asyncio.to_thread(shake_hands, sock, context, name) as tls:
                assert subject(tls) == "third"


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_an_old_client_ca_is_forgotten(start, authority, tmp_path, name, version):
    """Neither a connection that was accepted before lets its clients in, nor a TLS session that they began."""
    old, new = Authority(), Authority()
    ca = old.write_ca(tmp_path / "callers.crt")
    mine, others = (
        client_context(authority, version, one.issue(tmp_path, word)) for one, word in ((old, "mine"), (new, "others"))
    )
    async with start(client_ca_file=ca, poll_interval=60) as running:
        with await asyncio.to_thread(shake_hands, opened(running), mine, name) as tls:
            session = tls.session
        waiting, also_waiting = opened(running), opened(running)
        await asyncio.sleep(0.05)
        new.write_ca(ca)
        assert await running.server.reload_certificate()
        for sock, resumed in ((waiting, None), (opened(running), None), (opened(running), session)):
            with pytest.raises(OSError):
                await asyncio.to_thread(shake_hands, sock, mine, name, resumed)
        for sock in (also_waiting, opened(running)):
            (await asyncio.to_thread(shake_hands, sock, others, name)).close()


async def test_no_session_is_kept_for_a_client_to_come_back_to(running, connect):
    """API servers do not resume TLS sessions, and a ticket takes a fifth of the time of a handshake."""
    reader, writer = await connect(running)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readline()
    assert writer.get_extra_info("ssl_object").session.has_ticket is False
