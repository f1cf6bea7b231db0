"""When the schedulers were seen at work. If none was, no node is to blame for a pod that is not bound (D8)."""

from __future__ import annotations

import math

from webhook.kube.bounded import Newest
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.reconciler.preemptors import scheduler_refusal

_GAP = 330.0
"""Seconds without a sign after which a scheduler may have been away; it tries every waiting pod again after 5 min."""
_PATIENCE = 60.0
"""If a scheduler leaves a pod that fits pending for so many seconds, it does not want to place the pod."""
_SCHEDULERS = 100
"""Schedulers that are remembered."""


class SchedulerActivity:
    """When each scheduler was seen at work, in monotonic seconds.

    A scheduler is seen if it binds a pod, or says something new of one that it does not bind. Between two signs that
    are not far apart it was at work, too.
    """

    def __init__(self) -> None:
        self._seen: Newest[str, tuple[float, float]] = Newest(_SCHEDULERS)
        """Scheduler to the first and the last sign of the stretch of work that it was last seen in."""
        self._refused: dict[str, float] = {}
        """Pod that waits, by `namespace/name`, to when its scheduler last said something new of it."""
        self._fits_since: dict[str, float] = {}
        """Pod that waits, by `namespace/name`, to since when it fits somewhere."""

    def observe(self, change: Change[Pod], now: float) -> None:
        """A pod changed; it may show that its scheduler is at work."""
        old, new = change.old, change.new
        if new is None or new.spec.node_name:
            self._refused.pop(change.key, None)
            self._fits_since.pop(change.key, None)
        if old is None or new is None or new.metadata.deletion_timestamp or old.spec.node_name:
            return
        refused = not new.spec.node_name and scheduler_refusal(new) not in (None, scheduler_refusal(old))
        if refused:
            self._refused[change.key] = now
        if refused or new.spec.node_name:
            begin, last = self._seen.get(new.spec.scheduler_name, (now, now))
            self._seen[new.spec.scheduler_name] = (begin if now - last <= _GAP else now, now)

    def chance(self, pod: Pod, since: float, seconds: float) -> float:
        """From when on the pod's scheduler had the chance to bind it, infinite if that is not known.

        It had the chance if it has said something new of the pod `since` then, or was seen at work for half of the
        `seconds`.
        """
        if self._refused.get(key_of(pod), -math.inf) >= since:
            return since
        begin, last = self._seen.get(pod.spec.scheduler_name, (math.inf, -math.inf))
        begin = max(begin, since)
        return begin if last - begin >= seconds / 2 else math.inf

    def overdue(self, pod: Pod, *, fits: bool, now: float) -> bool:
        """Whether the scheduler, which had its chance, leaves a pod pending that fits somewhere."""
        if not fits:
            self._fits_since.pop(key_of(pod), None)
            return False
        return self.chance(pod, self._fits_since.setdefault(key_of(pod), now), _PATIENCE) + _PATIENCE <= now

    def clear(self) -> None:
        """Forget what was seen."""
        self._seen.clear()
        self._refused.clear()
        self._fits_since.clear()
