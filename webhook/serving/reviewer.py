"""The process that answers reviews which take long: frames on standard input and output, one review at a time.

A frame is four bytes of length, big-endian, and a pickled tuple. Both ends are this version of giveway, and the parent
started the child, which first sends `("ready",)`. The parent once sends `("policies", Policies, reconciler, namespace,
uses)`, and for each review `("review", phase, length)` and then that many bytes, the body. The child asks
`("lookup", method, name)`, gets the object, and ends with `("reviewed", answer, uid, facts, error)`.

It may take MEMORY bytes more than it has with the policies compiled. A review that needs more is refused, and nothing
of it is kept.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from webhook.admission.context import Context
from webhook.admission.review import ReviewFacts
from webhook.admission.undecoded import uid_in
from webhook.admission.webhook import Phase, Reviewed, deny, review
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.evaluation.engine import Engine

HEAD = 4
"""Bytes of a frame's length."""
MEMORY = 128 * 1024 * 1024
"""Bytes that a review may take: its body once, and 300 000 values of at most 216 bytes each, and some room."""
_NICE = 5
"""The reviews that do not take long come first."""
_STATM = Path("/proc/self/statm")


def frame(message: tuple[Any, ...]) -> bytes:
    """A message as it is sent."""
    data = pickle.dumps(message)
    return len(data).to_bytes(HEAD) + data


def too_much(body: bytes) -> Reviewed:
    """The refusal of a review that takes more memory than there is for one; an error would let it pass with Ignore."""
    message = f"the review of this request takes more than {MEMORY >> 20} MiB of memory; make the object smaller"
    return deny(uid_in(body), "size", message)


class _End(Exception):  # noqa: N818 - the parent has gone, which is how this process ends
    """There is nobody left to answer."""


class _Parent:
    """The other end; as a Lookup, what the parent knows of the cluster."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def receive(self) -> Any:
        """The next message. Raises _End when there is none."""
        return pickle.loads(self.read(int.from_bytes(self.read(HEAD))))  # noqa: S301 - from who started this process

    def read(self, length: int) -> bytes:
        """The next bytes. Raises _End when there are fewer."""
        data = self._incoming.read(length)
        if len(data) < length or not data:
            raise _End
        return data

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message."""
        self._outgoing.write(frame(message))
        self._outgoing.flush()

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        priority_class: PriorityClass | None = self._ask("priority_class", name)
        return priority_class

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        classes: Sequence[PriorityClass] = self._ask("default_priority_classes")
        return classes

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        namespace: Namespace | None = self._ask("namespace", name)
        return namespace

    def pod_group(self, key: str) -> PodGroup | None:
        """The PodGroup `namespace/name`."""
        group: PodGroup | None = self._ask("pod_group", key)
        return group

    def _ask(self, method: str, *names: str) -> Any:
        self.send(("lookup", method, *names))
        return self.receive()


def main() -> None:
    """Answer reviews until the parent closes standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    with suppress(OSError):  # if the machine has no memory left, this process goes and not the one that started it
        Path("/proc/self/oom_score_adj").write_text("1000")
    parent = _Parent(sys.stdin.buffer, sys.stdout.buffer)
    context: Context | None = None
    try:
        parent.send(("ready",))
        while True:
            match parent.receive():
                case ("policies", policies, reconciler, namespace, uses):
                    context = Context(Engine(policies), parent, reconciler=reconciler, namespace=namespace, uses=uses)
                    _limit()
                case ("review", phase, length):
                    assert context is not None
                    parent.send(_answer(context, phase, parent.read(length)))
    except (_End, BrokenPipeError):
        pass


def _answer(context: Context, phase: Phase, body: bytes) -> tuple[str, Any, str, ReviewFacts | None, str]:
    """The answer as it is sent; what the review took of the memory is free again."""
    try:
        done = review(context, phase, body)
    except MemoryError:
        done = too_much(body)
    return "reviewed", done.answer, done.uid, done.facts, repr(done.error) if done.error else ""


def _limit() -> None:
    """Let this process take no more than MEMORY from now on, where the system says how much it has."""
    with suppress(OSError, ValueError):
        now = int(_STATM.read_text().split()[5]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (now + MEMORY, hard))


if __name__ == "__main__":
    main()
