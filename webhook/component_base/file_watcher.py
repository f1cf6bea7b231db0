"""Following files by polling: it sees the `..data` swap of a mounted ConfigMap or Secret as well."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from webhook.kube.backoff import Backoff

log = logging.getLogger(__name__)

_RETRY = (10.0, 60.0)
"""Seconds until a reload that failed is tried again, at first and at most: what failed may not be the files' fault."""

Signature = tuple[tuple[str, int, int, int], ...]


def signature(paths: Iterable[Path]) -> Signature:
    """What identifies the files' present content; a directory stands for the YAML files directly in it."""
    rows: list[tuple[str, int, int, int]] = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})
        for file in files:
            try:
                status = file.stat()
            except OSError:
                rows.append((str(file), 0, 0, 0))
            else:
                rows.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(rows)


class _Followed:
    """Files with what takes them into use; a change counts once it has settled: seen alike twice in a row."""

    def __init__(self, paths: Iterable[Path], reload: Callable[[], Awaitable[bool]]) -> None:
        self._paths, self._reload = tuple(paths), reload
        self._current = self._seen = signature(self._paths)
        self._backoff = Backoff(*_RETRY)
        self._due: float | None = None

    async def follow(self) -> None:
        """Look once, and reload what changed or what failed the last time. Raises OSError."""
        before, self._seen = self._seen, signature(self._paths)
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


class FileWatcher:
    """Reloads files when they change, every `period` seconds at most. Make it before the files are first loaded.

    `run()` may be cancelled or fail at any point and be started again: nothing that was noticed is lost.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._followed: list[_Followed] = []

    def add(self, paths: Iterable[Path], reload: Callable[[], Awaitable[bool]]) -> None:
        """Follow these files; `reload` says whether they are in use now, and is called again if they are not."""
        self._followed.append(_Followed(paths, reload))

    async def run(self) -> None:
        """Follow, without end. Raises OSError if a directory cannot be read."""
        while True:
            await asyncio.sleep(self._period)
            for followed in self._followed:
                await followed.follow()
