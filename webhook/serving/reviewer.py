"""The process that answers reviews which take long: frames on standard input and output, one review at a time.

A frame is four bytes of length, big-endian, and a pickled tuple. Both ends are this version of giveway, and the parent
started the child, which first sends `("ready",)`. The parent sends `("policies", Policies, reconciler)` and
`("review", phase, body)`; the child asks `("lookup", method, name)`, gets the object, and ends with
`("reviewed", answer, uid, error)`.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from webhook.admission.context import Context
from webhook.admission.webhook import review
from webhook.kube.objects import Namespace, PriorityClass
from webhook.policy.evaluation.engine import Engine

__all__ = ["HEAD", "frame", "main"]

HEAD = 4
"""Bytes of a frame's length."""
_NICE = 5
"""The reviews that do not take long come first."""


def frame(message: tuple[Any, ...]) -> bytes:
    """A message as it is sent."""
    data = pickle.dumps(message)
    return len(data).to_bytes(HEAD) + data


class _End(Exception):  # noqa: N818 - the parent has gone, which is how this process ends
    """There is nobody left to answer."""


class _Parent:
    """The other end; as a Lookup, what the parent knows of the cluster."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def receive(self) -> Any:
        """The next message. Raises _End when there is none."""
        head = self._incoming.read(HEAD)
        data = self._incoming.read(int.from_bytes(head)) if len(head) == HEAD else b""
        if not data:
            raise _End
        return pickle.loads(data)  # noqa: S301 - from the process that started this one

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message."""
        self._outgoing.write(frame(message))
        self._outgoing.flush()

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        found: PriorityClass | None = self._ask("priority_class", name)
        return found

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        found: Sequence[PriorityClass] = self._ask("default_priority_classes")
        return found

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        found: Namespace | None = self._ask("namespace", name)
        return found

    def _ask(self, method: str, *names: str) -> Any:
        self.send(("lookup", method, *names))
        return self.receive()


def main() -> None:
    """Answer reviews until the parent closes standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    parent = _Parent(sys.stdin.buffer, sys.stdout.buffer)
    context: Context | None = None
    try:
        parent.send(("ready",))
        while True:
            match parent.receive():
                case ("policies", policies, reconciler):
                    context = Context(Engine(policies), parent, reconciler=reconciler)
                case ("review", phase, body):
                    assert context is not None
                    done = review(context, phase, body)
                    parent.send(("reviewed", done.answer, done.uid, repr(done.error) if done.error else ""))
    except (_End, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
