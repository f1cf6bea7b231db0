"""The HTTP side of a review: method, type, size, time, the log line, the numbers, and the response."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from webhook.admission.context import Context
from webhook.admission.undecoded import uid_of
from webhook.admission.webhook import Phase, Reviewed, deny, refuse, review
from webhook.component_base.logs import LogLine, LogWriter
from webhook.kube.bounded import bounded, bounded_cache
from webhook.kube.errors import ApiError
from webhook.policy.cel.program import AllowanceError
from webhook.serving.bodies import Bodies, EndedError, OversizedError
from webhook.serving.cluster_objects import ObjectSource
from webhook.serving.connections import Connection, Connections
from webhook.serving.fair_queue import Flow
from webhook.serving.http_connection import Answered, Handler
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.responses import JsonResponse, response
from webhook.serving.review_process import ReviewProcess, ReviewProcessError
from webhook.serving.turns import Turns

log = logging.getLogger(__name__)

ALLOWANCE = 20_000_000.0
"""Nanoseconds that the expressions of a review may take, by their estimates, while the others wait."""
_AT_ONCE = 256 * 1024
"""Bytes of a review that are decoded while the others wait."""
_PARTS_AT_ONCE = 16 * 1024
"""Values of such a review. Small ones cost most: an empty map of three bytes takes as long as a text of a thousand."""
_WHILE_BUSY = 8
"""While others wait for their turn, the last three bounds are so many times lower."""
_SMALL = 16 * 1024
"""Bytes of a review that waits for its turn without being counted: all connections hold as much as two large ones."""
_REVIEW_SECONDS, _BYTE_SECONDS = 0.0001, 1e-7
"""What a review takes of this process, about: in any case, and for each byte."""
_TIMEOUT, _SHARE = 10.0, 0.8
"""Seconds if the query names none (the API server's own default) and at most, and the share that a review may take."""
_JSON = "application/json"
_PHASES: dict[str, Phase] = {f"/{phase}": phase for phase in get_args(Phase)}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class _RefusedError(Exception):
    """The request is answered without looking at its review."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _Asked:
    """A review that is asked for, and how far it has come."""

    __slots__ = ("began", "body", "connection", "phase", "query", "reviewed")

    def __init__(self, connection: Connection, phase: Phase, query: str) -> None:
        self.began = time.perf_counter()
        self.connection, self.phase, self.query = connection, phase, query
        self.body: bytes | None = None
        """None as long as it has not been taken from the connection."""
        self.reviewed: Reviewed | None = None
        """The answer as far as the caches know; None if it is not known, or takes long."""


class ReviewHandler:
    """Answers the reviews of one server, by `context`; until there is one, `unready` says why."""

    def __init__(
        self,
        source: ObjectSource,
        unready: Callable[[], str],
        metrics: AdmissionMetrics,
        lines: LogWriter,
        *,
        connections: Connections,
        turns: Turns,
    ) -> None:
        self._source, self._unready = source, unready
        self._metrics, self._lines, self._connections = metrics, lines, connections
        self._turns = turns
        self._bodies = Bodies(lambda reason: metrics.requests_ended.labels(reason).inc())
        source.looked_up = lambda resource: metrics.live_lookups.labels(resource).inc()
        self._process = ReviewProcess()
        self.context: Context | None = None
        """What reviews are judged by; None until it is known which policies are in force."""
        self.draining = False

    async def close(self) -> None:
        """End what was started for long reviews."""
        await self._process.close()

    def at_once(self, connection: Connection, message: RawRequestMessage, content: StreamReader) -> Answered | Handler:
        """Answer a review that has come whole, if it need not wait; or what goes on with it."""
        path, _, query = message.path.partition("?")
        phase, context = _PHASES.get(path), self.context
        if phase is None or message.method != "POST" or message.headers.get("Content-Type") != _JSON:
            return self
        if context is None or connection.group is None or self._turns.busy or self._source.missing():
            return self
        asked = _Asked(connection, phase, query)
        asked.body = content.read_nowait()
        asked.reviewed = reviewed = _at_once(context, phase, asked.body)
        if reviewed is None or reviewed.answer.unsure:
            self._connections.begin(connection)
            return partial(self._answer, asked)
        stays = self._connections.answered_at_once(connection, verdict=reviewed.code == 200)
        self._tell(asked, reviewed)
        stays = stays and not (self.draining or message.should_close)
        return response(reviewed.body, reviewed.code, message.version, keep_alive=stays), stays

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path, _, query = request.raw_path.partition("?")
        phase = _PHASES.get(path)
        if phase is None:
            return web.Response(status=404, text=f"reviews go to {' or '.join(_PHASES)}\n")
        if request.method != "POST":
            return web.Response(status=405, text="a review is sent by POST\n", headers={"Allow": "POST"})
        connection = self._connections.served_by(request.protocol)
        if connection is None:
            return web.Response(status=503, text="the connection has been ended\n")
        asked = _Asked(connection, phase, query)
        self._connections.begin(connection)
        return await self._answer(asked, request)

    async def _answer(self, asked: _Asked, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a review that may have to wait."""
        verdict, stays = False, False
        try:
            reviewed = await self._within(asked, request, _budget(asked.query))
            verdict = reviewed.code == 200
        finally:
            stays = self._connections.answered(asked.connection, verdict=verdict)
        self._tell(asked, reviewed)
        answer = JsonResponse(reviewed.body, reviewed.code)
        if self.draining or not stays or not request.content.is_eof():
            answer.force_close()
        return answer

    def _tell(self, asked: _Asked, reviewed: Reviewed) -> None:
        """Log and count an answer."""
        seconds = time.perf_counter() - asked.began
        if reviewed.error is not None:
            log.error("review %s failed", reviewed.uid, exc_info=reviewed.error)
        facts, answer = reviewed.facts, reviewed.answer
        namespace = ""  # which only violations are counted by
        if facts is not None and answer.verdicts and any(verdict.outcome != "allow" for verdict in answer.verdicts):
            namespace = facts.namespace if self._source.lookup.namespace(facts.namespace) else ""
        outcome = answer.verdict
        self._metrics.observe(asked.phase, reviewed, outcome, seconds, namespace)
        self._lines.write(_line(time.time(), asked.phase, reviewed, outcome, seconds * 1000))

    async def _within(self, asked: _Asked, request: web.BaseRequest, seconds: float) -> Reviewed:
        """Answer a review, for so many seconds in all. Mostly everything is there and nothing has to be waited for."""
        missing = self._source.missing()
        if missing or self.context is None:
            reason = f"nothing heard yet of {', '.join(missing)}" if missing else self._unready()
            return refuse(503, f"giveway is not ready: {reason}")
        sent = request.headers.get("Content-Type", "")
        if sent != _JSON and sent.partition(";")[0].strip().lower() != _JSON:
            return refuse(415, f"Content-Type is {sent[:100]!r}; application/json was expected")
        try:
            if asked.body is not None or not request.content.is_eof():
                return await self._wait(asked, request, seconds)
            asked.body = body = request.content.read_nowait()
            flow = asked.connection.flow
            if not self._turns.busy:
                reviewed = self._turns.do(flow, _at_once, self.context, asked.phase, body)
            elif len(body) <= _SMALL:
                reviewed = await self._in_turn(flow, self.context, asked.phase, body)
            else:
                return await self._wait(asked, request, seconds)
            if reviewed is None or reviewed.answer.unsure:
                asked.reviewed = reviewed
                return await self._wait(asked, request, seconds)
        except _RefusedError as refused:
            return refuse(refused.code, refused.message)
        except web.RequestPayloadError as error:
            error.__traceback__ = None  # the stream keeps the error, and its traceback would keep the body
            return refuse(400, "the body is not encoded as its header says")
        except OversizedError as error:
            # A refusal, not an error: what passes by failurePolicy would pass unjudged by whoever makes it large enough
            uid = uid_of(error.beginning)
            if not uid:
                return refuse(413, f"the body is {error}, and it does not begin with the uid of an AdmissionReview")
            message = (
                f"the review of this request is {error}, so giveway refuses it unread; make the object smaller"
                " (in a review the characters < > & and control characters take six bytes each, and an update carries"
                " the object twice)"
            )
            return deny(uid, "size", message)
        except EndedError as ended:
            return refuse(504 if ended.reason == "slow" else 503, str(ended))
        except TimeoutError:
            return refuse(504, f"the review was not finished within {seconds:g} s, its share of the timeout")
        return reviewed

    async def _wait(self, asked: _Asked, request: web.BaseRequest, seconds: float) -> Reviewed:
        """Answer a review that has to wait: for its body, for its turn, or for what the API server says."""
        deadline = asyncio.get_running_loop().time() + seconds
        flow, phase, body, reviewed = asked.connection.flow, asked.phase, asked.body, asked.reviewed
        async with self._bodies.waiting(flow.peer, deadline) as entry:
            if body is None and request.content.is_eof():
                body = request.content.read_nowait()
            elif body is None:
                try:
                    body = await self._bodies.read(entry, request.content)
                except ConnectionError as error:  # an API server that gave up; there is nobody left to read the answer
                    error.__traceback__ = None  # the stream keeps the error, and its traceback would keep the body
                    raise _RefusedError(400, "the connection was closed before the body was complete") from None
            self._bodies.hold(entry, body)
            assert self.context is not None
            if reviewed is None:
                reviewed = await self._review(flow, self.context, phase, body)
            unsure = sorted(reviewed.answer.unsure)
            if not unsure:
                return reviewed
            # The answer hinges on objects the cache may lack: review again by what the API server says now
            try:
                lookup = await self._source.ask(unsure, flow.within(reviewed.facts.namespace if reviewed.facts else ""))
            except ApiError as error:
                names = ", ".join(f"{resource}/{bounded(name)}" for resource, name in unsure)
                message = f"the API server did not say whether there is {names}: {error}"
                return refuse(503, message, reviewed.uid)
            if lookup is None:
                return reviewed
            return await self._review(flow, self.context.with_lookup(lookup), phase, body, begun=False)

    async def _review(self, flow: Flow, context: Context, phase: Phase, body: bytes, *, begun: bool = True) -> Reviewed:
        """Answer a review; one that takes long in a process of its own, so that the others go on meanwhile."""
        at_once = await self._in_turn(flow, context, phase, body, begun=begun)
        if at_once is not None:
            return at_once
        try:
            return await self._process.review(flow, context, phase, body)
        except ReviewProcessError as error:
            raise _RefusedError(500, f"giveway failed on this review: {error}") from error

    async def _in_turn(
        self, flow: Flow, context: Context, phase: Phase, body: bytes, *, begun: bool = True
    ) -> Reviewed | None:
        """The answer, when it is the connection's turn, if it can be given before others would notice."""
        divisor = 1
        if self._turns.contended:
            divisor, context = _WHILE_BUSY, context.with_allowance(ALLOWANCE / _WHILE_BUSY)
        work = partial(_at_once, context, phase, body, divisor)
        return await self._turns.run(flow, work, _REVIEW_SECONDS + len(body) * _BYTE_SECONDS, begun=begun)


def _at_once(context: Context, phase: Phase, body: bytes, divisor: int = 1) -> Reviewed | None:
    """The answer, if it can be given before others would notice."""
    if len(body) > _AT_ONCE // divisor:
        return None
    # A body has at most so many values; texts that hold these characters count as more
    most = _PARTS_AT_ONCE // divisor
    if len(body) > most and sum(map(body.count, (b",", b"{", b"["))) > most:
        return None
    try:
        return review(context, phase, body)
    except (AllowanceError, MemoryError):
        return None


@bounded_cache(256, 256)
def _budget(query: str) -> float:
    """Seconds a review may take, by the `timeout` of its query (a Go duration)."""
    match = re.search(r"(?:^|&)timeout=([^&]{1,32})", query)
    parts = _DURATION.findall(match[1]) if match else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return _SHARE * (min(seconds, _TIMEOUT) if seconds > 0 else _TIMEOUT)


class ReviewLine(LogLine):
    """The line of one review: who asked for what, and what became of it; never the object itself."""

    phase: str
    uid: str
    verdict: str
    ms: float
    user: str = ""
    operation: str = ""
    resource: str = ""
    object: str = ""
    dry_run: bool = False
    rule: str = ""
    warned: str = ""
    would_deny: str = ""
    excepted: str = ""
    code: int = 200
    error: str = ""


def _line(now: float, phase: Phase, reviewed: Reviewed, verdict: str, milliseconds: float) -> ReviewLine:
    """The line of a review; `now` in seconds since the epoch."""
    answer, asked = reviewed.answer, reviewed.facts
    line = ReviewLine(now, "info", "review", phase, reviewed.uid, verdict, round(milliseconds * 1000) / 1000)
    if asked is not None:
        line.user, line.operation, line.dry_run = asked.user, asked.operation, asked.dry_run
        line.resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        line.object = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
    if answer.code != 200:
        line.code, line.error = answer.code, answer.message
    elif answer.verdicts:
        line.rule, line.warned = ",".join(answer.rules), ",".join(answer.warned)
        line.would_deny, line.excepted = ",".join(answer.would_deny), ",".join(answer.excepted)
    return line
