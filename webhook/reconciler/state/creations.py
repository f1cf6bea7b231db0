"""Which pods were made after a moment, by the server's clock: that of this process may be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from webhook.kube.instants import epoch_or
from webhook.kube.objects.pod import Pod


class ServerTime(NamedTuple):
    """A second since the epoch, and its pods that were `known` by then: those `seen` first, by their order."""

    made: float
    seen: Mapping[str, int] = MappingProxyType({})
    known: int = 0

    def is_before(self, pod: Pod) -> bool:
        """Whether the pod was made after this moment."""
        made = _made(pod)
        return made > self.made or (made == self.made and self.seen.get(pod.metadata.uid, math.inf) > self.known)


class Creations:
    """The youngest pods that were ever seen: those of one second, by uid with the order in which they were seen."""

    def __init__(self) -> None:
        self._made = -math.inf
        self._seen: dict[str, int] = {}

    def note(self, pod: Pod) -> None:
        """A pod is seen for the first time."""
        if (made := _made(pod)) > self._made:
            self._made, self._seen = made, {}
        if made == self._made:
            self._seen.setdefault(pod.metadata.uid, len(self._seen) + 1)

    def now(self) -> ServerTime:
        """This moment: pods that have been seen are not younger."""
        return ServerTime(self._made, self._seen, len(self._seen))

    def at(self, instant: str) -> ServerTime:
        """The moment of an RFC 3339 instant, which another clock may have given: this moment at the latest."""
        made = epoch_or(instant, math.inf)
        return ServerTime(made) if made < self._made else self.now()


def _made(pod: Pod) -> float:
    return epoch_or(pod.metadata.creation_timestamp, -math.inf)
