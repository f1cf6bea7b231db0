"""TLS connections: the certificate they begin under, and whose turn it is to be heard."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from cryptography import x509

from webhook.component_base.listener import Acceptor
from webhook.component_base.supervision import Supervisor
from webhook.serving.connections import Connection, Connections
from webhook.serving.http_connection import HttpProtocols
from webhook.serving.turns import Turns

_HANDSHAKE_SECONDS = 5
_HANDSHAKE_COST = 0.001
"""Seconds of this process for a handshake, about."""
_READ_SECONDS, _BYTE_SECONDS = 0.0001, 3e-9
"""What it takes to decrypt and parse what has come: in any case, and for each byte."""
_PIECE = 4096
"""Bytes that are decrypted at a time. Most often they take microseconds; a hundred and fifty KeyUpdates take 2 ms. So
many are read, too, of a connection while others of it wait: to stop reading takes longer than to read."""
_RECORD = 16 * 1024
"""Bytes of the largest record, decrypted."""
_TURN_SECONDS = 0.001
"""Of decrypting in one turn. The rest of what has come waits for the next one."""
_GIVING_UP_SECONDS = 0.1
"""From telling the requests that are still in hand to end, until their connections are closed."""
_CLOSING_SECONDS = 2
"""Wait for the peer's half of a TLS connection's end."""


class TlsError(Exception):
    """A certificate, key or client CA that cannot be used; the text names the file and what is wrong."""


class ServingCertificate(msgspec.Struct, frozen=True):
    """A certificate in use: `expires` in seconds since the epoch."""

    context: ssl.SSLContext
    expires: float
    subject: str


def load_certificate(certificate_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ServingCertificate:
    """Load certificate, key and client CA. Raises TlsError; nothing that is in use is touched."""
    try:
        certificate = x509.load_pem_x509_certificates(certificate_file.read_bytes())[0]
    except OSError as error:
        raise TlsError(f"cannot read the certificate: {error}") from error
    except ValueError as error:
        raise TlsError(f"{certificate_file} holds no PEM certificate: {error}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # an API server begins each connection from nothing, and a ticket outlives its certificate
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{key_file} is no private key for {certificate_file}: {_reason(error)}") from error
    if client_ca_file is not None:
        try:
            context.load_verify_locations(cafile=client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"{client_ca_file} holds no usable client CA: {_reason(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return ServingCertificate(
        context, certificate.not_valid_after_utc.timestamp(), certificate.subject.rfc4514_string()
    )


def _reason(error: OSError) -> str:
    return error.reason or str(error) if isinstance(error, ssl.SSLError) else str(error)


class _Tls(SSLProtocol):
    """asyncio's TLS, without a read buffer of its own for each connection, idle or not.

    One buffer does for all: the event loop asks for it, fills it and has it read, in one go, connection by connection.
    """

    _call_eof_received: Callable[[], None]
    _incoming: ssl.MemoryBIO
    _sslobj: ssl.SSLObject
    _ssl_reading_paused: bool
    _ssl_writing_paused: bool
    max_size = 64 * 1024
    _shared = bytearray(max_size)

    def __init__(
        self,
        server: HttpProtocols,
        context: ssl.SSLContext,
        connection: Connection,
        connections: Connections,
        turns: Turns,
    ) -> None:
        self._served = server.serve(connection, turns, self._hold)
        super().__init__(
            asyncio.get_running_loop(),
            self._served,
            context,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_CLOSING_SECONDS,
        )
        self._ssl_buffer = self._shared
        self._ssl_buffer_view = memoryview(self._shared)
        self._connection, self._connections, self._turns = connection, connections, turns
        self._raw: asyncio.Transport | None = None
        self._encrypted = bytearray()
        self._heard = self._waiting = self._held = False

    def get_buffer(self, n: int) -> memoryview:
        """Where to put what comes; of what waits not much more is read."""
        del n
        return self._ssl_buffer_view[:_PIECE] if self._waiting else self._ssl_buffer_view

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note what ends the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        super().connection_made(transport)
        if not self._connections.serve(self._connection, self._served, transport.abort):
            transport.abort()

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt and hand on what has come, now or when it is this connection's turn; little is read until then."""
        if self._waiting:
            self._encrypted += self._ssl_buffer_view[:nbytes]
            self._pause()
            return
        flow, begun, cost = self._connection.flow, False, _READ_SECONDS
        if self._served.transport is None:  # the handshake is under way; it begins when it has its turn
            flow, begun = self._connection.greeting, not self._heard
            cost = _HANDSHAKE_COST if begun else _READ_SECONDS
            self._heard = True
        if self._turns.full if begun else self._turns.must_wait(flow):
            self._encrypted += self._ssl_buffer_view[:nbytes]
            self._waiting = True
            if nbytes > _PIECE:
                self._pause()
            self._turns.later(flow, self._decrypt, cost + nbytes * _BYTE_SECONDS, begun=begun)
        elif nbytes <= _PIECE:
            self._turns.do(flow, super().buffer_updated, nbytes)
        else:
            self._encrypted += self._ssl_buffer_view[:nbytes]
            self._turns.do(flow, self._decrypt)

    def eof_received(self) -> None:
        """Have no more answered."""
        super().eof_received()
        if self._served.transport is not None:
            self._served.eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note the end, whether the handshake had been done or not."""
        super().connection_lost(exc)
        self._raw = None
        self._connections.lost(self._connection)

    def pause_writing(self) -> None:
        """Read no more of a client that does not take what it is sent: also what it says has answers, in TLS itself."""
        super().pause_writing()
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._hold(self._held)

    def _do_read__copied(self) -> None:
        """Hand on what can be decrypted, as asyncio does it, but without asking for more when nothing is left.

        Asking raises an error, which takes 3 % of a review.
        """
        parts: list[bytes] = []
        ended = False
        try:
            while not ended and (not parts or self._incoming.pending or self._sslobj.pending()):
                parts.append(self._sslobj.read(_RECORD))
                ended = not parts[-1]
        except (ssl.SSLWantReadError, ssl.SSLSyscallError):
            pass  # the rest has not come yet
        data = b"".join(parts)
        if data:
            self._served.data_received(data)
        if ended:  # the peer has said so
            self._call_eof_received()
            self._start_shutdown()

    def _decrypt(self) -> None:
        """Decrypt and hand on what has come, for so long as a turn may take."""
        began = time.perf_counter()
        while self._encrypted:
            self._incoming.write(self._encrypted[:_PIECE])
            del self._encrypted[:_PIECE]
            super().buffer_updated(0)
            if time.perf_counter() - began > _TURN_SECONDS:
                break
        self._waiting = bool(self._encrypted)
        if self._waiting:
            self._pause()
            self._turns.later(self._connection.flow, self._decrypt, _TURN_SECONDS)
        else:
            self._hold(self._held)

    def _hold(self, held: bool) -> None:
        """Read no more, or go on with it."""
        self._held = held
        if held or self._ssl_writing_paused:
            self._pause()
        elif self._raw is not None and not self._ssl_reading_paused:
            self._raw.resume_reading()

    def _pause(self) -> None:
        if self._raw is not None:
            self._raw.pause_reading()


class TlsListener:
    """Hands connections to `server`, each under the TLS context that is in use when it begins to speak.

    It accepts by itself, because an asyncio server keeps the context it was made with, and swapping two of them
    loses the connections that are in between. A context of its own for each certificate, and not a new certificate
    in the old context, because a context cannot forget a client CA. A connection that says nothing costs a socket;
    those that do are taken on in turns.
    """

    def __init__(
        self,
        server: HttpProtocols,
        sock: socket.socket,
        context: ssl.SSLContext,
        supervisor: Supervisor,
        *,
        connections: Connections,
        turns: Turns,
    ) -> None:
        self.context, self._server, self._connections, self._turns = context, server, connections, turns
        self.acceptor = Acceptor(sock, self._serve)
        self._accepting = asyncio.create_task(supervisor.keep("listener", self.acceptor.accept))
        self._beginning: set[asyncio.Task[object]] = set()

    async def close(self, grace: float) -> None:
        """Accept no more, end idle connections, and give requests in hand `grace` seconds."""
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting
        self.acceptor.socket.close()
        self._connections.end_new()
        self._server.pre_shutdown()
        # aiohttp waits for so long twice: for requests to be finished, and for them to be given up
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._server.shutdown(grace)
        await self._server.shutdown(_GIVING_UP_SECONDS)

    async def _serve(self, accepted: socket.socket) -> None:
        """Wait for the client's first bytes, after room was made for the connection."""
        self._connections.make_room()
        loop = asyncio.get_running_loop()

        def abort() -> None:
            loop.remove_reader(accepted)
            accepted.close()

        accepted.setblocking(False)
        connection = self._connections.add(accepted.getpeername()[0], abort)
        try:
            accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            loop.add_reader(accepted, self._hear, accepted, connection)
        except OSError:
            self._connections.lost(connection)
            raise
        else:
            self._hear(accepted, connection)

    def _hear(self, accepted: socket.socket, connection: Connection) -> None:
        """Begin TLS when it is the connection's turn.

        An API server begins as many at once as it has reviews under way, so only all connections are bounded.
        """
        loop = asyncio.get_running_loop()
        loop.remove_reader(accepted)
        begin, flow = partial(self._begin, accepted, connection), connection.greeting
        if not self._turns.must_wait(flow):
            self._turns.do(flow, begin)
        else:
            self._turns.later(flow, begin, _HANDSHAKE_COST)

    def _begin(self, accepted: socket.socket, connection: Connection) -> None:
        if connection.group is None:  # it has been ended
            return
        connection.abort = _nothing  # as soon as there is a transport, that ends it
        tls = _Tls(self._server, self.context, connection, self._connections, self._turns)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: tls, accepted))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)


def _nothing() -> None:
    """What ends a connection that nothing can end at the moment: it is looked at again in a moment."""
