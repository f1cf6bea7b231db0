"""A part of a process, as whoever runs the process knows it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from webhook.component_base.file_watcher import FollowedFiles


class ReadinessCheck(msgspec.Struct, frozen=True):
    """One condition of readiness; `note` says how it stands."""

    name: str
    ok: bool
    note: str = ""


class Component:
    """A part of a process. Each method that a part does not override says that it has nothing of that kind."""

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """What is kept running meanwhile, by name."""
        return {}

    def files(self) -> list[FollowedFiles]:
        """Files that are followed, as they are before they are loaded."""
        return []

    def listens(self) -> str:
        """Where it listens, for the log, once it has started."""
        return ""

    def checks(self) -> list[ReadinessCheck]:
        """Its part of readiness."""
        return []

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        return {}

    def use(self, engine: Any) -> None:
        """Take these policies into use; called when it is known which are in force, and for each other set."""

    async def drain(self) -> None:
        """Let go of what others still send here; the process ends afterwards."""
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Its run, which the manager enters after log, probes and policies, and leaves first."""
        yield
