"""A real server on a free port of the loopback, and clients for it."""

import asyncio
import io
import json
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certs.authority import pem
from tests.admission.builders import make_class
from tests.serving.certificates import Authority
from webhook.admission.context import Lookup, Objects
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.manager.manager import Manager, ManagerOptions
from webhook.manager.webhook_component import add_webhook
from webhook.serving.server import ReviewServer, ServingOptions


class GivenObjects:
    """What a server knows, without a cluster; `answer` makes of it what a live look-up says, by default the same."""

    def __init__(self, lookup: Lookup, answer: Any = None, *, absent: tuple[str, ...] = ()) -> None:
        self.lookup, self.absent, self._answer = lookup, absent, answer
        self.asked: list[tuple[str, list[tuple[str, str]]]] = []
        """The namespace of each review for which something was looked up, and what."""

    def unheard(self) -> str:
        return f"nothing heard yet of {', '.join(self.absent)}" if self.absent else ""

    def ages(self) -> dict[str, float]:
        return {}

    async def ask(self, unsure: Any, asker: tuple[str, str]) -> Lookup:
        self.asked.append((asker[1], list(unsure)))
        return await self._answer(self.lookup) if self._answer else self.lookup

    async def run(self) -> None:
        await asyncio.Event().wait()


class Running:
    """A server that runs, with a client that trusts its CA."""

    def __init__(
        self, manager: Manager, webhook: ReviewServer, session: aiohttp.ClientSession, log: io.BytesIO
    ) -> None:
        self.manager, self.server, self.session, self.log = manager, webhook, session, log
        self.url = f"https://127.0.0.1:{self.server.secure_port}"
        self.health = f"http://127.0.0.1:{manager.health_port}"

    async def post(self, path: str, body: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        """The status and the AdmissionReview's response."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **more.pop("headers", {})}
        async with self.session.post(self.url + path, data=data, headers=headers, **more) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            return answer.status, (await answer.json())["response"]

    async def get(self, path: str) -> tuple[int, str]:
        """The status and text of a probe."""
        async with self.session.get(self.health + path) as answer:
            return answer.status, await answer.text()

    async def ready(self, status: int = 200) -> bool:
        """Whether the probe of readiness answers so."""
        return (await self.get("/readyz"))[0] == status

    def lines(self) -> list[dict[str, Any]]:
        """What was logged so far."""
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    async def logged(self, **fields: Any) -> dict[str, Any]:
        """The first line with these fields, as soon as it is written."""
        for _ in range(200):
            for line in self.lines():
                if all(line.get(key) == value for key, value in fields.items()):
                    return line
            await asyncio.sleep(0.02)
        raise AssertionError(f"no line {fields} in {self.lines()}")


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


def trusting(authority: Authority, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pem(authority.certificate).decode())
    if client is not None:
        context.load_cert_chain(*client)
    return context


@pytest.fixture
def start(tmp_path, authority):
    """A server with this engine and these objects, as a context manager."""

    @asynccontextmanager
    async def starting(*, source=None, objects=None, engine=None, client=None, kept=None, **options):
        certificate, key = authority.issue(tmp_path, "server")
        none = tmp_path / "no-policies"
        none.mkdir(exist_ok=True)
        process = {"health_port": 0, "poll_interval": 0.02, "allow_removal": True, "policies": none}
        process |= {
            name: options.pop(name) for name in ("policies", "poll_interval", "allow_removal") if name in options
        }
        log = io.BytesIO()
        manager = Manager(ManagerOptions(bind_address="127.0.0.1", **process), log, kept=kept)
        serving = ServingOptions(
            **{
                "tls_cert_file": certificate,
                "tls_private_key_file": key,
                "bind_address": "127.0.0.1",
                "secure_port": 0,
                **options,
            }
        )
        webhook = add_webhook(manager, serving, source or GivenObjects(objects or Objects()))
        connector = aiohttp.TCPConnector(ssl=trusting(authority, client))
        async with manager, aiohttp.ClientSession(connector=connector) as session:
            if engine is not None:
                webhook.use(engine)
            yield Running(manager, webhook, session, log)

    return starting


@pytest.fixture
async def running(start):
    """A server that knows the class `high` and the namespace `team-a`, so that it looks nothing up for most reviews."""
    team = Namespace(metadata=ObjectMeta(name="team-a"))
    async with start(objects=Objects([make_class("high", 100)], [team])) as one:
        yield one


@pytest.fixture
def connect(authority):
    """Open a TLS connection to a running server."""
    writers = []

    async def connecting(running):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.secure_port, ssl=trusting(authority))
        writers.append(writer)
        return reader, writer

    yield connecting
    for writer in writers:
        writer.transport.abort()
