"""Extenders: components outside that may drop candidates or victims (docs/semantics.md D5).

Here an extender is something to call; how it is asked is no matter of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from webhook.kube.objects.pod import Pod
from webhook.preemption.victims.candidates import Candidate, Candidates


class ExtenderError(RuntimeError):
    """An extender that is not ignorable does not answer, or makes no sense."""


class Extender(Protocol):
    """Says which candidates remain; raises ExtenderError if it cannot."""

    name: str
    ignorable: bool

    def is_interested(self, preemptor: Pod) -> bool:
        """Whether the extender wants to be asked about this pod."""

    def __call__(self, preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that remain, with the victims that remain."""


def call_extenders(extenders: Sequence[Extender], preemptor: Pod, candidates: Candidates) -> Candidates:
    """Ask the extenders in turn while candidates are left (kube-scheduler's `callExtenders`).

    Raises ExtenderError if one that is not ignorable fails or returns a node without victims.
    """
    if not extenders:
        return candidates
    remaining = candidates.by_name()
    for extender in extenders:
        if not remaining or not extender.is_interested(preemptor):
            continue
        try:
            answer = extender(preemptor, remaining)
        except ExtenderError:
            if not extender.ignorable:
                raise
            continue
        remaining = [candidate for candidate in answer if candidate.victims]
        if len(remaining) < len(answer) and not extender.ignorable:
            empty = next(candidate.node for candidate in answer if not candidate.victims)
            raise ExtenderError(f"extender {extender.name}: expected at least one victim pod on node {empty!r}")
    if candidates.units is not None:
        remaining = [row for row in remaining if _keeps_groups(row, candidates)]
    return Candidates.of(candidates.snapshot, remaining, candidates.units)


def _keeps_groups(candidate: Candidate, asked: Candidates) -> bool:
    """Whether an extender has left whole groups, where groups go whole."""
    assert asked.units is not None
    pods, group = asked.snapshot.pods, asked.units.group
    rows = {pods.find(victim.namespace, victim.name) for victim in candidate.victims}
    groups = {int(group[row]) for row in rows if row is not None and group[row]}
    return all(rows.issuperset(pods.grouped.members(whole).tolist()) for whole in groups)
