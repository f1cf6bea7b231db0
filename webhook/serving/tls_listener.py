"""TLS connections: the certificate they begin under, how many there are, and which one goes when there is no room."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web
from cryptography import x509

from webhook.component_base.listener import Acceptor
from webhook.component_base.supervision import Supervisor

__all__ = [
    "MOST_CONNECTIONS",
    "Connections",
    "ServingCertificate",
    "TlsError",
    "TlsListener",
    "load_certificate",
    "most_connections",
]

MOST_CONNECTIONS = 1024
"""An API server speaks HTTP/1.1 to a webhook, so it has a connection for each review under way: 200 changes and 400
reads at a time by default (`--max-mutating-requests-inflight`), of which changes of pods are a part."""
_HEAD_SECONDS = 10.0
"""From a connection's beginning until its first request must have begun."""
_HANDSHAKE_SECONDS = 5
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


def most_connections() -> int:
    """`MOST_CONNECTIONS`, or half of the files this process may open if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(1, soft // 2))


class _Connection:
    """One connection: how to end it, and whether it ever carried a review that was answered."""

    __slots__ = ("deadline", "proven", "transport")

    def __init__(self, transport: asyncio.Transport, deadline: asyncio.TimerHandle) -> None:
        self.transport, self.deadline, self.proven = transport, deadline, False


class Connections:
    """The connections of one listener, at most `most`; `closed(reason)` is called for each that is ended here.

    A connection is new until its first review was answered, then idle between reviews, and busy during one. If there
    is no room, the oldest new one goes, then the one that has been idle longest, then the one that has been busy
    longest: someone who only opens connections pushes out his own, and a review takes milliseconds. The key is the
    protocol object that serves the connection.
    """

    def __init__(self, most: int, closed: Callable[[str], object]) -> None:
        self._most, self._closed = most, closed
        self._new: OrderedDict[object, _Connection] = OrderedDict()
        self._idle: OrderedDict[object, _Connection] = OrderedDict()
        self._busy: OrderedDict[object, _Connection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._new) + len(self._idle) + len(self._busy)

    def make_room(self) -> None:
        """End connections until there is room for one more."""
        while len(self) >= self._most:
            group = self._new or self._idle or self._busy
            _, connection = group.popitem(last=False)
            connection.deadline.cancel()
            connection.transport.abort()
            self._closed("room")

    def add(self, protocol: object, transport: asyncio.Transport) -> None:
        """Note a new connection, whose handshake may still be under way."""
        deadline = asyncio.get_running_loop().call_later(_HEAD_SECONDS, self._expire, protocol)
        self._new[protocol] = _Connection(transport, deadline)

    def begin(self, protocol: object) -> None:
        """Note that a request has begun."""
        connection = self._idle.pop(protocol, None)
        if connection is None:
            connection = self._new.pop(protocol, None)
            if connection is None:
                return
            connection.deadline.cancel()
        self._busy[protocol] = connection

    def end(self, protocol: object, *, answered: bool) -> None:
        """Note that a request has ended; `answered` says that it was a review with a verdict."""
        connection = self._busy.pop(protocol, None)
        if connection is not None:
            connection.proven |= answered
            (self._idle if connection.proven else self._new)[protocol] = connection

    def end_new(self) -> None:
        """End the connections that have not carried a review, whose handshake may still be under way."""
        for connection in self._new.values():
            connection.deadline.cancel()
            connection.transport.abort()

    def lost(self, protocol: object) -> None:
        """Note that a connection is gone."""
        for group in (self._new, self._idle, self._busy):
            connection = group.pop(protocol, None)
            if connection is not None:
                connection.deadline.cancel()

    def _expire(self, protocol: object) -> None:
        connection = self._new.pop(protocol, None)
        if connection is not None:
            connection.transport.abort()
            self._closed("head")


class _Tls(SSLProtocol):
    """asyncio's TLS, without a read buffer of its own for each connection, idle or not.

    One buffer does for all: the event loop asks for it, fills it and has it read, in one go, connection by connection.
    """

    max_size = 64 * 1024
    _shared = bytearray(max_size)

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, lost: Callable[[object], None]) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            protocol,
            context,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_CLOSING_SECONDS,
        )
        self._ssl_buffer = self._shared
        self._ssl_buffer_view = memoryview(self._shared)
        self._served, self._lost = protocol, lost

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note the end, whether the handshake had been done or not."""
        super().connection_lost(exc)
        self._lost(self._served)


class TlsListener:
    """Hands connections to `server`, each under the TLS context that is in use when it comes.

    It accepts by itself, because an asyncio server keeps the context it was made with, and swapping two of them
    loses the connections that are in between. A context of its own for each certificate, and not a new certificate
    in the old context, because a context cannot forget a client CA.
    """

    def __init__(
        self,
        server: web.Server,
        sock: socket.socket,
        context: ssl.SSLContext,
        supervisor: Supervisor,
        connections: Connections,
    ) -> None:
        self.context, self._server, self._connections = context, server, connections
        self.acceptor = Acceptor(sock, self._serve)
        self._accepting = asyncio.create_task(supervisor.keep("listener", self.acceptor.accept))

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

    async def _serve(self, connection: socket.socket) -> None:
        """Begin TLS on the connection, after room was made for it."""
        self._connections.make_room()
        protocol = self._server()
        tls = _Tls(protocol, self.context, self._connections.lost)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: tls, connection)
        if not transport.is_closing():
            self._connections.add(protocol, transport)
