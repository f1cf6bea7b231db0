"""The HTTP side of a review: method, type, size, time and numbers, around the pure core."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache

from aiohttp import web

from webhook.admission.decode import uid_of
from webhook.admission.lookup import Context
from webhook.admission.webhook import HANDLERS, Phase, Reviewed, deny, refuse, review
from webhook.component_base.logs import LogWriter
from webhook.kube.client import ApiError
from webhook.policy.cel.program import AllowanceError
from webhook.serving.bodies import Bodies, EndedError, OversizedError
from webhook.serving.cluster_objects import ObjectSource
from webhook.serving.connections import Connections
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.responses import JsonResponse
from webhook.serving.review_log import review_line
from webhook.serving.review_process import ReviewProcess, ReviewProcessError

__all__ = ["ALLOWANCE", "ReviewHandler"]

log = logging.getLogger(__name__)

ALLOWANCE = 20_000_000.0
"""Nanoseconds that the expressions of a review may take, by their estimates, while the others wait."""
_AT_ONCE = 256 * 1024
"""Bytes of a review that are decoded while the others wait."""
_PARTS_AT_ONCE = 16 * 1024
"""Values of such a review. Small ones cost most: an empty map of three bytes takes as long as a text of a thousand."""
_LOOKUPS = 16
"""Reviews that ask the API server at a time."""
_TIMEOUT, _SHARE = 10.0, 0.8
"""Seconds if the query names none (the API server's own default) and at most, and the share that a review may take."""
_JSON = "application/json"
_PHASES: dict[str, Phase] = {"/mutate": "mutate", "/validate": "validate"}
_KNOWN = frozenset((group, resource) for _, group, resource, _ in HANDLERS)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class _RefusedError(Exception):
    """The request is answered without looking at its review."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ReviewHandler:
    """Answers the reviews of one server. `unready` says why it must not answer, or nothing."""

    def __init__(
        self,
        context: Callable[[], Context],
        source: ObjectSource,
        unready: Callable[[], str],
        metrics: AdmissionMetrics,
        lines: LogWriter,
        *,
        connections: Connections,
    ) -> None:
        self._context, self._source, self._unready = context, source, unready
        self._metrics, self._lines, self._connections = metrics, lines, connections
        self._bodies = Bodies(lambda reason: metrics.requests_ended.labels(reason).inc())
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._process = ReviewProcess()
        self.draining = False

    async def close(self) -> None:
        """End what was started for long reviews."""
        await self._process.close()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        began = time.perf_counter()
        path, _, query = request.raw_path.partition("?")
        phase = _PHASES.get(path)
        if phase is None:
            return web.Response(status=404, text="reviews go to /mutate and /validate\n")
        if request.method != "POST":
            return web.Response(status=405, text="a review is sent by POST\n", headers={"Allow": "POST"})
        protocol, answered = request.protocol, False
        self._connections.begin(protocol)
        try:
            reviewed = await self._within(phase, request, _budget(query))
            answered = reviewed.code == 200
        finally:
            self._connections.end(protocol, answered=answered)
        self._record(phase, reviewed, time.perf_counter() - began)
        response = JsonResponse(reviewed.body, reviewed.code)
        if self.draining or not request.content.is_eof():
            response.force_close()
        return response

    async def _within(self, phase: Phase, request: web.BaseRequest, seconds: float) -> Reviewed:
        """Answer a review, for so many seconds in all. Mostly everything is there and nothing has to be waited for."""
        try:
            self._admit(request)
            if not request.content.is_eof():
                return await self._wait(phase, request, seconds, None)
            body = request.content.read_nowait()
            reviewed = self._at_once(self._context(), phase, body)
            if reviewed is None or reviewed.answer.unsure:
                return await self._wait(phase, request, seconds, body)
        except _RefusedError as refused:
            return refuse(refused.code, refused.message)
        except web.RequestPayloadError as error:
            error.__traceback__ = None  # the stream keeps the error, and its traceback would keep the body
            return refuse(400, "the body is not encoded as its header says")
        except OversizedError as error:
            return _oversized(error)
        except EndedError as ended:
            return refuse(504 if ended.reason == "slow" else 503, str(ended))
        except TimeoutError:
            return refuse(504, f"the review was not finished within {seconds:g} s, its share of the timeout")
        return reviewed

    async def _wait(self, phase: Phase, request: web.BaseRequest, seconds: float, body: bytes | None) -> Reviewed:
        """Answer a review whose body is not whole yet (None), or that hinges on what the API server says."""
        deadline = asyncio.get_running_loop().time() + seconds
        peername = request.transport.get_extra_info("peername") if request.transport is not None else None
        async with self._bodies.waiting(str(peername[0]) if peername else "", deadline) as entry:
            if body is None:
                try:
                    body = await self._bodies.read(entry, request.content)
                except ConnectionError as error:  # an API server that gave up; there is nobody left to read the answer
                    error.__traceback__ = None  # the stream keeps the error, and its traceback would keep the body
                    raise _RefusedError(400, "the connection was closed before the body was complete") from None
            self._bodies.hold(entry, body)
            reviewed = await self._review(self._context(), phase, body)
            if reviewed.answer.unsure:
                async with self._lookups:
                    reviewed = await self._ask_and_repeat(phase, body, reviewed)
        return reviewed

    def _admit(self, request: web.BaseRequest) -> None:
        """Refuse what need not be read."""
        unready = self._unready()
        if unready:
            raise _RefusedError(503, f"giveway is not ready: {unready}")
        sent = request.headers.get("Content-Type", "")
        if sent != _JSON and sent.partition(";")[0].strip().lower() != _JSON:
            raise _RefusedError(415, f"Content-Type is {sent[:100]!r}; application/json was expected")

    async def _ask_and_repeat(self, phase: Phase, body: bytes, first: Reviewed) -> Reviewed:
        """Review again by what the API server says now, if the answer hinges on an object the cache may lack."""
        unsure = sorted(first.answer.unsure)
        try:
            lookup = await self._source.ask(unsure)
        except ApiError as error:
            names = ", ".join(f"{resource}/{name}" for resource, name in unsure)
            return refuse(503, f"the API server did not say whether there is {names}: {error}", first.uid)
        if lookup is None:
            return first
        for resource, _ in unsure:
            self._metrics.live_lookups.labels(resource).inc()
        return await self._review(self._context().with_lookup(lookup), phase, body)

    async def _review(self, context: Context, phase: Phase, body: bytes) -> Reviewed:
        """Answer a review; one that takes long in a process of its own, so that the others go on meanwhile."""
        at_once = self._at_once(context, phase, body)
        if at_once is not None:
            return at_once
        try:
            return await self._process.review(context, phase, body)
        except ReviewProcessError as error:
            raise _RefusedError(500, f"giveway failed on this review: {error}") from error

    def _at_once(self, context: Context, phase: Phase, body: bytes) -> Reviewed | None:
        """The answer, if it can be given before others would notice."""
        if len(body) > _AT_ONCE:
            return None
        # A body has at most so many values; texts that hold these characters count as more
        if len(body) > _PARTS_AT_ONCE and sum(map(body.count, (b",", b"{", b"["))) > _PARTS_AT_ONCE:
            return None
        try:
            return review(context, phase, body)
        except AllowanceError:
            return None

    def _record(self, phase: Phase, reviewed: Reviewed, seconds: float) -> None:
        if reviewed.error is not None:
            log.error("review %s failed", reviewed.uid, exc_info=reviewed.error)
        asked = reviewed.review
        known = asked is not None and asked.kind in _KNOWN
        namespace = ""
        if asked is not None and reviewed.answer.verdicts and self._source.lookup.namespace(asked.namespace):
            namespace = asked.namespace  # which only verdicts are counted by
        self._metrics.observe(phase, reviewed, seconds, known=known, namespace=namespace)
        self._lines.write(review_line(time.time(), phase, reviewed, seconds * 1000))


@lru_cache(256)
def _budget(query: str) -> float:
    """Seconds a review may take, by the `timeout` of its query (a Go duration)."""
    match = re.search(r"(?:^|&)timeout=([^&]{1,32})", query)
    parts = _DURATION.findall(match[1]) if match else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return _SHARE * (min(seconds, _TIMEOUT) if seconds > 0 else _TIMEOUT)


def _oversized(error: OversizedError) -> Reviewed:
    """A refusal, not an error: what passes by failurePolicy would pass unjudged by whoever makes it large enough."""
    uid = uid_of(error.beginning)
    if not uid:
        return refuse(413, f"the body is {error}, and it does not begin with the uid of an AdmissionReview")
    message = (
        f"the review of this request is {error}, so giveway refuses it unread; make the object smaller"
        " (in a review the characters < > & and control characters take six bytes each, and an update carries the"
        " object twice)"
    )
    return deny(uid, "size", message)
