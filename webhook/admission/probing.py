"""The probe: a dry-run UPDATE of a ConfigMap by which the server learns that the API server reaches it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version

from webhook.admission.decode import Review
from webhook.admission.lookup import Context
from webhook.admission.respond import Answer

__all__ = ["PROBE", "answered", "answers", "mutate_config_map", "validate_config_map"]

PROBE = "giveway-probe"
"""The ConfigMap's name. What it holds means nothing; nothing is ever written to it."""


def answers(phase: str) -> str:
    """The warning by which a replica of this version is known to have answered in this phase."""
    return f"giveway {version('giveway')} answers ({phase})"


def answered(phase: str, warnings: Iterable[str]) -> bool:
    """Whether one of the warnings says that a replica, of whatever version, answered in this phase."""
    said = re.compile(rf"giveway \S+ answers \({phase}\)")
    return any(said.fullmatch(text) for text in warnings)


def mutate_config_map(context: Context, review: Review, answer: Answer) -> None:
    """Say that the mutating configuration leads here."""
    _answer("mutate", review, answer)
    del context


def validate_config_map(context: Context, review: Review, answer: Answer) -> None:
    """Say that the validating configuration leads here."""
    _answer("validate", review, answer)
    del context


def _answer(phase: str, review: Review, answer: Answer) -> None:
    if review.name == PROBE:
        answer.warnings.append(answers(phase))
