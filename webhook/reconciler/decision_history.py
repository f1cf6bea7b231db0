"""The last decisions, as far as this process has seen them; for the page alone.

Decisions come from two sides: the leader's own log lines, and the annotations on preemptors, by which a follower and a
new leader know them, too. Each is counted once, by its plan's id and its preemptor. Whatever goes wrong here is logged:
no decision waits for it. Annotations may be forged in namespaces that the webhook leaves out: they push out no decision
of this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.kube.instants import epoch
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import DECISION
from webhook.reconciler.reporting import Line
from webhook.reconciler.state.annotations import DecisionRecord, carries, decision_of

log = logging.getLogger(__name__)

_DECISIONS = 30
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


class DecisionHistory:
    """Takes what was told and what was watched. `wall` is the clock, in seconds since the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._known: dict[tuple[str, str], Known] = {}

    def told(self, line: dict[str, Any]) -> None:
        """Take a structured log line: a decision, or the end of a plan, for all of its preemptors or for one."""
        try:
            if line.get("message") == Line.DECISION:
                record = msgspec.convert(line, DecisionRecord)
                self._add(Known(record, str(line["preemptor"]), epoch(record.at), own=True))
            elif line.get("message") in {Line.PLAN_ENDED, Line.MEMBER_LEFT}:
                left = line["preemptor"] if line["message"] == Line.MEMBER_LEFT else ""
                for known in self._known.values():
                    if known.record.plan == line["plan"] and not known.ending and left in ("", known.preemptor):
                        known.ending = str(line["ending"])
        except Exception:
            log.exception("the page does not show %s", line.get("message"))

    def changed(self, change: Change[Pod]) -> None:
        """Take a change of a pod that the watch has shown."""
        key, old, new = change.key, change.old, change.new
        try:
            if new is not None and DECISION in (new.metadata.annotations or {}):
                self._read(key, old, new)
        except Exception:
            log.exception("the page does not show what became of %s", key)

    def _read(self, key: str, old: Pod | None, new: Pod) -> None:
        """Take the decision on a pod, if it is not known, and whether the pod is bound by now."""
        text = (new.metadata.annotations or {})[DECISION]
        if old is None or (old.metadata.annotations or {}).get(DECISION) != text:
            record = decision_of(new)
            if record and (record.plan, key) not in self._known and epoch(record.at) < self._wall() + _AHEAD:
                self._add(Known(record, key, epoch(record.at)))
        for known in self._known.values():
            if known.preemptor == key and not known.ending and not carries(new, known.record.plan):
                known.ending = "bound" if new.spec.node_name == known.record.node else known.ending

    def decisions(self) -> list[Known]:
        """The last decisions, the newest first."""
        return sorted(self._known.values(), key=lambda known: known.at, reverse=True)

    def _add(self, known: Known) -> None:
        self._known[known.record.plan, known.preemptor] = known
        while len(self._known) > _DECISIONS:
            del self._known[min(self._known, key=lambda plan: (self._known[plan].own, self._known[plan].at))]
