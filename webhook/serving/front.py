"""The HTTP side of a review: method, type, size, time and numbers, around the pure core."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache

from aiohttp import web
from multidict import CIMultiDict

from webhook.admission.lookup import Context
from webhook.admission.webhook import HANDLERS, Phase, Reviewed, refuse, review
from webhook.kube.client import ApiError
from webhook.serving.cluster import Source
from webhook.serving.logs import Lines, review_line
from webhook.serving.metrics import Metrics

__all__ = ["BODY_LIMIT", "CONCURRENT", "Front"]

log = logging.getLogger(__name__)

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes; the API server itself takes objects of up to 3 MB, and an UPDATE carries two."""
CONCURRENT = 16
"""Reviews that wait at a time, for their body or for the API server: what bodies take of the memory is bounded."""
_TIMEOUT, _SHARE = 10.0, 0.8
"""Seconds where the query names none (the API server's own default), and the share of it that a review may take."""
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


class Front:
    """Answers the reviews of one server. `unready` says why it must not answer, or nothing."""

    def __init__(
        self,
        context: Callable[[], Context],
        source: Source,
        unready: Callable[[], str],
        metrics: Metrics,
        lines: Lines,
    ) -> None:
        self._context, self._source, self._unready = context, source, unready
        self._metrics, self._lines = metrics, lines
        self._slots = asyncio.Semaphore(CONCURRENT)
        self.draining = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        began = time.perf_counter()
        path, _, query = request.raw_path.partition("?")
        phase = _PHASES.get(path)
        if phase is None:
            return web.Response(status=404, text="reviews go to /mutate and /validate\n")
        if request.method != "POST":
            return web.Response(status=405, text="a review is sent by POST\n", headers={"Allow": "POST"})
        reviewed = await self._within(phase, request, _budget(query))
        self._record(phase, reviewed, time.perf_counter() - began)
        return self._respond(reviewed)

    async def _within(self, phase: Phase, request: web.BaseRequest, seconds: float) -> Reviewed:
        """Wait for what is not there yet, for so many seconds in all and in a slot; mostly all is there."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            if request.content.is_eof():
                body = await self._body(request)
            else:
                async with asyncio.timeout_at(deadline), self._slots:
                    body = await self._body(request)
            reviewed = review(self._context(), phase, body)
            if reviewed.answer.unsure:
                async with asyncio.timeout_at(deadline), self._slots:
                    reviewed = await self._ask_and_repeat(phase, body, reviewed)
        except _RefusedError as refused:
            return refuse(refused.code, refused.message)
        except TimeoutError:
            return refuse(504, f"the review was not finished within {seconds:g} s, its share of the timeout")
        return reviewed

    async def _body(self, request: web.BaseRequest) -> bytes:
        unready = self._unready()
        if unready:
            raise _RefusedError(503, f"giveway is not ready: {unready}")
        sent = request.headers.get("Content-Type", "")
        if sent != _JSON and sent.partition(";")[0].strip().lower() != _JSON:
            raise _RefusedError(415, f"Content-Type is {sent!r}; application/json was expected")
        if (request.content_length or 0) > BODY_LIMIT:
            raise _RefusedError(413, f"the body is larger than {BODY_LIMIT} bytes")
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _RefusedError(413, f"the body is larger than {BODY_LIMIT} bytes") from None
        except ConnectionError as error:  # an API server that gave up; there is nobody left to read the answer
            error.__traceback__ = None  # the stream keeps the error, and its traceback would keep the body
            raise _RefusedError(400, "the connection was closed before the body was complete") from None

    async def _ask_and_repeat(self, phase: Phase, body: bytes, first: Reviewed) -> Reviewed:
        """Review again by what the API server says now, where the answer hinges on an object the cache may lack."""
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
        return review(self._context().with_lookup(lookup), phase, body)

    def _record(self, phase: Phase, reviewed: Reviewed, seconds: float) -> None:
        if reviewed.error is not None:
            log.error("review %s failed", reviewed.uid, exc_info=reviewed.error)
        asked = reviewed.review
        self._metrics.observe(phase, reviewed, seconds, known=asked is not None and asked.kind in _KNOWN)
        self._lines.write(review_line(time.time(), phase, reviewed, seconds * 1000))

    def _respond(self, reviewed: Reviewed) -> web.Response:
        headers = CIMultiDict({"Content-Type": _JSON})
        response = web.Response(body=reviewed.body, status=reviewed.code, headers=headers)
        if self.draining or reviewed.code == 413:
            response.force_close()
        return response


@lru_cache(256)
def _budget(query: str) -> float:
    """Seconds a review may take, by the `timeout` of its query (a Go duration)."""
    match = re.search(r"(?:^|&)timeout=([^&]{1,32})", query)
    parts = _DURATION.findall(match[1]) if match else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return _SHARE * (seconds if 0 < seconds <= 30 else _TIMEOUT)
