"""What evicting did not help: excluded for a while, longer each time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from webhook.kube.backoff import exponential
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of

_REFUSED = (15.0, 600.0)
"""Seconds, at first and at most, for which a pod is excluded that the API server did not remove."""
_RETURNED = (60.0, 14_400.0)
"""The same for the pods of an owner that puts them back."""


@dataclass(frozen=True, slots=True)
class _Setback:
    times: int
    until: float


class ReturningOwner(NamedTuple):
    """An owner that put its pods back so many times, and until when they are excluded, in seconds of some clock."""

    owner: str
    times: Annotated[int, msgspec.Meta(ge=1)]
    until: float


class EvictionBackoff:
    """What evicting did not help: it is excluded for a while, twice as long each time it happens again.

    It does not help with a pod that the API server did not remove: a webhook denies the eviction, the right is missing
    in the namespace, or two budgets cover the pod (which the Eviction API does not support). Nor does it help with the
    pods of an owner that puts its pods on a node by itself: they take the room again at once. The objects that a
    decision looks at show none of this. It is remembered by owner, since the pods of an owner have new names again and
    again. Time is an argument, in monotonic seconds.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Setback] = {}
        self._owners: dict[str, _Setback] = {}
        self._times: dict[str, _Setback] = {}
        """Owner to how often one of its pods was refused."""
        self.version = 0
        """Counts what was noted."""

    def __len__(self) -> int:
        return len(self._pods) + len(self._owners)

    def refused(self, pod: Pod, now: float) -> None:
        """The API server did not remove the pod: it is excluded, for longer if others of its owner were refused."""
        times = _note(self._times, workload_of(pod) or key_of(pod), now, *_REFUSED)
        self._pods = {key: it for key, it in self._pods.items() if now < it.until}
        self._pods[key_of(pod)] = times
        self.version += 1

    def returned(self, owner: str, now: float) -> None:
        """The owner put another pod into the room of one that was evicted: all its pods are excluded."""
        _note(self._owners, owner, now, *_RETURNED)
        self.version += 1

    def returning(self) -> list[ReturningOwner]:
        """The owners that put their pods back, also those whose pods may be asked for again by now."""
        return [ReturningOwner(owner, it.times, it.until) for owner, it in self._owners.items()]

    def recall(self, known: ReturningOwner, now: float) -> None:
        """An earlier leader noted this of an owner; what this process has noted itself stays if it is more."""
        if known.owner not in self._owners or self._owners[known.owner].times < known.times:
            self._owners[known.owner] = _Setback(known.times, min(known.until, now + _RETURNED[1]))
            self.version += 1

    def excluded(self, now: float) -> tuple[list[str], list[str]]:
        """The pods that are not to be asked for now, and the owners whose pods are not."""
        pods, owners = self._pods.items(), self._owners.items()
        return [key for key, it in pods if now < it.until], [owner for owner, it in owners if now < it.until]

    def next_end(self, now: float) -> float | None:
        """When the first of them may be asked for again."""
        ends = [it.until for it in (*self._pods.values(), *self._owners.values())]
        return min((end for end in ends if now < end), default=None)


def _note(known: dict[str, _Setback], name: str, now: float, first: float, longest: float) -> _Setback:
    """Note a setback, and forget those that were over long ago."""
    for old in [key for key, it in known.items() if now >= it.until + longest]:
        del known[old]
    times = known[name].times + 1 if name in known else 1
    known[name] = _Setback(times, now + exponential(times, first, longest))
    return known[name]
