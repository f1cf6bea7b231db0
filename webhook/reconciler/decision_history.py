"""The last decisions, as far as this process has seen them; for the page alone.

Decisions come from two sides: the leader's own log lines, and the annotations on preemptors, by which a follower and a
new leader know them, too. Each is counted once, by its plan's id and its preemptor. Annotations may be forged in
namespaces that the webhook leaves out: they push out no decision of this process.
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
        match line["message"]:
            case Line.DECISION:
                try:
                    record = msgspec.convert(line, DecisionRecord)
                except msgspec.ValidationError as error:  # somebody has given an owner a name that nothing has
                    log.warning("the page does not show a decision for %s: %s", line["preemptor"], error)
                else:
                    self._add(Known(record, line["preemptor"], epoch(record.at), own=True))
            case Line.PLAN_ENDED:
                self._end(line["plan"], line["ending"])
            case Line.MEMBER_LEFT:
                self._end(line["plan"], line["ending"], line["preemptor"])
            case _:
                pass

    def changed(self, change: Change[Pod]) -> None:
        """Take a change of a pod that the watch has shown: a decision that is not known, and that the pod is bound."""
        key, old, new = change.key, change.old, change.new
        if new is None or DECISION not in (new.metadata.annotations or {}):
            return
        if old is None or (old.metadata.annotations or {}).get(DECISION) != (new.metadata.annotations or {})[DECISION]:
            record = decision_of(new)
            if record and (record.plan, key) not in self._known and epoch(record.at) < self._wall() + _AHEAD:
                self._add(Known(record, key, epoch(record.at)))
        for known in [known for known in self._known.values() if known.preemptor == key]:
            if new.spec.node_name == known.record.node and not carries(new, known.record.plan):
                self._end(known.record.plan, "bound", key)

    def decisions(self) -> list[Known]:
        """The last decisions, the newest first."""
        return sorted(self._known.values(), key=lambda known: known.at, reverse=True)

    def _end(self, plan: str, ending: str, preemptor: str = "") -> None:
        """A plan is over, or it is for this preemptor."""
        for known in self._known.values():
            if known.record.plan == plan and not known.ending and preemptor in ("", known.preemptor):
                known.ending = ending

    def _add(self, known: Known) -> None:
        self._known[known.record.plan, known.preemptor] = known
        while len(self._known) > _DECISIONS:
            del self._known[min(self._known, key=lambda plan: (self._known[plan].own, self._known[plan].at))]
