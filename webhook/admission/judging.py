"""The policies' verdicts on a request, as refusals, warnings and audit annotations of its answer."""

from __future__ import annotations

from webhook.admission.lookup import Context
from webhook.admission.respond import Answer, say
from webhook.policy.request import Request

__all__ = ["judge"]


def judge(context: Context, request: Request, answer: Answer) -> None:
    """Add what the policies say. A rule under `warn` becomes a warning, one under `audit` an audit annotation."""
    found = context.engine.judge(request, context.trace)
    answer.verdicts += found
    for verdict in found:
        if verdict.warns:
            answer.warnings.append(say(verdict))
    silent = [say(verdict) for verdict in found if verdict.outcome == "deny" and not (verdict.denies or verdict.warns)]
    if silent:
        answer.audit["would-deny"] = "; ".join(silent)
