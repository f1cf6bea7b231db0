"""The HTTP side of a review: method, type, size, time, the log line, the numbers, and the response."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, get_args

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from webhook.admission.context import Context
from webhook.admission.review import VIOLATED, Json, uid_of
from webhook.admission.webhook import Phase, Reviewed, deny, refuse, review
from webhook.component_base.logs import LogWriter
from webhook.kube.bounded import bounded, bounded_cache
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339_micro
from webhook.policy.cel.program import AllowanceError
from webhook.serving.bodies import BODY_LIMIT, Bodies, BodyError, OversizedError
from webhook.serving.cluster_objects import CachedObjects
from webhook.serving.connections import Connection
from webhook.serving.fair_turns import FairTurns, TurnsOfRound
from webhook.serving.metrics import AdmissionMetrics

log = logging.getLogger(__name__)

ALLOWANCE = 2_500_000.0
"""Nanoseconds that the expressions of a review may take, by their estimates, while the others wait."""
_AT_ONCE = 32 * 1024
"""Bytes of a review that are decoded while the others wait."""
_VALUES_AT_ONCE = 2048
"""Values of such a review. Small ones cost most: an empty map of three bytes takes as long as a text of a thousand."""
_A_ROUND = 32
"""Such reviews that are answered in one round of the event loop; more wait for the next ones, address by address."""
_TIMEOUT, _SHARE = 10.0, 0.8
"""Seconds if the query names none (the API server's own default) and at most, and the share that a review may take."""
_JSON = "application/json"
_PHASES: dict[str, Phase] = {f"/{phase}": phase for phase in get_args(Phase)}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_TOO_LARGE = (
    f"the review of this request is larger than {BODY_LIMIT} bytes, so giveway refuses it unread; make the object"
    " smaller (in a review the characters < > & and control characters take six bytes each, and an update carries the"
    " object twice)"
)
_NO_UID = f"the body is larger than {BODY_LIMIT} bytes, and it does not begin with the uid of an AdmissionReview"
_BROKEN = "the body is not encoded as its header says, or the client has gone before it was whole"


class Received(NamedTuple):
    """A review as it came."""

    address: str
    phase: Phase
    body: bytes


class ReviewHandler:
    """Answers the reviews of one server, by `context`; until there is one, `unready` says why."""

    def __init__(
        self, source: CachedObjects, unready: Callable[[], str], metrics: AdmissionMetrics, lines: LogWriter
    ) -> None:
        self._source, self._unready = source, unready
        self._metrics, self._lines = metrics, lines
        self._bodies = Bodies(lambda reason: metrics.requests_ended.labels(reason).inc())
        self._ordinary, self._dear, self._dearest = TurnsOfRound(_A_ROUND), FairTurns(1), FairTurns(1)
        source.looked_up = lambda resource: metrics.live_lookups.labels(resource).inc()
        self.context: Context | None = None
        """What reviews are judged by; None until it is known which policies are in force."""
        self.draining = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        began, connection = time.perf_counter(), request.protocol
        path, _, query = request.raw_path.partition("?")
        phase = _PHASES.get(path)
        if phase is None:
            return web.Response(status=404, text=f"reviews go to {' or '.join(_PHASES)}\n")
        if request.method != "POST":
            return web.Response(status=405, text="a review is sent by POST\n", headers={"Allow": "POST"})
        assert isinstance(connection, Connection)
        reviewed = await self._answer(request, connection, phase, query)
        groups = connection.owner
        groups.put(connection, groups.idle if reviewed.answer.code == 200 else groups.new)
        self._tell(phase, reviewed, time.perf_counter() - began)
        stays = request.keep_alive and request.content.is_eof() and not self.draining
        return JsonResponse(reviewed.body, reviewed.answer.code, stays=stays)

    async def _answer(self, request: web.BaseRequest, connection: Connection, phase: Phase, query: str) -> Reviewed:
        """Answer a review: most have come whole and are answered at once; others have so much time."""
        context, reason = self.context, self._source.unheard()
        if reason or context is None:
            return refuse(503, f"giveway is not ready: {reason or self._unready()}")
        sent = request.headers.get("Content-Type", "")
        if sent != _JSON and sent.partition(";")[0].strip().lower() != _JSON:
            return refuse(415, f"Content-Type is {sent[:100]!r}; application/json was expected")
        content, body, reviewed = request.content, None, None
        try:
            if content.is_eof() and content.total_bytes <= _AT_ONCE and self._ordinary.take():
                body = content.read_nowait()
                reviewed = _at_once(context, phase, body)
                if reviewed is not None and not reviewed.answer.unsure:
                    return reviewed
            connection.owner.put(connection, connection.owner.busy)
            async with self._bodies.held(connection.address, _budget(query)) as held:
                if body is None:
                    body = await self._bodies.read(held, content)
                    came = Received(connection.address, phase, body)
                    reviewed = await self._review(came, context)
                else:
                    self._bodies.charge(held, len(body))
                    came = Received(connection.address, phase, body)
                    reviewed = reviewed or await self._review_dear(came, context)
                return await self._settle(came, context, reviewed)
        except OversizedError as error:
            # A refusal, not an error: what passes by failurePolicy would pass unjudged by whoever makes it large enough
            uid = uid_of(error.args[0])
            return deny(uid, "size", _TOO_LARGE) if uid else refuse(413, _NO_UID)
        except BodyError as error:
            return refuse(*error.args)
        except (web.RequestPayloadError, ConnectionError) as error:
            # The stream keeps the error, and its traceback would keep the body
            error.__traceback__ = None
            return refuse(400, _BROKEN)

    async def _settle(self, came: Received, context: Context, reviewed: Reviewed) -> Reviewed:
        """Answer again by what the API server says of objects that the cache may lack."""
        unsure = sorted(reviewed.answer.unsure)
        if not unsure:
            return reviewed
        namespace = reviewed.asked.namespace if reviewed.asked else ""
        # It has a copy of the object, which nobody needs while the API server is asked
        reviewed.asked = None
        try:
            lookup = await self._source.ask(unsure, (came.address, bounded(namespace)))
        except ApiError as error:
            asked = (f"{resource}/{bounded(name)}" for resource, name in unsure)
            names = ", ".join(asked)
            text = f"the API server did not say whether there is {names}"
            return refuse(503, f"{text}: {error}", reviewed.uid)
        return await self._review(came, context.changed(lookup=lookup))

    async def _review(self, came: Received, context: Context) -> Reviewed:
        """Answer a review by what is known, when it is its turn."""
        if len(came.body) <= _AT_ONCE:
            await self._ordinary.enter(came.address)
            reviewed = _at_once(context, came.phase, came.body)
            if reviewed is not None:
                return reviewed
        return await self._review_dear(came, context)

    async def _review_dear(self, came: Received, context: Context) -> Reviewed:
        """Answer a dear review beside the others; policies are the dearest."""
        with suppress(AllowanceError):
            return await _beside(self._dear, came, context.changed(allowance=math.inf))
        return await _beside(self._dearest, came, context.changed(allowance=None))

    def _tell(self, phase: Phase, reviewed: Reviewed, seconds: float) -> None:
        """Log and count an answer."""
        if reviewed.error is not None:
            log.error("review %s failed", reviewed.uid, exc_info=reviewed.error)
        self._metrics.observe(phase, reviewed, seconds, self._source.lookup.namespace)
        self._lines.write(_line(phase, reviewed, seconds))


class JsonResponse(web.StreamResponse):
    """A body of JSON, sent in one piece; the connection `stays` open after it, or not.

    `web.Response` sends the same, but asks for cookies, chunks and hooks, which takes a tenth of an ordinary review.
    """

    def __init__(self, body: bytes, status: int, *, stays: bool) -> None:
        super().__init__(status=status)
        self.json, self.stays = body, stays

    @property
    def keep_alive(self) -> bool:
        """What aiohttp asks after it has been sent."""
        return self.stays

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send everything, and wait for nothing: a client that takes nothing is ended."""
        head = _head(self.status, self.stays, int(time.time()))
        await request.writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(self.json), self.json))
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""


@lru_cache(64)
def _head(status: int, stays: bool, second: int) -> bytes:
    """Status line and headers, all but Content-Length; `second` is the time since the epoch."""
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {_JSON}",
        f"Connection: {'keep-alive' if stays else 'close'}",
        f"Date: {formatdate(second, usegmt=True)}",
        "",
    )
    return "\r\n".join(lines).encode()


def _at_once(context: Context, phase: Phase, body: bytes) -> Reviewed | None:
    """The answer if the review is not dear. A value takes two bytes at least."""
    if len(body) > 2 * _VALUES_AT_ONCE and sum(map(body.count, (b",", b"{", b"["))) > _VALUES_AT_ONCE:
        return None
    try:
        return review(context, phase, body)
    except AllowanceError:
        return None


async def _beside(turns: FairTurns, came: Received, context: Context) -> Reviewed:
    """Answer a review in a thread, one at a time, by address; a thread must end before the next."""
    await turns.enter(came.address)
    work = asyncio.get_running_loop().run_in_executor(None, review, context, came.phase, came.body)
    work.add_done_callback(lambda _: turns.leave())
    return await asyncio.shield(work)


@bounded_cache(256, 256)
def _budget(query: str) -> float:
    """Seconds a review may take, by the `timeout` of its query (a Go duration)."""
    match = re.search(r"(?:^|&)timeout=([^&]{1,32})", query)
    parts = _DURATION.findall(match[1]) if match else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return _SHARE * (min(seconds, _TIMEOUT) or _TIMEOUT)


def _line(phase: Phase, reviewed: Reviewed, seconds: float) -> Json:
    """The line of a review: who asked for what, and what became of it; never the object itself."""
    answer, asked = reviewed.answer, reviewed.asked
    line: Json = {"time": rfc3339_micro(time.time()), "level": "info", "message": "review"}
    line |= {"phase": phase, "uid": reviewed.uid}
    told: Json = {"verdict": answer.verdict, "ms": round(seconds * 1000, 3)}
    if asked is not None:
        told |= {"user": asked.user.username, "operation": asked.operation}
        told["dryRun"] = asked.dry_run
        told["resource"] = "/".join(filter(None, (asked.resource, asked.subresource)))
        namespace, name = asked.namespace, asked.shown_name
        told["object"] = f"{namespace}/{name}" if namespace else name
    if answer.code != 200:
        told |= {"code": answer.code, "error": answer.message}
    elif answer.verdicts:
        told |= {field: ",".join(answer.ids.get(field, ())) for field in VIOLATED}
    return line | {field: value for field, value in told.items() if value}
