"""giveway as processes that start at once: forked from one that has imported it, by multiprocessing's fork server.

They are processes like any other, with signals, exit codes and outputs of their own, but for the second that an import
takes. What a fresh start needs is tested in `tests/cli`, by the pages and by the image.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.preloaded"])


class GivewayProcess:
    """A process of giveway, with what the tests use of `asyncio.subprocess.Process`."""

    def __init__(self, process: BaseProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._process, self.stdout, self.stderr = process, stdout, stderr
        """Empty streams where the output goes elsewhere."""
        assert process.pid is not None
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs, negative after a signal."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Tell it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        if self.returncode is None:
            loop.add_reader(self._process.sentinel, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._process.sentinel)
        self._process.join()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """All that it has written, once it has ended."""
        output, errors = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return output, errors


async def start_giveway(
    *arguments: Any, stdout: Any = DEVNULL, stderr: Any = DEVNULL, env: Mapping[str, str] | None = None
) -> GivewayProcess:
    """Start a command of giveway. Outputs are as for `asyncio.create_subprocess_exec`."""
    output, read_output = await _sink(stdout)
    errors, read_errors = await _sink(DEVNULL if stderr == STDOUT else stderr)
    heard = output if stderr == STDOUT else errors
    words, environment = ["giveway", *map(str, arguments)], dict(os.environ if env is None else env)

    def start() -> BaseProcess:
        process = _Starting(target=_run, args=(words, environment, str(Path.cwd()), output, heard))
        process.start()
        return process

    try:
        process = await asyncio.to_thread(start)
    finally:
        for one in {output, errors}:
            os.close(one)
    return GivewayProcess(process, read_output, read_errors)


class _Starting(_CONTEXT.Process):  # type: ignore[name-defined]
    """A process whose last two arguments are file descriptors, which it gets copies of."""

    def __getstate__(self) -> dict[str, Any]:
        *arguments, output, errors = self._args
        return {**self.__dict__, "_args": (*arguments, DupFd(output), DupFd(errors))}


async def _sink(where: Any) -> tuple[int, asyncio.StreamReader]:
    """A file descriptor to write to, and a stream of what is written; it is empty if that is no pipe."""
    reader = asyncio.StreamReader()
    if where == PIPE:
        end, begin = os.pipe()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", 0)
        )
        return begin, reader
    reader.feed_eof()
    return os.open(os.devnull, os.O_WRONLY) if where == DEVNULL else os.dup(where.fileno()), reader


def _run(words: list[str], environment: dict[str, str], directory: str, output: Any, errors: Any) -> None:
    """Be the command."""
    for number, held in ((1, output), (2, errors)):
        copy = held.detach()
        os.dup2(copy, number)
        os.close(copy)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end
    sys.stdout.reconfigure(write_through="PYTHONUNBUFFERED" in environment)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = words
    from tests.quickened import quicken  # noqa: PLC0415
    from webhook.cli.main import run  # noqa: PLC0415 - imported in the fork server

    quicken(environment)
    run()
