"""How many connections there are, and which one goes when a new one needs room."""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["MOST_CONNECTIONS", "Connections", "most_connections"]

MOST_CONNECTIONS = 1024
"""An API server speaks HTTP/1.1 to a webhook, so it has a connection for each review under way: 200 changes and 400
reads at a time by default (`--max-mutating-requests-inflight`), of which changes of pods are a part."""
_HEAD_SECONDS = 10.0
"""From a connection's beginning until its first request must have begun."""


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
