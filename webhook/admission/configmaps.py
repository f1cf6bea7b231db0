"""ConfigMaps of giveway's own namespace: the probe, and the policies that are applied."""

from __future__ import annotations

from webhook.admission.decode import Review
from webhook.admission.lookup import Context
from webhook.admission.policymaps import POLICIES, judge_policies
from webhook.admission.probing import answer_probe
from webhook.admission.respond import Answer

__all__ = ["mutate_config_map", "validate_config_map"]


def mutate_config_map(context: Context, review: Review, answer: Answer) -> None:
    """Answer the probe."""
    answer_probe("mutate", review, answer)
    del context


def validate_config_map(context: Context, review: Review, answer: Answer) -> None:
    """Answer the probe, and judge the policies. Raises AllowanceError."""
    answer_probe("validate", review, answer)
    if review.name == POLICIES:
        judge_policies(context, review, answer)
