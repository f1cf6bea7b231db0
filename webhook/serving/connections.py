"""The connections of a listener: how many there are, and which one goes when there is no room."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable

from webhook.serving.fair_queue import Flow, Peer, Peers

MOST_CONNECTIONS = 1024
"""An API server speaks HTTP/1.1 to a webhook, so it has a connection for each review under way: 200 changes and 400
reads at a time by default (`--max-mutating-requests-inflight`), of which changes of pods are a part."""
_IDLE_SHARE = 0.5
"""Part of the connections that may be idle; the rest is for those who come."""
_HEAD_SECONDS = 10.0
"""From a connection's beginning until its first request must have begun."""


def most_connections() -> int:
    """`MOST_CONNECTIONS`, or half of the files this process may open if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(1, soft // 2))


class Connection:
    """One connection: whose it is, how to end it, and whether it ever carried a review that was answered.

    The handshakes of an address have a share of their own, `greeting`: who begins need not wait behind those who go on
    all the time, nor they behind many who begin.
    """

    __slots__ = ("abort", "deadline", "flow", "greeting", "group", "protocol", "proven")

    def __init__(self, flow: Flow, greeting: Flow, abort: Callable[[], object]) -> None:
        self.flow, self.greeting, self.abort = flow, greeting, abort
        self.deadline: asyncio.TimerHandle | None = None
        self.protocol: object = None
        self.group: _Group | None = None
        self.proven = False


class _Group:
    """Connections in one state, by peer, in the order in which they came into it."""

    def __init__(self) -> None:
        self._peers: dict[Peer, dict[Connection, None]] = {}
        self.count = 0

    def add(self, connection: Connection) -> None:
        peer = connection.flow.peer
        members = self._peers.get(peer)
        if members is None:
            self._peers[peer] = {connection: None}
        else:
            members[connection] = None
        self.count += 1

    def remove(self, connection: Connection) -> None:
        peer = connection.flow.peer
        members = self._peers[peer]
        if len(members) > 1:
            del members[connection]
        else:
            del self._peers[peer]
        self.count -= 1

    def of(self, peer: Peer) -> int:
        """How many are this peer's."""
        return len(self._peers.get(peer, ()))

    def most(self) -> dict[Connection, None]:
        """Those of the peer that has most."""
        return max(self._peers.values(), key=len)

    def all(self) -> list[Connection]:
        return [connection for members in self._peers.values() for connection in members]


class Connections:
    """The connections of one listener, at most `most`; `closed(reason)` is called for each that is ended here.

    A connection is silent until its client has said something, new until its first review was answered, then idle
    between reviews, and busy during one. If there is no room, a silent one goes, else a new, an idle, a busy one; and
    it is one of the address that has most of these: someone who opens many pushes out his own. Of silent, new and busy
    ones the oldest goes: they have had their time, and a review takes milliseconds. Of idle ones those stay that came
    first. Half of the places are for idle ones at most: a connection that finds none is closed with its answer, which
    loses nothing.
    """

    def __init__(self, most: int, closed: Callable[[str], object]) -> None:
        self._most, self._most_idle, self._closed = most, max(1, int(most * _IDLE_SHARE)), closed
        self._peers, self._greeters = Peers(), Peers()
        self._serving: dict[object, Connection] = {}
        self._silent, self._new, self._idle, self._busy = _Group(), _Group(), _Group(), _Group()

    def __len__(self) -> int:
        return self._silent.count + self._new.count + self._idle.count + self._busy.count

    def make_room(self) -> None:
        """End connections until there is room for one more."""
        while len(self) >= self._most:
            group = next(group for group in (self._silent, self._new, self._idle, self._busy) if group.count)
            members = group.most()
            self.end(next(reversed(members) if group is self._idle else iter(members)), "room")

    def add(self, address: str, abort: Callable[[], object]) -> Connection:
        """Note a new connection, of which nothing was heard yet; `abort` ends it."""
        connection = Connection(self._peers.flow(address), self._greeters.flow(address), abort)
        connection.deadline = asyncio.get_running_loop().call_later(_HEAD_SECONDS, self.end, connection, "head")
        self._move(connection, self._silent)
        return connection

    def serve(self, connection: Connection, protocol: object, abort: Callable[[], object]) -> bool:
        """Note that the client has begun to speak, which protocol serves it, and what ends it from now on.

        False if the connection was to end meanwhile.
        """
        if connection.group is None:
            return False
        connection.abort, connection.protocol = abort, protocol
        self._serving[protocol] = connection
        self._move(connection, self._new)
        return True

    def served_by(self, protocol: object) -> Connection | None:
        """The connection that this protocol serves; None if it has gone."""
        return self._serving.get(protocol)

    def begin(self, connection: Connection) -> None:
        """Note that a request has begun."""
        if connection.group in (self._new, self._idle):
            if connection.deadline is not None:
                connection.deadline.cancel()
                connection.deadline = None
            self._move(connection, self._busy)

    def answered(self, connection: Connection, *, verdict: bool) -> bool:
        """Note that a request has ended, with a verdict on a review or without; whether the connection may stay."""
        if connection.group is not self._busy:
            return False
        connection.proven |= verdict
        if not connection.proven:
            self._move(connection, self._new)
            return True
        stays = self._idle.count < self._most_idle
        if not stays and self._idle.of(connection.flow.peer) + 1 < len(members := self._idle.most()):
            self.end(next(reversed(members)), "room")
            stays = True
        self._move(connection, self._idle if stays else self._new)
        return stays

    def answered_at_once(self, connection: Connection, *, verdict: bool) -> bool:
        """Note that a request has begun and ended in one go; whether the connection may stay. An idle one stays so."""
        if connection.group is self._idle:
            return True
        self.begin(connection)
        return self.answered(connection, verdict=verdict)

    def end(self, connection: Connection, reason: str) -> None:
        """End a connection."""
        self.lost(connection)
        connection.abort()
        self._closed(reason)

    def end_new(self) -> None:
        """End the connections that have not carried a review, whose handshake may still be under way."""
        for connection in [*self._silent.all(), *self._new.all()]:
            self.lost(connection)
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Note that a connection is gone."""
        if connection.deadline is not None:
            connection.deadline.cancel()
            connection.deadline = None
        self._serving.pop(connection.protocol, None)
        self._move(connection, None)

    def _move(self, connection: Connection, group: _Group | None) -> None:
        if connection.group is not None:
            connection.group.remove(connection)
        elif group is not self._silent:  # it has been ended
            return
        connection.group = group
        if group is not None:
            group.add(connection)
