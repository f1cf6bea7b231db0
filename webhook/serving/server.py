"""The webhook's HTTPS server: it listens, takes renewed certificates into use, and drains when it stops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.admission.context import OWN_NAMESPACE, RECONCILER, Context
from webhook.component_base.listener import bind
from webhook.component_base.logs import LogWriter
from webhook.component_base.probes import ReadinessCheck
from webhook.component_base.supervision import Supervisor
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.first_use import Use
from webhook.serving.cluster_objects import ObjectSource
from webhook.serving.connections import Connections, most_connections
from webhook.serving.http_connection import HttpProtocols
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.review_handler import ALLOWANCE, ReviewHandler
from webhook.serving.tls_listener import ServingCertificate, TlsError, TlsListener, load_certificate
from webhook.serving.turns import Turns

log = logging.getLogger(__name__)


_http_log = logging.getLogger("webhook.http")
_IDLE_SECONDS = 120.0
"""Longer than an API server keeps an idle connection (90 s), so that it is not closed under a request on its way."""
_READ_AHEAD = 16 * 1024
"""Bytes of a body, twice, that are read of a connection before its request asks for them."""
_MOST_FIELDS, _LONGEST_FIELD = 32, 2048
"""Header fields of a request, and bytes of one: a head that never ends takes twice its bytes, on each connection.
An API server sends about eight; the longest is a token of a service account, if it is told to show one."""


class ServingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The server's options; a port of 0 takes a free one. Durations are seconds; `reconciler` is a user name.

    `namespace` is giveway's own. `uses` is what else is made of policies when they are applied.
    """

    tls_cert_file: Path
    tls_private_key_file: Path
    client_ca_file: Path | None = None
    reconciler: str = RECONCILER
    namespace: str = OWN_NAMESPACE
    uses: tuple[Use, ...] = ()
    bind_address: str = "::"
    secure_port: int = 9443
    shutdown_delay_duration: float = 0.0
    shutdown_timeout: float = 25.0

    def certificate_files(self) -> list[Path]:
        """The files whose change is a change of the certificate."""
        return [path for path in (self.tls_cert_file, self.tls_private_key_file, self.client_ca_file) if path]


class ReviewServer:
    """One webhook server: it listens from `async with` until that is left.

    `source` says what is known of the cluster. Reviews are refused until the first `use`; `policies_problem` says why.
    Entering raises TlsError or OSError if certificate or port are not usable.
    """

    def __init__(
        self,
        options: ServingOptions,
        source: ObjectSource,
        metrics: AdmissionMetrics,
        lines: LogWriter,
        supervisor: Supervisor,
        *,
        policies_problem: Callable[[], str],
    ) -> None:
        self.options, self.source = options, source
        self._metrics, self._supervisor = metrics, supervisor
        self._listener: TlsListener | None = None
        self.certificate: ServingCertificate | None = None
        """The certificate in use; None before the server is entered."""
        self._tls_problem = ""
        self._connections = Connections(
            most_connections(), lambda reason: metrics.connections_closed.labels(reason).inc()
        )
        self._turns = Turns()
        self.handler = ReviewHandler(
            source, policies_problem, metrics, lines, connections=self._connections, turns=self._turns
        )

    @property
    def secure_port(self) -> int:
        """The port of `/mutate` and `/validate`."""
        assert self._listener is not None
        return self._listener.acceptor.port

    def use(self, engine: Engine) -> None:
        """Judge by these policies from now on."""
        options = self.options
        self.handler.context = Context(
            engine,
            self.source.lookup,
            reconciler=options.reconciler,
            namespace=options.namespace,
            uses=options.uses,
            allowance=ALLOWANCE,
        )

    async def __aenter__(self) -> Self:
        certificate = self._load()
        server = HttpProtocols(
            self.handler,
            request_factory=partial(web.BaseRequest, loop=asyncio.get_running_loop()),
            access_log=None,
            logger=_http_log,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=1.0,
            read_bufsize=_READ_AHEAD,
            max_line_size=_LONGEST_FIELD,
            max_field_size=_LONGEST_FIELD,
            max_headers=_MOST_FIELDS,
        )
        sock = bind(self.options.bind_address, self.options.secure_port, "--secure-port")
        self._listener = TlsListener(
            server, sock, certificate.context, self._supervisor, connections=self._connections, turns=self._turns
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.handler.draining = True
        assert self._listener is not None
        await self._listener.close(self.options.shutdown_timeout)
        await self.handler.close()
        log.info("stopped")

    async def drain(self) -> None:
        """Be not ready any more, and go on serving until nobody is sent here: for the shutdown delay."""
        self.handler.draining = True
        log.info("stopping: not ready any more; the listener closes in %g s", self.options.shutdown_delay_duration)
        await asyncio.sleep(self.options.shutdown_delay_duration)

    def checks(self) -> list[ReadinessCheck]:
        """Its part of readiness."""
        missing, certificate, draining = self.source.missing(), self.certificate, self.handler.draining
        valid = certificate is not None and certificate.expires >= time.time()
        note = f"expires {_date(certificate.expires)}" if certificate else "not loaded yet"
        listener = self._listener.acceptor.problem() if self._listener else "it does not listen yet"
        return [
            ReadinessCheck(
                "certificate",
                valid,
                f"{note}; the files are broken: {self._tls_problem}" if self._tls_problem else note,
            ),
            ReadinessCheck("caches", not missing, f"nothing heard yet of {', '.join(missing)}" if missing else ""),
            ReadinessCheck("listener", not listener, listener),
            ReadinessCheck("shutdown", not draining, "the server is stopping" if draining else ""),
        ]

    async def reload_certificate(self) -> bool:
        """Take the certificate files into use as they are now; False if they are broken, and the last ones stay."""
        assert self._listener is not None
        try:
            fresh = self._load()
        except TlsError as error:
            self._tls_problem = str(error)
            self._metrics.certificate_reloads.labels("failure").inc()
            log.error("certificate not reloaded, the last good one stays: %s", error)  # noqa: TRY400 - its text says all
            return False
        self._listener.context = fresh.context
        self._tls_problem = ""
        self._metrics.certificate_reloads.labels("success").inc()
        log.info("certificate reloaded: %s, expires %s", fresh.subject, _date(fresh.expires))
        return True

    def _load(self) -> ServingCertificate:
        """The certificate as the files are now, which is the one in use from now on. Raises TlsError."""
        options = self.options
        fresh = load_certificate(options.tls_cert_file, options.tls_private_key_file, options.client_ca_file)
        self.certificate = fresh
        self._metrics.certificate_expiry.set(fresh.expires)
        return fresh


def _is_no_garbage(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp is about more than a client that speaks no HTTP, which must not fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log.addFilter(_is_no_garbage)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
