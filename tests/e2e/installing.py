"""Installing on the cluster under test: stand-ins for a Service and the kubelet, and somebody who makes pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from tests.e2e.software import Process, Software
from tests.manifests.objects import POLICIES
from tests.manifests.rendering import rendered
from tests.ports import free_port
from tests.workloads import Json, eventually, is_there, pod
from webhook.component_base.own_names import SYSTEM_NAMESPACE, WEBHOOK
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent

DEPLOYMENT = resources.DEPLOYMENT.path(SYSTEM_NAMESPACE, WEBHOOK)
NAMESPACE = resources.NAMESPACE.path(name=SYSTEM_NAMESPACE)
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

    async def goes_on(self) -> None:
        """Wait until some more pods are made."""
        made = self.made
        await eventually(lambda: self.made > made + 10)

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
        waiting = list(parts)
        for _ in range(4):
            later = []
            for one in waiting:
                try:
                    await self.apply(one)
                except AssertionError as error:
                    assert f'namespaces "{SYSTEM_NAMESPACE}" not found' in str(error)  # noqa: PT017 - what kubectl prints
                    later.append(one)
            waiting = later
        assert not waiting

    async def delete(self, objects: Iterable[Json]) -> None:
        await self._kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=_documents(objects))

    async def start(self, *arguments: str) -> tuple[Process, int]:
        """Start a webhook of this installation and send reviews to it once it is ready."""
        port, url = free_port(), f"https://127.0.0.1:{self.service.port}"
        process = await self.software.webhook(POLICIES, port, url, *arguments, deployment=WEBHOOK)
        await eventually(lambda: process.says("serving on port"), 30, "the webhook listens")
        self.service.add(port)
        return process, port

    async def stop(self, process: Process, port: int) -> None:
        """End a webhook as the kubelet ends a pod: nothing new goes to it, and it is told."""
        self.service.remove(port)
        assert await process.stop() == 0

    async def begin(self) -> tuple[Process, int]:
        """Apply everything, and start a webhook that is in force."""
        await self.apply(rendered().values())
        started = await self.start()
        await self.until_in_force()
        return started

    async def leave(self, process: Process, port: int) -> None:
        """Take the configurations away, and end the webhook."""
        await self.software.unregister()
        await self.stop(process, port)

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
        return sorted(entry["name"] for entries in await self.software.entries() for entry in entries)

    async def until_in_force(self) -> None:
        """Wait until both configurations have more than the entry that probes."""
        await eventually(self.software.in_force, 30)

    async def gone(self) -> None:
        """Wait until the namespace and what was in it are gone."""

        async def is_gone() -> bool:
            return not await is_there(self.client, NAMESPACE)

        await eventually(is_gone, 60, f"the namespace {SYSTEM_NAMESPACE} is gone")

    async def _is_unwanted(self) -> bool:
        namespace = await unless_absent(self.client.get(NAMESPACE))
        gone = namespace is None or "deletionTimestamp" in namespace["metadata"]
        return gone or not await is_there(self.client, DEPLOYMENT)


def _documents(objects: Iterable[Json]) -> str:
    return "\n".join(map(json.dumps, objects))
