"""Which pods were made after a moment, by the server's clock: that of this process may be wrong."""

from __future__ import annotations

import math
from typing import NamedTuple

from webhook.kube.instants import epoch_or
from webhook.kube.objects.pod import Pod


class ServerTime(NamedTuple):
    """A second since the epoch, and the pods made in it, by uid, that were `known` by then."""

    made: float
    known: frozenset[str] = frozenset()

    def is_before(self, pod: Pod) -> bool:
        """Whether the pod was made after this moment."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        return made > self.made or (made == self.made and pod.metadata.uid not in self.known)


class Creations:
    """The youngest pods that were ever seen: those of one second, by uid."""

    def __init__(self) -> None:
        self._made = -math.inf
        self._known: set[str] = set()

    def note(self, pod: Pod) -> None:
        """A pod is seen for the first time."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        if made > self._made:
            self._made, self._known = made, set()
        if made == self._made:
            self._known.add(pod.metadata.uid)

    def forget(self, pod: Pod) -> None:
        """A pod is gone."""
        self._known.discard(pod.metadata.uid)

    def now(self) -> ServerTime:
        """This moment: pods that have been seen are not younger."""
        return ServerTime(self._made, frozenset(self._known))

    def at(self, instant: str) -> ServerTime:
        """The moment of an RFC 3339 instant, which another clock may have given: this moment at the latest."""
        made = epoch_or(instant, math.inf)
        return ServerTime(made) if made < self._made else self.now()
