"""Who is next, if there is too much to do: fair shares by cost, first among addresses, then among connections.

Start-time fair queuing (P. Goyal, H. Vin, H. Cheng: SFQ). Each address has a tag, the cost that it has been charged in
virtual time; whoever has the lowest is next. Virtual time is the tag of who was served last, so nobody saves up while
idle, and nobody who comes again begins again with an advantage. Within an address its connections have turns in the
same way. Each turn counts the same, and the price of what is dear rises with its square: who asks for cheap things
does not wait behind a hundred that ask for dear ones, nor behind several that ask for cheaper ones still.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from webhook.kube.bounded import LONGEST_SHOWN, Newest

T = TypeVar("T")

_TURN = 0.00025
"""Seconds that a turn counts among the connections of an address. So cheap things go round and round, in the order in
which they came: an honest review need not wait behind several that are a little cheaper."""
_MOST_SHARES = 1024
"""Shares of an address that are known; who comes again after that begins where the others are."""
_CHEAP, _DEAR = 0.0005, 0.001
"""Seconds that count no more than the turn they are part of, and at which the square of the rest counts as much as the
rest."""


class Peer:
    """Whoever is at one address: an API server, a tenant's pod, or all of them behind one proxy."""

    __slots__ = ("__weakref__", "address", "lines", "shares")

    def __init__(self, address: str) -> None:
        self.address = address
        self.lines: dict[FairQueue[Any], _Line] = {}
        self.shares: Newest[str, dict[FairQueue[Any], float]] = Newest(_MOST_SHARES)
        """How far those have come for whom its connections ask, by name."""


class Flow:
    """One connection of a peer, or whatever its peer asks for in one `share`."""

    __slots__ = ("peer", "share", "tags")

    def __init__(self, peer: Peer) -> None:
        self.peer, self.share = peer, ""
        self.tags: dict[FairQueue[Any], float] = {}
        """How far it has come in the virtual time of its peer."""

    def within(self, share: str) -> Flow:
        """What all connections of the peer ask for in this share, such as a namespace: its own turns among others."""
        flow = Flow(self.peer)
        flow.share = share[:LONGEST_SHOWN]
        flow.tags = self.peer.shares.made(flow.share, dict)
        return flow


class Peers:
    """The peers that have a connection, by address; they are forgotten with the last one."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Peer] = WeakValueDictionary()

    def flow(self, address: str) -> Flow:
        """A new connection from this address."""
        peer = self._known.get(address)
        if peer is None:
            peer = self._known[address] = Peer(address)
        return Flow(peer)


class _Line:
    """What waits of one peer, and how far the peer and its connections have come in virtual time."""

    __slots__ = ("now", "tag", "waiting")

    def __init__(self, tag: float) -> None:
        self.tag, self.now = tag, 0.0
        self.waiting: list[tuple[float, int, float, float, Flow, Any]] = []


class FairQueue(Generic[T]):
    """Items that wait, each for a connection; costs are in seconds, or in any other unit that is used throughout."""

    def __init__(self) -> None:
        self._waiting: dict[_Line, None] = {}
        self._now, self._number = 0.0, count()
        self.count = 0
        """How many items wait."""

    def put(self, flow: Flow, item: T, estimate: float, *, begun: bool = False) -> None:
        """Let an item wait that will cost about so much, for a turn of its own.

        What has `begun` goes on with the last turn, before what is as cheap and has not.
        """
        line = self._line(flow)
        start = line.now if begun else max(flow.tags.get(self, 0.0), line.now)
        rank = start + _dearness(estimate)
        if not begun:
            rank += _TURN
            flow.tags[self] = start + _TURN
        heappush(line.waiting, (rank, next(self._number), start, estimate, flow, item))
        self._waiting[line] = None
        self.count += 1

    def pop(self) -> tuple[Flow, T]:
        """Take the next item. Raises ValueError if there is none."""
        line = min(self._waiting, key=lambda line: (max(line.tag, self._now), line.waiting[0][3], line.waiting[0][1]))
        self._now = max(self._now, line.tag)
        _, _, start, _, flow, item = heappop(line.waiting)
        line.now = max(line.now, start)
        if not line.waiting:
            del self._waiting[line]
        self.count -= 1
        return flow, item

    def behind(self, flow: Flow) -> bool:
        """Whether the peer has had less than its share since others wait: it would be next."""
        return self._line(flow).tag < self._now

    def charge(self, flow: Flow, cost: float) -> None:
        """Count what something has cost; if nobody waits, nobody has come short, and it is forgotten."""
        line = self._line(flow)
        line.tag = max(line.tag, self._now) + cost
        tag = flow.tags[self] = max(flow.tags.get(self, 0.0), line.now) + _dearness(cost)
        if not self.count:
            self._now, line.now = line.tag, tag

    def _line(self, flow: Flow) -> _Line:
        line = flow.peer.lines.get(self)
        if line is None:
            line = flow.peer.lines[self] = _Line(self._now)
        return line


def _dearness(cost: float) -> float:
    return max(0.0, cost - _CHEAP) ** 2 / _DEAR
