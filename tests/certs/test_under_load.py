"""Certificates change over and over under a cluster at work: two replicas, clocks a minute apart, no review lost."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import service_names
from certs.files import write_files
from certs.rotation import CertificateSettings
from certs.secret import maintain
from tests.workloads import eventually, pod
from webhook.admission.context import Objects
from webhook.cli.certs import keep_current
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import MUTATING_WEBHOOK_CONFIGURATION, NAMESPACE, POD, VALIDATING_WEBHOOK_CONFIGURATION
from webhook.manager.manager import Manager, ManagerOptions
from webhook.manager.webhook_component import AdmissionWebhook
from webhook.policy.files.loading import load_texts
from webhook.registration.entries import MUTATING, VALIDATING, WebhookTarget, entries
from webhook.serving.cluster_objects import ObjectSource
from webhook.serving.server import ServingOptions

SYSTEM, SERVICE = "giveway-system", "giveway-webhook"
SECRET = (SYSTEM, "giveway-tls")
NAME = f"{SERVICE}.{SYSTEM}.svc"
NAMES = tuple(service_names(SERVICE, SYSTEM))
APART = timedelta(seconds=60)
LAG = 1.0
"""Seconds by which the trust of one kind of client is older than what is stored."""
SETTLE = APART + timedelta(seconds=LAG + 4)
"""What a new authority has to settle for here: the clocks' difference, the time that trust takes to spread, a second
that certificates' times are rounded by, and some more for a machine that is busy."""
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: all}
spec:
  rules:
  - name: named
    validate: {expression: "object.metadata.name != ''"}
"""


@dataclass
class Seen:
    """What happened to reviews and handshakes."""

    reviews: int = 0
    handshakes: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    served: set[bytes] = field(default_factory=set)
    trusted: set[bytes] = field(default_factory=set)


class Service:
    """Spreads connections over the replicas, as a Service does."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._turn = ports, 0
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._ports[self._turn % len(self._ports)])
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(one, other))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def replicas(directories: list[Path]) -> AsyncIterator[list[int]]:
    """Two webhook servers, each with certificates of its own directory; their ports."""
    async with AsyncExitStack() as stack:
        webhooks = []
        for directory in directories:
            (directory / "policies").mkdir()
            (directory / "policies" / "all.yaml").write_text(POLICY)
            options = ManagerOptions(
                policies=directory / "policies", bind_address="127.0.0.1", health_port=0, poll_interval=0.1
            )
            serving = ServingOptions(
                tls_cert_file=directory / "tls.crt",
                tls_private_key_file=directory / "tls.key",
                bind_address="127.0.0.1",
                secure_port=0,
            )
            manager = Manager(options, io.BytesIO())
            webhooks.append(manager.add(AdmissionWebhook(manager, serving, ObjectSource(Objects()))))
            await stack.enter_async_context(manager)
        yield [webhook.secure_port for webhook in webhooks]


async def load(client: Client, seen: Seen, ended: asyncio.Event) -> None:
    """Create pods, which is refused if a webhook cannot be asked."""
    while not ended.is_set():
        try:
            await client.create(POD.path("default"), pod(f"load-{seen.reviews}"), dryRun="All")
        except ApiError as error:
            seen.failures[f"review: {error.message[:200]}"] += 1
        seen.reviews += 1


async def shake_hands(client: Client, seen: Seen, ports: list[int], ended: asyncio.Event) -> None:
    """Connect to each replica by the trust that is stored, and by trust that is as old as an API server's may be."""
    path = VALIDATING_WEBHOOK_CONFIGURATION.path(None, "giveway")
    known: list[tuple[float, bytes]] = []
    while not ended.is_set():
        stored = await client.get(path)
        newest = base64.b64decode(stored["webhooks"][0]["clientConfig"]["caBundle"])
        seen.trusted.add(newest)
        known.append((time.monotonic(), newest))
        while len(known) > 1 and known[1][0] < time.monotonic() - LAG:
            del known[0]
        for trust in {newest, known[0][1]}:
            context = ssl.create_default_context(cadata=trust.decode())
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            for port in ports:
                seen.handshakes += 1
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
                except ssl.SSLError as error:
                    seen.failures[f"handshake: {error}"] += 1
                else:
                    seen.served.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
                    writer.close()
        await asyncio.sleep(0.02)


async def rotate(client: Client, settings: CertificateSettings, ended: asyncio.Event) -> None:
    """Ask for a new certificate, and for a new authority, over and over, as `giveway certs issue --rotate` does."""
    turn = 0
    while not ended.is_set():
        turn += 1
        asked = {"rotate": bool(turn % 8), "rotate_authority": not turn % 8}
        await maintain(client, SECRET, ["giveway"], settings, clock(APART * (turn % 2)), **asked)
        await asyncio.sleep(0.2)


def clock(apart: timedelta):
    return lambda: datetime.now(UTC) + apart


async def lived(tmp_path: Path, settings: CertificateSettings, seconds: float, *, period: float) -> Seen:
    """Let everything run for so long; what happened."""
    directories = [tmp_path / name for name in ("a", "b")]
    without = [name for name in STAND_INS if name != "serviceaccount"]
    seen, ended = Seen(), asyncio.Event()
    async with EmbeddedCluster(nodes=0, without=without) as cluster, cluster.client() as client:
        await client.create(NAMESPACE.path(), {"metadata": {"name": SYSTEM}})
        for directory, apart in zip(directories, (timedelta(0), APART), strict=True):
            bundle = await maintain(client, SECRET, [], settings, clock(apart))
            write_files(directory, bundle.files())
        async with replicas(directories) as ports, Service(ports).listening() as port:
            cluster.services[f"{SYSTEM}/{SERVICE}:443"] = f"127.0.0.1:{port}"
            await register(client, bundle.trust())
            work = [
                keep_current(client, SECRET, ("giveway",), settings, directory, now=clock(apart), period=period)
                for directory, apart in zip(directories, (timedelta(0), APART), strict=True)
            ]
            work += [rotate(client, settings, ended), shake_hands(client, seen, ports, ended)]
            work += [load(client, seen, ended) for _ in range(3)]
            tasks = [asyncio.create_task(one) for one in work]
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            ended.set()
            for keeping in tasks[:2]:
                keeping.cancel()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(error, Exception):
                    raise error
    return seen


async def register(client: Client, trust: bytes) -> None:
    """Store the entries of both configurations, which fail closed."""
    wanted = entries(load_texts([("all.yaml", POLICY)]).policies, WebhookTarget())
    kinds = {MUTATING: MUTATING_WEBHOOK_CONFIGURATION, VALIDATING: VALIDATING_WEBHOOK_CONFIGURATION}
    for kind, resource in kinds.items():
        for entry in wanted[kind]:
            entry["clientConfig"]["caBundle"] = base64.b64encode(trust).decode()
        await client.create(resource.path(), {"metadata": {"name": "giveway"}, "webhooks": wanted[kind]})
    body = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443}]}}
    await client.create(f"/api/v1/namespaces/{SYSTEM}/services", body)

    async def asked() -> bool:
        await client.create(POD.path("default"), pod("first"), dryRun="All")
        return True

    await eventually(asked)


async def test_certificates_change_over_and_over_under_load(tmp_path):
    """Leaf and authority are rotated every fraction of a second: no review fails, and no handshake is refused."""
    settings = CertificateSettings(NAMES, timedelta(hours=1), timedelta(hours=3), settle=SETTLE)
    seen = await lived(tmp_path, settings, 10.0, period=0.3)
    assert seen.failures == {}
    assert seen.reviews > 50
    assert seen.handshakes > 50
    assert len(seen.served) > 4, "leaves were rotated"
    assert len(seen.trusted) > 1, "the authority was rotated"
