"""Installing on the cluster under test: stand-ins for a Service and the kubelet, and somebody who makes pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from tests import quickened
from tests.e2e.software import PATHS, SYSTEM, WEBHOOK, Process, Software
from tests.manifests.objects import POLICIES
from tests.ports import free_port
from tests.workloads import Json, eventually, pod
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent

DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{WEBHOOK}"
NAMESPACE = f"{PATHS['Namespace']}/{SYSTEM}"
CONFIGURATIONS = [f"{PATHS[kind]}/giveway" for kind in PATHS if kind.endswith("WebhookConfiguration")]
_PAUSE = 0.05
"""Seconds between two pods that are made."""


class Service:
    """One address for several servers: each new connection goes to the next of them, as with a Service."""

    def __init__(self) -> None:
        self.port = 0
        self._endpoints: list[int] = []
        self._turn = 0
        self._connections: set[asyncio.Task[None]] = set()

    def add(self, port: int) -> None:
        self._endpoints.append(port)

    def remove(self, port: int) -> None:
        self._endpoints.remove(port)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._endpoints:
                self._turn += 1
                port = self._endpoints[self._turn % len(self._endpoints)]
                back, forth = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_pump(reader, forth), _pump(back, writer))
        except OSError:
            pass
        finally:
            self._connections.discard(task)
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Making:
    """Somebody who makes pods all the time: how many were made, and when one was refused for want of an answer."""

    def __init__(self) -> None:
        self.made = 0
        self.refusals: list[str] = []
        self.seconds = 0.0
        """For how long pods were refused, in all."""

    @asynccontextmanager
    async def going_on(self, sandbox: Any) -> AsyncIterator[Self]:
        """Make pods, which are not stored, in the sandbox."""
        task = asyncio.create_task(self._make(sandbox))
        try:
            yield self
        finally:
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(outcome, asyncio.CancelledError), outcome

    async def _make(self, sandbox: Any) -> None:
        while True:
            begun = time.monotonic()
            try:
                await sandbox.client.create(sandbox.pods, pod("tried"), dryRun="All")
                self.made += 1
            except ApiError as error:
                if "failed calling webhook" not in error.message:
                    raise
                self.refusals.append(error.message)
                self.seconds += time.monotonic() - begun + _PAUSE
            await asyncio.sleep(_PAUSE)


class Installation:
    """giveway as somebody installs and removes it with kubectl, and its webhook as the kubelet would run it."""

    def __init__(self, software: Software, client: Client, kubectl: Callable[..., Any], service: Service) -> None:
        self.software, self.client, self._kubectl, self.service = software, client, kubectl, service

    async def apply(self, objects: Iterable[Json], *options: str) -> None:
        await self._kubectl("apply", *options, "-f", "-", stdin=_documents(objects))

    async def apply_in_order(self, parts: Iterable[list[Json]]) -> None:
        """One part after the other; what cannot be made yet is tried again after the rest, as GitOps tools do."""
        waiting, tries = list(parts), 0
        while waiting:
            tries += 1
            assert tries < 5, waiting
            later = []
            for one in waiting:
                try:
                    await self.apply(one)
                except AssertionError as error:
                    assert f'namespaces "{SYSTEM}" not found' in str(error)  # noqa: PT017 - what kubectl prints
                    later.append(one)
            waiting = later

    async def delete(self, objects: Iterable[Json]) -> None:
        await self._kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=_documents(objects))

    async def start(self, *arguments: str) -> tuple[Process, int]:
        """Start a webhook of this installation and send reviews to it once it is ready."""
        port = free_port()
        options = (*self.software.listening(port), f"--url=https://127.0.0.1:{self.service.port}", "--entries=keep")
        process = await self.software.start(
            "serve",
            f"--policies={POLICIES}",
            *options,
            *arguments,
            account=WEBHOOK,
            environment={quickened.DEPLOYMENT: WEBHOOK},
        )
        await eventually(lambda: answers(port), 30, "the webhook listens")
        self.service.add(port)
        return process, port

    async def stop(self, process: Process, port: int) -> None:
        """End a webhook as the kubelet ends a pod: nothing new goes to it, and it is told."""
        self.service.remove(port)
        assert await process.stop() == 0

    @asynccontextmanager
    async def kubelet(self, process: Process, port: int) -> AsyncIterator[None]:
        """End the webhook when its Deployment or its namespace goes; at the end it must have gone."""

        async def until_told() -> None:
            await eventually(self._is_unwanted, 60, "the Deployment or the namespace goes")
            await self.stop(process, port)

        task = asyncio.create_task(until_told())
        try:
            yield
            await task
        finally:
            task.cancel()

    async def entries(self) -> list[str]:
        """The names of the entries of both configurations, as far as these exist."""
        found = [await self.find(path) for path in CONFIGURATIONS]
        return sorted(entry["name"] for one in found for entry in (one or {}).get("webhooks") or ())

    async def in_force(self) -> bool:
        """Whether both configurations, which are written one after the other, have more than the entry that probes."""
        found = [await self.find(path) for path in CONFIGURATIONS]
        return all(len((one or {}).get("webhooks") or ()) > 1 for one in found)

    async def find(self, path: str) -> Json | None:
        return await unless_absent(self.client.get(path))

    async def gone(self) -> None:
        """Wait until the namespace and what was in it are gone."""

        async def is_gone() -> bool:
            return await self.find(NAMESPACE) is None

        await eventually(is_gone, 60, f"the namespace {SYSTEM} is gone")

    async def _is_unwanted(self) -> bool:
        namespace = await self.find(NAMESPACE)
        return namespace is None or "deletionTimestamp" in namespace["metadata"] or await self.find(DEPLOYMENT) is None


async def answers(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _documents(objects: Iterable[Json]) -> str:
    return "\n".join(map(json.dumps, objects))
