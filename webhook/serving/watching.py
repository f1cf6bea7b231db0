"""Noticing that files changed, by polling: it sees the `..data` swap of a mounted ConfigMap or Secret as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Watched", "signature"]

Signature = tuple[tuple[str, int, int, int], ...]


def signature(paths: Iterable[Path]) -> Signature:
    """What identifies the files' present content; a directory stands for the YAML files directly in it."""
    found: list[tuple[str, int, int, int]] = []
    for path in paths:
        for file in _files(path):
            try:
                status = file.stat()
            except OSError:
                found.append((str(file), 0, 0, 0))
            else:
                found.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})


class Watched:
    """Files of which `on_change` is told once a change has settled: seen alike twice in a row."""

    def __init__(self, paths: Iterable[Path], on_change: Callable[[], None]) -> None:
        self._paths, self._on_change = tuple(paths), on_change
        self._current = self._seen = signature(self._paths)

    def poll(self) -> None:
        """Look once."""
        now = signature(self._paths)
        if now != self._current and now == self._seen:
            self._current = now
            self._on_change()
        self._seen = now
