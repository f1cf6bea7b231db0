"""The webhook's HTTPS server: it listens, takes renewed certificates into use, and drains when it stops."""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from cryptography import x509

from webhook.admission.context import OWN_NAMESPACE, RECONCILER, Context
from webhook.component_base.component import Component, ReadinessCheck
from webhook.component_base.file_watcher import FollowedFiles
from webhook.component_base.listener import Acceptor, bind
from webhook.component_base.logs import LogWriter
from webhook.component_base.supervision import Supervisor, cancelled
from webhook.kube.instants import rfc3339
from webhook.page.model import Certificate
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import Use
from webhook.serving.bodies import give_back_large_memory
from webhook.serving.cluster_objects import CachedObjects
from webhook.serving.connections import Connections
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.review_handler import ALLOWANCE, ReviewHandler

log = logging.getLogger(__name__)


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


class TlsError(Exception):
    """A certificate, key or client CA that cannot be used; the text names the file and what is wrong."""


class ServingCertificate(msgspec.Struct, frozen=True):
    """A certificate in use: `expires` in seconds since the epoch."""

    context: ssl.SSLContext
    expires: float
    subject: str


def load_certificate(certificate_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ServingCertificate:
    """Load certificate, key and client CA. Raises TlsError; nothing that is in use is touched."""
    try:
        certificate = x509.load_pem_x509_certificates(certificate_file.read_bytes())[0]
    except OSError as error:
        raise TlsError(f"cannot read the certificate: {error}") from error
    except ValueError as error:
        raise TlsError(f"{certificate_file} holds no PEM certificate: {error}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # an API server begins each connection from nothing, and a ticket outlives its certificate
    context.options |= ssl.OP_NO_RENEGOTIATION
    problem = f"{key_file} is no private key for {certificate_file}"
    try:
        context.load_cert_chain(certificate_file, key_file)
        if client_ca_file is not None:
            problem = f"{client_ca_file} holds no usable client CA"
            context.load_verify_locations(cafile=client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        why = getattr(error, "reason", "") or error
        raise TlsError(f"{problem}: {why}") from error
    expires = certificate.not_valid_after_utc.timestamp()
    return ServingCertificate(context, expires, certificate.subject.rfc4514_string())


class ReviewServer(Component):
    """One webhook server: it listens while it is `running`.

    `source` says what is known of the cluster. Reviews are refused until the first `use`; `policies_problem` says why.
    Running raises TlsError or OSError for a certificate or port of no use. `reloaded` is called for a new certificate.
    """

    def __init__(
        self,
        options: ServingOptions,
        source: CachedObjects,
        metrics: AdmissionMetrics,
        lines: LogWriter,
        supervisor: Supervisor,
        *,
        policies_problem: Callable[[], str],
    ) -> None:
        self.options, self.source = options, source
        self.metrics, self._supervisor = metrics, supervisor
        self.secure_port = options.secure_port
        """The port of `/mutate` and `/validate`; a free one is known once it runs."""
        self.reloaded: Callable[[], None] = lambda: None
        self._connections: Connections
        self._acceptor: Acceptor | None = None
        self.certificate: ServingCertificate | None = None
        """The certificate in use; None before the server runs."""
        self._tls_problem = ""
        self.handler = ReviewHandler(source, policies_problem, metrics, lines)

    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate in use, as the page shows it."""
        certificate = self.certificate
        return (Certificate(f"webhook, {certificate.subject}", certificate.expires),) if certificate else ()

    def listens(self) -> str:
        """Its port."""
        return f"serving on port {self.secure_port}"

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Keeping the objects current."""
        return {"cluster": self.source.run}

    def files(self) -> list[FollowedFiles]:
        """The certificate."""
        return [FollowedFiles(filter(None, self._files()), self.reload_certificate)]

    def ages(self) -> dict[str, float]:
        """Those of the objects that reviews are judged by."""
        return self.source.ages()

    def use(self, engine: Engine) -> None:
        """Judge by these policies from now on."""
        self.handler.context = Context(
            engine,
            self.source.lookup,
            reconciler=self.options.reconciler,
            namespace=self.options.namespace,
            uses=self.options.uses,
            allowance=ALLOWANCE,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen; in the end give reviews in hand their time."""
        options, closed = self.options, self.metrics.connections_closed
        give_back_large_memory()
        self._connections = Connections(self.handler, self._load().context, lambda reason: closed.labels(reason).inc())
        sock = bind(options.bind_address, options.secure_port, "--secure-port")
        self.secure_port = sock.getsockname()[1]
        self._acceptor = Acceptor(sock, self._connections.serve)
        accepting = asyncio.create_task(self._supervisor.keep("listener", self._acceptor.accept))
        try:
            yield
        finally:
            self.handler.draining = True
            await cancelled([accepting])
            sock.close()
            await self._connections.close(options.shutdown_timeout)
            log.info("stopped")

    async def drain(self) -> None:
        """Be not ready any more, and serve on for the shutdown delay: until nobody is sent here."""
        self.handler.draining = True
        log.info("stopping: not ready any more; the listener closes in %g s", self.options.shutdown_delay_duration)
        await asyncio.sleep(self.options.shutdown_delay_duration)

    def checks(self) -> list[ReadinessCheck]:
        """Its part of readiness."""
        certificate = self.certificate
        valid = certificate is not None and certificate.expires >= time.time()
        note = f"expires {rfc3339(certificate.expires)}" if certificate else "not loaded yet"
        if self._tls_problem:
            note += f"; the files are broken: {self._tls_problem}"
        problems = {
            "caches": self.source.unheard(),
            "listener": self._acceptor.problem() if self._acceptor else "it does not listen yet",
            "shutdown": "the server is stopping" if self.handler.draining else "",
        }
        others = (ReadinessCheck(name, not why, why) for name, why in problems.items())
        return [ReadinessCheck("certificate", valid, note), *others]

    async def reload_certificate(self) -> bool:
        """Take the certificate files into use; False if they are broken, and the last ones stay."""
        try:
            fresh = self._load()
        except TlsError as error:
            self._tls_problem = str(error)
            self.metrics.certificate_reloads.labels("failure").inc()
            log.error("certificate not reloaded, the last good one stays: %s", error)  # noqa: TRY400 - its text says all
            return False
        self._connections.context = fresh.context
        self._tls_problem = ""
        self.metrics.certificate_reloads.labels("success").inc()
        log.info("certificate reloaded: %s, expires %s", fresh.subject, rfc3339(fresh.expires))
        self.reloaded()
        return True

    def _files(self) -> tuple[Path, Path, Path | None]:
        options = self.options
        return options.tls_cert_file, options.tls_private_key_file, options.client_ca_file

    def _load(self) -> ServingCertificate:
        """The certificate of the files, which is in use from now on. Raises TlsError."""
        fresh = load_certificate(*self._files())
        fresh.context.sni_callback = self._begin_under_the_newest
        self.certificate = fresh
        self.metrics.certificate_expiry.set(fresh.expires)
        return fresh

    def _begin_under_the_newest(self, tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Take the newest certificate also for a connection that was accepted before it.

        OpenSSL asks for it whether the client names a server or not. Later connections have the new context from the
        start, since an old one keeps its client CA and its sessions of TLS 1.2.
        """
        assert self.certificate is not None
        tls.context = self.certificate.context
