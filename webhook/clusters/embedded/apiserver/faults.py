"""Faults on demand: what a test lets the server do wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from webhook.clusters.embedded.apiserver.watching import Watch
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.calls import RequestInfo

_TEXTS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    429: ("TooManyRequests", "The server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: fault on demand"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


@dataclass(frozen=True)
class FaultMatch:
    """Which requests a fault is for; every part is a pattern with `*`. `resource` may be `pods/eviction`."""

    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"

    def fits(self, info: RequestInfo) -> bool:
        """Whether the request is meant."""
        resource = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
        return (
            bool(info.plural)
            and fnmatchcase(info.verb, self.verb)
            and fnmatchcase(resource, self.resource)
            and fnmatchcase(info.namespace, self.namespace)
            and fnmatchcase(info.name, self.name)
        )


@dataclass
class _Fault:
    match: FaultMatch
    left: float
    code: int = 0
    delay: float = 0.0
    retry_after: int | None = None
    message: str = ""


@dataclass
class Faults:
    """The faults in force. Without any, a request costs one look at an empty list."""

    _requests: list[_Fault] = field(default_factory=list)
    _delays: list[tuple[FaultMatch, float]] = field(default_factory=list)
    _watches: list[tuple[RequestInfo, Watch]] = field(default_factory=list)

    def fail(
        self,
        code: int,
        count: float = 1,
        match: FaultMatch = FaultMatch(),
        retry_after: int | None = None,
        message: str = "",
    ) -> None:
        """Answer the next `count` matching requests with this status, in these words or the usual ones."""
        self._requests.append(_Fault(match, count, code=code, retry_after=retry_after, message=message))

    def delay(self, seconds: float, count: float = math.inf, match: FaultMatch = FaultMatch()) -> None:
        """Let the next `count` matching requests wait before they are handled."""
        self._requests.append(_Fault(match, count, delay=seconds))

    def delay_watches(self, seconds: float, match: FaultMatch = FaultMatch()) -> None:
        """Hold back the events of matching watches, open ones and those to come."""
        self._delays.append((match, seconds))
        for info, watch in self._watches:
            if match.fits(info):
                watch.delay = seconds

    def drop_watches(self) -> None:
        """End the watches that are open."""
        for _info, watch in self._watches:
            watch.end()

    def truncate_watches(self) -> None:
        """Let the next event of each open watch stop in mid-line."""
        for _info, watch in self._watches:
            watch.torn = True

    def clear(self) -> None:
        """Behave again."""
        self._requests.clear()
        self._delays.clear()
        for _info, watch in self._watches:
            watch.delay, watch.torn = 0.0, False

    async def strike(self, info: RequestInfo) -> None:
        """Let a request suffer the faults that are for it. Raises StatusError."""
        for fault in [fault for fault in self._requests if fault.match.fits(info)]:
            fault.left -= 1
            if fault.left <= 0:
                self._requests.remove(fault)
            if fault.delay:
                await asyncio.sleep(fault.delay)
            if not fault.code:
                continue
            reason, usual = _TEXTS[fault.code]
            message = fault.message or usual
            if fault.code == 429:
                seconds = 1 if fault.retry_after is None else fault.retry_after
                raise statuses.too_many_requests(message, retry_after=seconds)
            raise statuses.failure(fault.code, reason, message, {"name": info.name, "kind": info.plural})

    async def follow(self, info: RequestInfo, watch: Watch) -> AsyncGenerator[bytes, None]:
        """Yield what a watch sends, which suffers the faults that are for its request meanwhile."""
        for match, seconds in self._delays:
            if match.fits(info):
                watch.delay = seconds
        self._watches.append((info, watch))
        try:
            async with aclosing(watch.lines()) as lines:
                async for line in lines:
                    yield line
        finally:
            self._watches = [entry for entry in self._watches if entry[1] is not watch]
