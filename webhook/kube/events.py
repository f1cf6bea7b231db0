"""Events for the people who own the pods, through events.k8s.io/v1; telling must never disturb doing.

Occurrences of the same thing (regarding, related, type, reason, action) become one Event with a growing series, as
in client-go. What waits to be sent is bounded, sent at a bounded rate, retried a few times and then dropped; what is
dropped is counted. Urgent occurrences are sent first and dropped last.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

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
_BURST = 10
_TRIES = 5
_SAID = ("type", "reason", "action", "regarding", "related")
"""The fields that make two occurrences the same thing."""
_NOTE = 1024
_NAME = 230


class Occurrence(msgspec.Struct, frozen=True):
    """What happened to an object, in an Event's fields and CamelCase; if `distinct`, another note is another Event."""

    regarding: Reference
    related: Reference | None
    type: EventType
    reason: str
    action: str
    note: str
    urgent: bool = False
    distinct: bool = False


Recorder = Callable[[Occurrence], None]
"""Is told what happened to an object, and returns at once."""


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


class _Series:
    """One Event: what it says, how often it happened, what of that the server knows."""

    def __init__(self, said: dict[str, Any], *, urgent: bool) -> None:
        self.said, self.urgent = said, urgent
        self.not_before, self.tries = 0.0, 0
        self.begin()

    def begin(self) -> None:
        """Be a new Event, of one occurrence."""
        self.began = self.last = time.time()
        self.count, self.sent = 1, False
        regarding = self.said["regarding"]
        self.namespace = regarding.get("namespace") or "default"
        self.name = f"{regarding['name'][:_NAME].rstrip('-.')}.{time.time_ns():x}"


class EventRecorder:
    """Sends Events in the background of the running loop. `close()` it, so that the last ones get out.

    `reporting_controller` is a qualified name (`giveway.dev/reconciler`), `instance` says which of its processes.
    `dropped` counts the occurrences that nobody will read of; `on_drop` hears the reason of each.
    """

    def __init__(
        self, client: Client, reporting_controller: str, instance: str, on_drop: Callable[[str], object] = bool
    ) -> None:
        self.dropped = 0
        self._on_drop = on_drop
        self._client = client
        self._reporter = {
            "reportingController": reporting_controller,
            "reportingInstance": instance[:128],
        }
        self._known: Newest[bytes, _Series] = Newest(_REMEMBERED)
        """By what makes two occurrences the same thing."""
        self._waiting: dict[bytes, _Series] = {}
        self._next = 0.0
        self._backoff = Backoff()
        self._more = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def event(self, occurrence: Occurrence) -> None:
        """Note an occurrence and return at once; never raises. What is not `urgent` makes room for what is."""
        try:
            said: dict[str, Any] = {field: part for field in _SAID if (part := getattr(occurrence, field))}
            note = occurrence.note if occurrence.distinct else ""
            key = msgspec.json.encode([said, note], order="deterministic")
            waits = key in self._waiting
            if self._closing or not (waits or self._has_room(urgent=occurrence.urgent)):
                self._drop(occurrence.reason)
                return
            series = self._known.get(key)
            if series is None or time.time() - series.last > _SERIES_ENDS:
                said["note"] = occurrence.note.encode()[:_NOTE].decode(errors="ignore")
                series = _Series(said, urgent=occurrence.urgent)
            else:
                series.count += 1
                series.last = time.time()
            self._known[key] = self._waiting[key] = series
            self._more.set()
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run(), name="events")
        except Exception:
            log.exception("event %s regarding %s was lost", occurrence.reason, occurrence.regarding)
            self._drop(occurrence.reason)

    async def close(self, deadline: float = 5.0) -> None:
        """Send what waits, for `deadline` seconds at most, then stop."""
        self._closing = True
        self._more.set()
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, deadline)
        if self._waiting:
            log.warning("%d events were not sent before the end", len(self._waiting))
        while self._waiting:
            self._drop(self._waiting.popitem()[1].said["reason"])

    def _has_room(self, *, urgent: bool) -> bool:
        """Whether one more series may wait; an urgent one pushes out the oldest that is not."""
        if len(self._waiting) < _WAITING:
            return True
        for key, series in self._waiting.items():
            if urgent and not series.urgent:
                del self._waiting[key]
                self._drop(series.said["reason"])
                return True
        return False

    def _drop(self, reason: str) -> None:
        if not self.dropped:
            log.warning("an event %s is dropped; further ones are counted only", reason)
        self.dropped += 1
        self._on_drop(reason)

    async def _run(self) -> None:
        """Send what waits, urgent ones first, until it is closed and nothing is left."""
        while self._waiting or not self._closing:
            now = time.monotonic()
            due = list(self._waiting)
            if not self._closing:
                due = [key for key in due if self._waiting[key].not_before <= now]
            if not due:
                # Wait for an occurrence, or for the first series that may be updated again
                times = [series.not_before for series in self._waiting.values()]
                patience = max(0.0, min(times) - now) if times else None
                self._more.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), patience)
                continue
            # Of the urgent ones, or else of all, the oldest
            key = min(due, key=lambda key: not self._waiting[key].urgent)
            self._next = max(self._next, now - _BURST / _PER_SECOND) + 1 / _PER_SECOND
            await asyncio.sleep(max(0.0, self._next - now))
            series = self._waiting.pop(key, None)
            if series is not None:  # it had to make room meanwhile
                await self._try(key, series)

    async def _try(self, key: bytes, series: _Series) -> None:
        """Write a series; let it wait again if that failed for now, else drop it."""
        reason = series.said["reason"]
        try:
            await self._send(series)
            self._backoff.reset()
        except ApiError as error:
            series.tries += 1
            passing = error.status in (NO_ANSWER, 429) or error.status >= 500
            if passing and series.tries < _TRIES:
                self._waiting.setdefault(key, series)
                asked = min(error.retry_after or 0.0, 30.0)
                await asyncio.sleep(max(self._backoff.next(), asked))
            else:
                log.warning("event %s was not accepted: %s", reason, error)
                self._drop(reason)
        except Exception:
            log.exception("event %s was lost", reason)
            self._drop(reason)

    async def _send(self, series: _Series) -> None:
        """Write a series: as a new Event, or as the count of one that was written before."""
        counted = {"series": {"count": series.count, "lastObservedTime": rfc3339_micro(series.last)}}
        if series.sent:
            path = EVENT.path(series.namespace, series.name)
            if await unless_absent(self._client.patch(path, counted)) is None:
                series.begin()  # the server has forgotten it
        if not series.sent:
            body = {
                **self._reporter,
                "apiVersion": EVENT.api_version,
                "kind": EVENT.kind,
                "metadata": {"name": series.name, "namespace": series.namespace},
                "eventTime": rfc3339_micro(series.began),
                **series.said,
                **(counted if series.count > 1 else {}),
            }
            try:
                await self._client.create(EVENT.path(series.namespace), body)
            except ApiError as error:
                if error.reason != "AlreadyExists":  # an earlier try did arrive
                    raise
        series.sent, series.tries = True, 0
        series.not_before = time.monotonic() + _SERIES_PERIOD
