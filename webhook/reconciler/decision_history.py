"""The last decisions and evictions, as far as this process has seen them; for the page alone.

Decisions come from two sides: the leader's own log lines, and the annotations on preemptors, by which a follower and a
new leader know them, too. Each is counted once, by its plan's id. Whatever goes wrong here is logged: no decision waits
for it. Annotations may be forged in namespaces that the webhook leaves out: they push out no decision of this process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.instants import epoch
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.page.model import Evictions, OwnerEvictions
from webhook.policy.model.values import DECISION
from webhook.preemption.snapshot.pod_view import disruption_of
from webhook.reconciler.reporting import Line
from webhook.reconciler.state.annotations import DecisionRecord, carries, decision_of

log = logging.getLogger(__name__)

_HOUR, _QUARTERS = 3600.0, 4
_OWNERS = 12
"""Owners that are shown by name."""
_DECISIONS = 30
_VICTIMS = 5000
"""Victims of recent decisions that are watched for."""
_EVICTIONS = 20_000
_AHEAD = 300.0
"""Seconds by which another process's clock may be ahead; a decision from later than that is not believed."""


@dataclass(slots=True)
class Known:
    """A decision for a preemptor (`namespace/name`) at a time, in seconds since the epoch.

    `ending` is how its plan ended, empty if it has not; `own` whether this process made it.
    """

    record: DecisionRecord
    preemptor: str
    at: float
    ending: str = ""
    own: bool = False


class PendingPods:
    """The keys of the pods on no node, in the order in which they were seen: the snapshot keeps those on nodes."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}

    def changed(self, change: Change[Pod]) -> None:
        """Take a change of a pod that the watch has shown."""
        if change.new is None or change.new.spec.node_name or is_terminal(change.new):
            self.keys.pop(change.key, None)
        else:
            self.keys[change.key] = None


class DecisionHistory:
    """Takes what was told and what was watched. `wall` is the clock, in seconds since the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._known: dict[str, Known] = {}
        self._victims: Newest[str, str] = Newest(_VICTIMS)
        """Key of a pod that a decision would evict to its owner; to the pod itself if it has none."""
        self._evictions: deque[tuple[float, str]] = deque(maxlen=_EVICTIONS)

    def told(self, line: dict[str, Any]) -> None:
        """Take a structured log line: a decision, or the end of a plan."""
        try:
            if line.get("message") == Line.DECISION:
                record = msgspec.convert(line, DecisionRecord)
                self._add(Known(record, str(line["preemptor"]), epoch(record.at), own=True))
            elif line.get("message") == Line.PLAN_ENDED and (known := self._known.get(line["plan"])):
                known.ending = str(line["ending"])
        except Exception:
            log.exception("the page does not show %s", line.get("message"))

    def changed(self, change: Change[Pod]) -> None:
        """Take a change of a pod that the watch has shown."""
        key, old, new = change.key, change.old, change.new
        try:
            if new is not None and DECISION in (new.metadata.annotations or {}):
                self._read(key, old, new)
            # A victim counts once, when it is asked to leave; one that is only deleted was not evicted.
            pod = new or old
            if key in self._victims and pod is not None and (new is None or new.metadata.deletion_timestamp):
                owner = self._victims.pop(key)
                if disruption_of(pod):
                    self._evictions.append((self._wall(), owner))
        except Exception:
            log.exception("the page does not show what became of %s", key)

    def _read(self, key: str, old: Pod | None, new: Pod) -> None:
        """Take the decision on a pod, if it is not known, and whether the pod is bound by now."""
        text = (new.metadata.annotations or {})[DECISION]
        if old is None or (old.metadata.annotations or {}).get(DECISION) != text:
            record = decision_of(new)
            if record is not None and record.plan not in self._known and epoch(record.at) < self._wall() + _AHEAD:
                self._add(Known(record, key, epoch(record.at)))
        for known in self._known.values():
            if known.preemptor == key and not known.ending and not carries(new, known.record.plan):
                known.ending = "bound" if new.spec.node_name == known.record.node else known.ending

    def decisions(self) -> list[Known]:
        """The last decisions, the newest first."""
        return sorted(self._known.values(), key=lambda known: known.at, reverse=True)

    def evictions(self) -> Evictions:
        """How many evictions there were in each quarter of the last hour, by owner."""
        since, last, counts = self._wall() - _HOUR, dict[str, float](), dict[str, list[int]]()
        for at, owner in self._evictions:
            if at >= since:
                quarter = min(_QUARTERS - 1, int((at - since) * _QUARTERS / _HOUR))
                counts.setdefault(owner, [0] * _QUARTERS)[quarter] += 1
                last[owner] = at
        most = sorted(counts, key=lambda owner: (-sum(counts[owner]), owner))
        shown = tuple(OwnerEvictions(owner, tuple(counts[owner]), last[owner]) for owner in most[:_OWNERS])
        total = sum(map(sum, counts.values()))
        return Evictions(total=total, owners=shown, more_owners=max(0, len(most) - _OWNERS))

    def _add(self, known: Known) -> None:
        self._known[known.record.plan] = known
        while len(self._known) > _DECISIONS:
            del self._known[min(self._known, key=lambda plan: (self._known[plan].own, self._known[plan].at))]
        for victim in known.record.victims:
            self._victims[victim.pod] = victim.owner or victim.pod
