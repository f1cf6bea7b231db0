"""The probe: a dry-run UPDATE of a ConfigMap by which the server learns that the API server reaches it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version

from webhook.admission.decode import Review
from webhook.admission.respond import Answer

__all__ = ["PROBE", "answer_probe", "answered", "answers"]

PROBE = "giveway-probe"
"""The ConfigMap's name. What it holds means nothing; nothing is ever written to it."""


def answers(phase: str) -> str:
    """The warning by which a replica of this version is known to have answered in this phase."""
    return f"giveway {version('giveway')} answers ({phase})"


def answered(phase: str, warnings: Iterable[str]) -> bool:
    """Whether one of the warnings says that a replica, of whatever version, answered in this phase."""
    said = re.compile(rf"giveway \S+ answers \({phase}\)")
    return any(said.fullmatch(text) for text in warnings)


def answer_probe(phase: str, review: Review, answer: Answer) -> None:
    """Say that the configuration of this phase leads here, to the probe alone."""
    if review.name == PROBE:
        answer.warnings.append(answers(phase))
