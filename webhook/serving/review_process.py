"""Reviews that take long, answered by a process of their own: evaluation holds the interpreter, so no thread helps."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from contextlib import suppress
from typing import Any

from webhook.admission.context import Context
from webhook.admission.review import Answer, ReviewFacts
from webhook.admission.webhook import Phase, Reviewed, complete
from webhook.policy.model.policies import Policies
from webhook.serving.fair_queue import Flow
from webhook.serving.reviewer import HEAD, frame, too_much
from webhook.serving.turns import FairSemaphore

_COMMAND = (sys.executable, "-m", "webhook.serving.reviewer")
_ENDED_BY_OTHERS = frozenset((None, -signal.SIGKILL, -signal.SIGTERM))
_GOING_SECONDS = 1.0
_BYTE_SECONDS = 1e-7
"""What a review takes of the process, about, for each byte."""


class ReviewProcessError(Exception):
    """The process ended before it had answered; the next review starts another one."""


class _Unanswered(Exception):  # noqa: N818 - carries the text of an error that was raised elsewhere
    """What went wrong inside the process."""


class ReviewProcess:
    """A process that is started by the first review that needs it, and ended by one that is given up."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._policies: Policies | None = None
        self._turn = FairSemaphore(1)

    async def review(self, flow: Flow, context: Context, phase: Phase, body: bytes) -> Reviewed:
        """Answer a review by these policies and what this context knows of the cluster, one at a time, in fair shares.

        Raises ReviewProcessError if somebody ended the process. If it ended by itself, it could not bear this review,
        which is refused; the next one starts another process. When it is cancelled, at a deadline, the process is
        ended: what it does is not waited for. A process that has yet to start is left to it, for the next review.
        """
        async with self._turn.held(flow, len(body) * _BYTE_SECONDS):
            try:
                answer, uid, facts, error = await self._exchange(context, phase, body)
            except (OSError, EOFError, asyncio.IncompleteReadError, pickle.PickleError) as failure:
                if await self._end() not in _ENDED_BY_OTHERS:
                    return too_much(body)
                raise ReviewProcessError(f"the process for long reviews ended: {failure}") from failure
            except BaseException:
                await self._end()
                raise
        problem = _Unanswered(error) if error else None
        return Reviewed(body=complete(uid, answer), answer=answer, uid=uid, facts=facts, error=problem)

    async def close(self) -> None:
        """End the process."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._end()

    async def _exchange(
        self, context: Context, phase: Phase, body: bytes
    ) -> tuple[Answer, str, ReviewFacts | None, str]:
        """Start the process if there is none of these policies, and answer what it asks until it is done."""
        policies = context.engine.policies
        if self._process is not None and (self._process.returncode is not None or self._policies is not policies):
            await self._end()
        if self._process is None:
            self._starting = self._starting or asyncio.create_task(_start())
            try:
                self._process = await asyncio.shield(self._starting)
            finally:
                if self._starting.done():
                    self._starting = None
        if self._policies is None:
            await self._send(("policies", policies, context.reconciler, context.namespace, context.uses))
            self._policies = policies
        await self._send(("review", phase, len(body)), body)
        while True:
            match await _read(self._process):
                case ("lookup", method, *names):
                    await self._send(getattr(context.lookup, method)(*names))
                case ("reviewed", answer, uid, facts, error):
                    return answer, uid, facts, error

    async def _send(self, message: Any, body: bytes = b"") -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(frame(message))
        if body:
            self._process.stdin.write(body)
        await self._process.stdin.drain()

    async def _end(self) -> int | None:
        """End the process; how it had ended before, a number of a signal below zero, or by this (SIGKILL)."""
        process, self._process, self._policies = self._process, None, None
        if process is None:
            return None
        if process.stdout is not None and process.stdout.at_eof():
            with suppress(TimeoutError):  # it has closed its end, and may not have gone yet
                await asyncio.wait_for(process.wait(), _GOING_SECONDS)
        if process.returncode is None:
            process.kill()
        return await process.wait()


async def _start() -> asyncio.subprocess.Process:
    """Start a process, and wait until it has loaded what it needs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=pipe, stdout=pipe)
    try:
        await _read(process)
    except BaseException:
        if process.returncode is None:
            process.kill()
        await process.wait()
        raise
    return process


async def _read(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    head = await process.stdout.readexactly(HEAD)
    data = await process.stdout.readexactly(int.from_bytes(head))
    return pickle.loads(data)  # noqa: S301 - from the process that this one started
