"""The last decisions, for the page alone: those of this process by its log lines, and those that are written on pods.

By the annotations on preemptors a follower and a new leader know decisions, too. They may be forged in namespaces that
the webhook leaves out: they push out no decision of this process.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from webhook.kube.instants import epoch, epoch_or
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import DECISION
from webhook.reconciler.reporting import Line
from webhook.reconciler.state.annotations import DecisionRecord, carries, decision_of

log = logging.getLogger(__name__)

_DECISIONS = 30
_AHEAD = 300.0
"""Seconds by which another process's clock may be ahead; a decision from later than that is not believed."""


class Known(msgspec.Struct):
    """A decision for a preemptor (`namespace/name`); `ending` is how its plan ended, empty if it has not."""

    record: DecisionRecord
    preemptor: str
    ending: str = ""


class _Dated(msgspec.Struct):
    at: str


class DecisionHistory:
    """Takes the lines of the log."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], Known] = {}

    def told(self, line: dict[str, Any]) -> None:
        """Take a structured log line: a decision, or the end of a plan, for all of its preemptors or for one."""
        match line["message"]:
            case Line.DECISION:
                try:
                    known = Known(msgspec.convert(line, DecisionRecord), line["preemptor"])
                except msgspec.ValidationError as error:  # somebody has given an owner a name that nothing has
                    log.warning("the page does not show a decision for %s: %s", line["preemptor"], error)
                    return
                self._own[known.record.plan, known.preemptor] = known
                if len(self._own) > _DECISIONS:
                    del self._own[next(iter(self._own))]
            case Line.PLAN_ENDED | Line.MEMBER_LEFT as message:
                for known in self._own.values():
                    ends = message == Line.PLAN_ENDED or known.preemptor == line["preemptor"]
                    if ends and known.record.plan == line["plan"] and not known.ending:
                        known.ending = line["ending"]
            case _:
                pass

    def decisions(self, pods: Mapping[str, Pod], wall: float) -> list[Known]:
        """The last decisions, the newest first; `wall` is now, in seconds since the epoch."""
        written: list[tuple[float, str]] = []
        for key, pod in pods.items():
            if text := (pod.metadata.annotations or {}).get(DECISION):
                with suppress(msgspec.DecodeError):
                    written.append((epoch_or(msgspec.json.decode(text, type=_Dated).at, math.inf), key))
        known = dict(self._own)
        for at, key in sorted(written, reverse=True):
            if at < wall + _AHEAD and len(known) < _DECISIONS and (record := decision_of(pods[key])):
                known.setdefault((record.plan, key), Known(record, key))
        for (plan, key), row in known.items():
            preemptor = None if row.ending else pods.get(key)
            if preemptor and preemptor.spec.node_name == row.record.node and not carries(preemptor, plan):
                row.ending = "bound"
        return sorted(known.values(), key=lambda row: epoch(row.record.at), reverse=True)
