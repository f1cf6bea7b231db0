"""Following files by polling: it sees the `..data` swap of a mounted ConfigMap or Secret as well."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from webhook.kube.backoff import Backoff

log = logging.getLogger(__name__)

_RETRY = (10.0, 60.0)
"""Seconds until a reload that failed is tried again, at first and at most: what failed may not be the files' fault."""


def _signature(paths: Iterable[Path]) -> list[tuple[object, ...]]:
    """What identifies the files' content; a directory stands for the YAML files directly in it."""
    rows: list[tuple[object, ...]] = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})
        for file in files:
            try:
                status = file.stat()
            except OSError:
                rows.append((file,))
            else:
                rows.append((file, status.st_ino, status.st_size, status.st_mtime_ns))
    return rows


class FollowedFiles:
    """Files with what takes them into use: `reload` says whether they are, and is called again if they are not.

    Make it before the files are first loaded. A change counts once it has settled: seen alike twice in a row.
    """

    def __init__(self, paths: Iterable[Path], reload: Callable[[], Awaitable[bool]]) -> None:
        self._paths, self._reload = tuple(paths), reload
        self._current = self._seen = _signature(self._paths)
        self._backoff = Backoff(*_RETRY)
        self._due: float | None = None

    async def look(self) -> None:
        """Look once, and reload what changed or what failed the last time. Raises OSError."""
        before, self._seen = self._seen, _signature(self._paths)
        if before == self._seen != self._current:
            self._current = self._seen
            self._backoff.reset()
            self._due = time.monotonic()
        if self._due is None or time.monotonic() < self._due:
            return
        try:
            done = await self._reload()
        except Exception:
            log.exception("reload failed; what was in use stays in use")
            done = False
        self._due = None if done else time.monotonic() + self._backoff.next()


async def follow(files: Iterable[FollowedFiles], period: float) -> None:
    """Reload files that change, every `period` seconds at most. Raises OSError, and may be started again."""
    while True:
        await asyncio.sleep(period)
        for followed in files:
            await followed.look()
