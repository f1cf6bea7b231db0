"""The webhook server: TLS listener, probes, reload of certificate and policies, readiness, graceful end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import BinaryIO, Protocol, Self

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.admission.lookup import Context
from webhook.kube.supervision import Supervisor
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model import Policies
from webhook.registration.keeper import Keeper
from webhook.serving import tls
from webhook.serving.cluster import Source
from webhook.serving.connections import Connections, most_connections
from webhook.serving.front import ALLOWANCE, Front
from webhook.serving.kept import KeptPolicies
from webhook.serving.listener import Listener, bind
from webhook.serving.logs import Handler, Lines
from webhook.serving.metrics import Metrics
from webhook.serving.options import LogFormat, Options
from webhook.serving.plain import plain_port
from webhook.serving.policies import PolicyFiles
from webhook.serving.probes import Check, probes
from webhook.serving.watching import Follower

__all__ = ["Companion", "Server"]

log = logging.getLogger(__name__)


_http_log = logging.getLogger("webhook.http")
_IDLE_SECONDS = 120.0
"""Longer than an API server keeps an idle connection (90 s), so that it is not closed under a request on its way."""
_READ_AHEAD = 16 * 1024
"""Bytes of a body, twice, that are read of a connection before its request asks for them."""


class Companion(Protocol):
    """What shares the process with the server: it adds to readiness and hears of new policies."""

    def checks(self) -> list[Check]:
        """What it adds to readiness."""

    def use(self, policies: Policies) -> None:
        """Take other policies into use."""


class Server:
    """One webhook server. Start it with `async with`; it serves until it is left.

    `source` says what is known of the cluster. Policies come from `options.policies`, or are given as an `engine`.
    Entering raises TlsError, PolicyError or OSError if certificate, policies or ports are not usable. `background`
    holds, by name, what is kept running meanwhile; add to it before entering.
    """

    def __init__(
        self,
        options: Options,
        source: Source,
        stream: BinaryIO,
        *,
        engine: Engine | None = None,
        log_format: LogFormat = "json",
    ) -> None:
        self.companion: Companion | None = None
        self.health_port = options.health_port
        self._private = AsyncExitStack()
        self.kept_policies: KeptPolicies | None = None
        """Where the policies in force are kept; set it before entering."""
        self.options, self.source = options, source
        self.metrics = Metrics()
        self.lines = Lines(stream, log_format, self.metrics.lines_dropped.inc)
        self._handler = Handler(self.lines)
        self._given = engine or Engine(Policies())
        self._files: PolicyFiles | None = None
        self._serving: tls.Serving | None = None
        self._tls_problem = ""
        self._draining = False
        self._context = self._judging(self._given)
        self._follower = Follower(options.poll_interval)
        self.supervisor = Supervisor(lambda name: self.metrics.task_failures.labels(name).inc())
        self.background: dict[str, Callable[[], Awaitable[object]]] = {
            "cluster": source.run,
            "files": self._follower.run,
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper: Keeper | None = None
        self._connections = Connections(
            most_connections(), lambda reason: self.metrics.connections_closed.labels(reason).inc()
        )
        self.front = Front(
            lambda: self._context, source, self._unready, self.metrics, self.lines, connections=self._connections
        )

    @property
    def policies(self) -> Policies:
        """The policies in force."""
        return self._context.engine.policies

    @property
    def policies_problem(self) -> str:
        """Why the policy files are not in use; empty if they are."""
        return self._files.problem if self._files is not None else ""

    @property
    def certificate(self) -> tls.Serving | None:
        """The certificate in use; None before the server is entered."""
        return self._serving

    def keep(self, keeper: Keeper) -> None:
        """Have the webhook configurations kept while the server runs. To be called before it is entered."""
        self._keeper = keeper
        self.background["configurations"] = keeper.run
        self.metrics.configurations_in_force(lambda: keeper.in_force)

    @property
    def secure_port(self) -> int:
        """The port of `/mutate` and `/validate`."""
        return self._listener.port

    async def __aenter__(self) -> Self:
        logging.getLogger("webhook").addHandler(self._handler)
        logging.getLogger("webhook").setLevel(logging.INFO)
        try:
            await self._start()
        except BaseException:
            self._stop_logging()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()
        self._stop_logging()

    async def policies_settled(self) -> None:
        """Wait until it is known which policies are in force."""
        if self._files is not None:
            await self._files.settled.wait()

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Serve until told to stop: then readiness goes first, and after the shutdown delay the listener."""
        await stop.wait()
        self._draining = self.front.draining = True
        log.info("stopping: not ready any more; the listener closes in %g s", self.options.shutdown_delay_duration)
        ending = [self._keeper.end()] if self._keeper else []
        await asyncio.gather(asyncio.sleep(self.options.shutdown_delay_duration), *ending)

    def checks(self) -> list[Check]:
        """What readiness consists of."""
        missing = self.source.missing()
        expired = self._serving is None or self._serving.expires < time.time()
        note = f"expires {_date(self._serving.expires)}" if self._serving else ""
        more = self.companion.checks() if self.companion else []
        if self._keeper:
            more = [*more, Check("configurations", True, self._keeper.note)]
        return [
            *more,
            Check("certificate", not expired, _noted(note, self._tls_problem)),
            Check("policies", self._files is None or not self._files.unready(), self._policies_note()),
            Check("caches", not missing, f"nothing heard yet of {', '.join(missing)}" if missing else ""),
            Check("listener", not self._listener.problem(), self._listener.problem()),
            Check("shutdown", not self._draining, "the server is stopping" if self._draining else ""),
        ]

    def _judging(self, engine: Engine) -> Context:
        return Context(engine, self.source.lookup, reconciler=self.options.reconciler, allowance=ALLOWANCE)

    async def _start(self) -> None:
        options = self.options
        self._follow()
        if options.policies is not None:
            self._files = PolicyFiles(
                options.policies,
                self.metrics,
                kept=self.kept_policies,
                allow_removal=options.allow_removal,
                changed=self._policies_changed,
            )
            self._context = self._judging(self._files.engine)
            if self.kept_policies is not None:
                self.background["policies"] = self._files.follow
        self._use(tls.load(options))
        assert self._serving is not None
        server: web.Server = web.Server(
            self.front,
            request_factory=partial(web.BaseRequest, loop=asyncio.get_running_loop()),
            access_log=None,
            logger=_http_log,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=1.0,
            read_bufsize=_READ_AHEAD,
            max_headers=64,
        )
        secure_socket = bind(options.bind_address, options.secure_port)
        app = probes(self.checks, self.metrics, self.source.ages, self.supervisor.problem)
        private = plain_port(app, options.bind_address, options.health_port, self.supervisor, "private port")
        self.health_port = await self._private.enter_async_context(private)
        self._listener = Listener(server, secure_socket, self._serving.context, self.supervisor, self._connections)
        self._tasks = [
            asyncio.create_task(self.supervisor.keep(name, work), name=name) for name, work in self.background.items()
        ]
        log.info("serving on port %d, probes on port %d; %s", self.secure_port, self.health_port, self._policies_note())

    async def _stop(self) -> None:
        self._draining = self.front.draining = True
        await self._listener.close(self.options.shutdown_timeout)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self._private.aclose()
        await self.front.close()
        log.info("stopped")

    def _stop_logging(self) -> None:
        logging.getLogger("webhook").removeHandler(self._handler)
        self.lines.close()

    def _follow(self) -> None:
        """Follow the files as they are before the first load: a change during it is not missed."""
        options = self.options
        certificates = [options.tls_cert_file, options.tls_private_key_file, options.client_ca_file]
        self._follower.add([path for path in certificates if path], self._reload_certificate)
        if options.policies is not None:
            self._follower.add([options.policies], self._reload_policies)

    async def _reload_policies(self) -> bool:
        assert self._files is not None
        await self._files.reload()
        return not self._files.problem

    def _policies_changed(self) -> None:
        assert self._files is not None
        self._context = self._judging(self._files.engine)
        if self.companion:
            self.companion.use(self._files.engine.policies)
        if self._keeper:
            self._keeper.wake()

    async def _reload_certificate(self) -> bool:
        try:
            fresh = tls.load(self.options)
        except tls.TlsError as error:
            self._tls_problem = str(error)
            self.metrics.certificate_reloads.labels("failure").inc()
            log.error("certificate not reloaded, the last good one stays: %s", error)  # noqa: TRY400 - its text says all
            return False
        self._listener.context = fresh.context
        self._use(fresh)
        self._tls_problem = ""
        self.metrics.certificate_reloads.labels("success").inc()
        if self._keeper:
            self._keeper.wake()
        log.info("certificate reloaded: %s, expires %s", fresh.subject, _date(fresh.expires))
        return True

    def _use(self, serving: tls.Serving) -> None:
        self._serving = serving
        self.metrics.certificate_expiry.set(serving.expires)

    def _unready(self) -> str:
        """Why reviews cannot be answered, or nothing. A server that is stopping still answers what reaches it."""
        missing = self.source.missing()
        if missing:
            return f"nothing heard yet of {', '.join(missing)}"
        return self._files.unready() if self._files is not None else ""

    def _policies_note(self) -> str:
        if self._files is None:
            return "no policy files"
        return _noted(self._files.describe(), self._files.problem or self._files.unready())


def _is_no_garbage(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp tells of more than a client that speaks no HTTP, who must not fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log.addFilter(_is_no_garbage)


def _noted(note: str, problem: str) -> str:
    return f"{note}; the files are broken: {problem}" if problem else note


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
