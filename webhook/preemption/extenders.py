"""Extenders: components outside the scheduler that may drop candidate nodes or victims (docs/semantics.md D5).

What an extender is asked over lies outside this package; here it is something to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from webhook.kube.objects import Pod
from webhook.preemption.result import Candidate

__all__ = ["Extender", "ExtenderError", "extend"]


class ExtenderError(RuntimeError):
    """An extender that is not ignorable could not be asked, or gave an answer that makes no sense."""


class Extender(Protocol):
    """Answers the candidates with those that remain; raises ExtenderError if it cannot."""

    name: str
    ignorable: bool

    def is_interested(self, preemptor: Pod) -> bool:
        """Whether the extender wants to be asked about this pod."""

    def __call__(self, preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that remain, each with the victims that remain."""


def extend(extenders: Sequence[Extender], preemptor: Pod, candidates: list[Candidate]) -> list[Candidate]:
    """Ask one extender after the other until none has candidates left.

    Raises ExtenderError if one that is not ignorable fails or returns a node without victims.
    """
    for extender in extenders:
        if not candidates or not extender.is_interested(preemptor):
            continue
        try:
            candidates = _with_victims(extender, extender(preemptor, candidates))
        except ExtenderError:
            if not extender.ignorable:
                raise
    return candidates


def _with_victims(extender: Extender, candidates: list[Candidate]) -> list[Candidate]:
    for candidate in candidates:
        if not candidate.victims and not extender.ignorable:
            raise ExtenderError(
                f"extender {extender.name}: expected at least one victim pod on node {candidate.node!r}"
            )
    return [candidate for candidate in candidates if candidate.victims]
