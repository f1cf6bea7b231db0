"""Reviews that take long, answered by a process of their own: evaluation holds the interpreter, so no thread helps."""

from __future__ import annotations

import asyncio
import pickle
import sys
from typing import Any

from webhook.admission.context import Context
from webhook.admission.review import Answer, BadReviewError, decode
from webhook.admission.webhook import Phase, Reviewed, complete
from webhook.policy.model import Policies
from webhook.serving.reviewer import HEAD, frame

__all__ = ["ReviewProcess", "ReviewProcessError"]


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
        self._turn = asyncio.Lock()

    async def review(self, context: Context, phase: Phase, body: bytes) -> Reviewed:
        """Answer a review by these policies and what this context knows of the cluster, one at a time.

        Raises ReviewProcessError. When it is cancelled, at a deadline, the process is ended: what it does is not
        waited for. A process that has yet to start is left to it, for the next review.
        """
        async with self._turn:
            try:
                answer, uid, error = await self._exchange(context, phase, body)
            except (OSError, EOFError, asyncio.IncompleteReadError, pickle.PickleError) as failure:
                await self._end()
                raise ReviewProcessError(f"the process for long reviews ended: {failure}") from failure
            except BaseException:
                await self._end()
                raise
        try:
            asked = decode(body)
        except BadReviewError:
            asked = None
        return Reviewed(
            body=complete(uid, answer),
            answer=answer,
            uid=uid,
            review=asked,
            error=_Unanswered(error) if error else None,
        )

    async def close(self) -> None:
        """End the process."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._end()

    async def _exchange(self, context: Context, phase: Phase, body: bytes) -> tuple[Answer, str, str]:
        """Start the process if there is none, give it new policies, and answer what it asks until it is done."""
        policies = context.engine.policies
        if self._process is None:
            self._starting = self._starting or asyncio.create_task(_start())
            try:
                self._process, self._policies = await asyncio.shield(self._starting), None
            finally:
                if self._starting.done():
                    self._starting = None
        if self._policies is not policies:
            await self._send(("policies", policies, context.reconciler))
            self._policies = policies
        await self._send(("review", phase, body))
        while True:
            match await _read(self._process):
                case ("lookup", method, *names):
                    await self._send(getattr(context.lookup, method)(*names))
                case ("reviewed", answer, uid, error):
                    return answer, uid, error

    async def _send(self, message: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(frame(message))
        await self._process.stdin.drain()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def _start() -> asyncio.subprocess.Process:
    """Start a process, and wait until it has loaded what it needs."""
    command = (sys.executable, "-m", "webhook.serving.reviewer")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
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
