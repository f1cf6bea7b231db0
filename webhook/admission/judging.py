"""The policies' verdicts on a request, as refusals, warnings and audit annotations of its answer."""

from __future__ import annotations

from webhook.admission.lookup import Context
from webhook.admission.respond import Answer, say
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.verdict import Verdict

__all__ = ["judge", "judge_annotations"]


def judge(context: Context, request: PolicyRequest, answer: Answer) -> None:
    """Add what the policies say. A rule under `warn` becomes a warning, one under `audit` an audit annotation."""
    _take(context.engine.judge(request, context.trace), answer)


def judge_annotations(context: Context, request: PolicyRequest, answer: Answer) -> None:
    """Add what the policies say of the protected annotations that an update changes, and of nothing else."""
    _take(context.engine.judge_annotations(request), answer)


def _take(found: list[Verdict], answer: Answer) -> None:
    answer.verdicts += found
    for verdict in found:
        if verdict.warns:
            answer.warnings.append(say(verdict))
    silent = [say(verdict) for verdict in found if verdict.silent]
    if silent:
        answer.audit["would-deny"] = "; ".join(silent)
