"""Events for the people who own the pods, through events.k8s.io/v1; telling must never disturb doing.

Occurrences of the same thing (regarding, related, type, reason, action) become one Event with a growing series, as
in client-go. What waits to be sent is bounded, sent at a bounded rate, retried a few times and then dropped; what is
dropped is counted. Urgent occurrences are sent first and dropped last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from webhook.kube.backoff import Backoff
from webhook.kube.bounded import Newest
from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.instants import rfc3339_micro
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import EVENT, Resource

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]
Reference = Mapping[str, str]

_SERIES_ENDS = 360.0
"""Seconds without a further occurrence after which the next one begins a new Event (client-go: six minutes)."""
_SERIES_PERIOD = 10.0
"""Seconds between two updates of one series."""
_REMEMBERED = 4096
_WAITING = 1000
"""Events that wait to be sent, at most."""
_PER_SECOND = 25.0
_BURST = 100
_TRIES = 5
_NOTE = 1024
_NAME = 230


class Occurrence(msgspec.Struct, frozen=True):
    """What happened to an object, in the fields of an Event; `reason` and `action` are CamelCase words.

    If `distinct`, another note is another Event: what an Event says cannot be changed afterwards.
    """

    regarding: Reference
    related: Reference | None
    type: EventType
    reason: str
    action: str
    note: str
    urgent: bool = False
    distinct: bool = False


class Recorder(Protocol):
    """Who is told what happened to an object."""

    def event(self, occurrence: Occurrence) -> None:
        """Note an occurrence and return at once."""
        ...


def reference(resource: Resource, metadata: ObjectMeta) -> dict[str, str]:
    """What an Event needs to point at an object."""
    texts = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }
    return {key: text for key, text in texts.items() if text}


@dataclass
class _Series:
    """One Event: what it says, how often it happened, what of that the server knows."""

    body: dict[str, Any]
    urgent: bool = False
    count: int = 1
    last: float = field(default_factory=time.time)
    sent: bool = False
    not_before: float = 0.0
    tries: int = 0


_Key = bytes
"""What makes two occurrences the same thing."""


class EventRecorder:
    """Sends Events in the background of the running loop. `close()` it, so that the last ones get out.

    `reporting_controller` is a qualified name (`giveway.dev/reconciler`), `instance` says which of its processes.
    `dropped` counts the occurrences that nobody will read of; `on_drop` hears the reason of each.
    """

    def __init__(
        self, client: Client, reporting_controller: str, instance: str, on_drop: Callable[[str], None] | None = None
    ) -> None:
        self.dropped = 0
        self._on_drop = on_drop
        self._overflows = False
        self._client = client
        self._reporter = {"reportingController": reporting_controller, "reportingInstance": instance[:128]}
        self._known: Newest[_Key, _Series] = Newest(_REMEMBERED)
        self._waiting: dict[_Key, _Series] = {}
        self._next = 0.0
        self._backoff = Backoff()
        self._more = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def event(self, occurrence: Occurrence) -> None:
        """Note an occurrence and return at once; never raises.

        If more waits than can be kept, occurrences that are not `urgent` make room for those that are.
        """
        try:
            self._note(occurrence)
        except Exception:
            log.exception("event %s regarding %s was lost", occurrence.reason, occurrence.regarding)
            self._drop(occurrence.reason)

    async def close(self, deadline: float = 5.0) -> None:
        """Send what waits, for `deadline` seconds at most, then stop."""
        self._closing = True
        self._more.set()
        if self._task is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._task, deadline)
        if self._waiting:
            log.warning("%d events were not sent before the end", len(self._waiting))
            for series in self._waiting.values():
                self._drop(series.body["reason"])
            self._waiting.clear()
        self._task = None

    def _note(self, new: Occurrence) -> None:
        """Count an occurrence in its series, begin a series, or drop it if there is no room."""
        said = {"type": new.type, "reason": new.reason, "action": new.action, "regarding": new.regarding}
        if new.related:
            said["related"] = new.related
        key = msgspec.json.encode([said, new.note if new.distinct else ""], order="deterministic")
        if self._closing or not (key in self._waiting or self._has_room(urgent=new.urgent)):
            self._drop(new.reason)
            return
        series = self._known.get(key)
        if series is None or time.time() - series.last > _SERIES_ENDS:
            named = {"name": _name(new.regarding["name"]), "namespace": new.regarding.get("namespace") or "default"}
            body = {
                **self._reporter,
                "apiVersion": EVENT.api_version,
                "kind": EVENT.kind,
                "metadata": named,
                "eventTime": rfc3339_micro(time.time()),
                **said,
                "note": new.note.encode()[:_NOTE].decode(errors="ignore"),
            }
            series = _Series(body, new.urgent)
        else:
            series.count += 1
            series.last = time.time()
        self._known[key] = self._waiting[key] = series
        self._more.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="events")

    def _has_room(self, *, urgent: bool) -> bool:
        """Whether one more series may wait; for an urgent one the oldest that is not urgent is dropped."""
        if len(self._waiting) < _WAITING:
            return True
        if not self._overflows:
            log.warning("%d events wait to be sent; further ones are dropped", len(self._waiting))
        self._overflows = True
        victim = next((key for key, series in self._waiting.items() if not series.urgent), None) if urgent else None
        if victim is None:
            return False
        self._drop(self._waiting.pop(victim).body["reason"])
        return True

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        if self._on_drop is not None:
            self._on_drop(reason)

    async def _run(self) -> None:
        """Send what waits, urgent ones first, until it is closed and nothing is left."""
        while self._waiting or not self._closing:
            self._overflows = self._overflows and bool(self._waiting)
            now = time.monotonic()
            due = [key for key, series in self._waiting.items() if self._closing or series.not_before <= now]
            if not due:
                # Wait for an occurrence, or for the first series that may be updated again
                first = min((series.not_before for series in self._waiting.values()), default=None)
                self._more.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), None if first is None else max(0.0, first - now))
                continue
            # Of the urgent ones, or else of all, the oldest
            key = min(due, key=lambda key: not self._waiting[key].urgent)
            self._next = max(self._next, now - _BURST / _PER_SECOND) + 1 / _PER_SECOND
            await asyncio.sleep(max(0.0, self._next - now))
            series = self._waiting.pop(key, None)
            if series is None:  # it had to make room meanwhile
                continue
            try:
                await self._send(series)
                self._backoff.reset()
            except ApiError as error:
                series.tries += 1
                passing = error.status in (NO_ANSWER, 429) or error.status >= 500
                if passing and series.tries < _TRIES:
                    self._waiting.setdefault(key, series)
                    await asyncio.sleep(max(self._backoff.next(), min(error.retry_after or 0.0, 30.0)))
                else:
                    log.warning("event %s was not accepted: %s", series.body["reason"], error)
                    self._drop(series.body["reason"])
            except Exception:
                log.exception("event %s was lost", series.body["reason"])
                self._drop(series.body["reason"])

    async def _send(self, series: _Series) -> None:
        """Write a series: as a new Event, or as the count of one that was written before."""
        named = series.body["metadata"]
        counted = {"series": {"count": series.count, "lastObservedTime": rfc3339_micro(series.last)}}
        if series.sent:
            path = EVENT.path(named["namespace"], named["name"])
            if await unless_absent(self._client.patch(path, counted)) is None:
                series.sent, series.count = False, 1  # the server has forgotten it; it begins again
                named = {**named, "name": _name(series.body["regarding"]["name"])}
                series.body = {**series.body, "eventTime": rfc3339_micro(time.time()), "metadata": named}
        if not series.sent:
            body = series.body if series.count == 1 else {**series.body, **counted}
            try:
                await self._client.create(EVENT.path(named["namespace"]), body)
            except ApiError as error:
                if error.reason != "AlreadyExists":  # an earlier try did arrive
                    raise
        series.sent, series.tries = True, 0
        series.not_before = time.monotonic() + _SERIES_PERIOD


def _name(of: str) -> str:
    return f"{of[:_NAME].rstrip('-.')}.{time.time_ns():x}"
