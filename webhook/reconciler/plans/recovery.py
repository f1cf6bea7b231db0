"""What a new leader learns of the recent evictions from the decisions written on the pods.

A decision is text on a pod, so it is not believed by itself. It uses up the rates of an owner only as far as the
cluster bears it out: the victim is leaving, or it is gone and its owner has made another pod since. That of a pod that
is being deleted counts no more than that of one that is gone: admission judges no changes of such a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from webhook.kube.objects import Pod
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction, owner_of
from webhook.reconciler.state.annotations import DecidedVictim, decision_of
from webhook.reconciler.state.preemptors import instant

__all__ = ["recalled"]

_AHEAD = 60.0
"""Seconds by which an earlier leader's clock may be ahead of this one's; a decision from later than that is none."""
_SKEW = 5.0
"""Seconds by which an earlier leader's clock may be ahead of the API server's, which dates the pods."""


def recalled(
    preemptors: Iterable[Pod], pods: Mapping[str, Pod], wall: float
) -> Iterator[tuple[float, list[PlannedEviction]]]:
    """The evictions that the preemptors' decisions tell of and the cluster bears out, with their age in seconds.

    `pods` are all pods by `namespace/name`, `wall` is now in seconds since the epoch.
    """
    present = [pod for pod in preemptors if not pod.metadata.deletion_timestamp]
    written = [(instant(found.at), found) for pod in present if (found := decision_of(pod)) is not None]
    told = sorted(((at, found) for at, found in written if at <= wall + _AHEAD), key=lambda row: -row[0])
    births = _Births(pods.values(), since=told[-1][0]) if told else None
    for at, decision in told:
        assert births is not None
        owners = (_owner(victim, pods.get(victim.pod), at, births) for victim in decision.victims)
        yield max(0.0, wall - at), [PlannedEviction(owner, decision.node) for owner in owners if owner is not None]


class _Births:
    """When owners made pods, newest first; each of these pods stands for one that left."""

    def __init__(self, pods: Iterable[Pod], since: float) -> None:
        self._times: dict[str, list[float]] = {}
        for pod in pods:
            born = instant(pod.metadata.creation_timestamp)
            if born >= since - _SKEW:
                self._times.setdefault(owner_of(pod), []).append(born)
        for times in self._times.values():
            times.sort(reverse=True)
        self._used: Counter[str] = Counter()

    def take(self, owner: str, at: float) -> bool:
        """Whether the owner made one more pod since `at` than were taken before; asked with falling `at`."""
        times, used = self._times.get(owner, ()), self._used[owner]
        if used >= len(times) or times[used] < at - _SKEW:
            return False
        self._used[owner] += 1
        return True


def _owner(victim: DecidedVictim, there: Pod | None, at: float, births: _Births) -> str | None:
    """The owner whose rate the eviction counts for, empty for a bare pod; None if the victim seems not evicted."""
    if there is not None and there.metadata.deletion_timestamp:
        return owner_of(there)
    if there is not None and instant(there.metadata.creation_timestamp) < at - _SKEW:
        return None
    if not victim.owner:
        return ""
    return victim.owner if births.take(victim.owner, at) else None
