"""The log line of one review."""

from __future__ import annotations

from webhook.admission.webhook import Reviewed
from webhook.component_base.logs import LogLine

__all__ = ["ReviewLine", "review_line"]


class ReviewLine(LogLine):
    """The line of one review: who asked for what, and what became of it; never the object itself."""

    phase: str
    uid: str
    verdict: str
    ms: float
    user: str = ""
    operation: str = ""
    resource: str = ""
    object: str = ""
    dry_run: bool = False
    rule: str = ""
    warned: str = ""
    would_deny: str = ""
    excepted: str = ""
    code: int = 200
    error: str = ""


def review_line(now: float, phase: str, reviewed: Reviewed, milliseconds: float) -> ReviewLine:
    """The line of a review; `now` in seconds since the epoch."""
    answer, asked = reviewed.answer, reviewed.review
    line = ReviewLine(now, "info", "review", phase, reviewed.uid, answer.verdict, round(milliseconds * 1000) / 1000)
    if asked is not None:
        line.user, line.operation, line.dry_run = asked.user.username, asked.operation, asked.dry_run
        line.resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        name = asked.shown_name
        line.object = f"{asked.namespace}/{name}" if asked.namespace else name
    if answer.code != 200:
        line.code, line.error = answer.code, answer.message
    elif answer.verdicts:
        line.rule, line.warned = ",".join(answer.rules), ",".join(answer.warned)
        line.would_deny, line.excepted = ",".join(answer.would_deny), ",".join(answer.excepted)
    return line
