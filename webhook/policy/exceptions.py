"""Exceptions with an end: what they say to whoever uses one, and which of them there are. Pure; the time is given."""

import msgspec

from webhook.kube.instants import rfc3339
from webhook.policy.evaluation.matching import rights_text
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition


class ExceptionState(msgspec.Struct, frozen=True, kw_only=True):
    """One exception as of now: from which rules (`policy/rule`), for whom, until when (RFC 3339), and if it is over."""

    rules: tuple[str, ...]
    who: str
    until: str
    owner: str
    reason: str
    ended: bool
    source: SourcePosition

    def __str__(self) -> str:
        """One line for people."""
        when = f"ended {self.until}" if self.ended else f"until {self.until}"
        return f"{', '.join(self.rules)}: {self.who}, {when} ({self.owner}: {self.reason})"


def exceptions(policies: Policies, now: float) -> list[ExceptionState]:
    """Every exception of a policy set as of `now` (seconds since the epoch), in the order in which they end."""
    rows = [(policy.name, exception) for policy in policies.priority for exception in policy.exceptions]
    rows.sort(key=lambda row: row[1].until)
    return [
        ExceptionState(
            rules=tuple(f"{name}/{rule}" for rule in exception.rules),
            who=rights_text((exception.match,)),
            until=rfc3339(exception.until),
            owner=exception.owner,
            reason=exception.reason,
            ended=exception.until <= now,
            source=exception.source,
        )
        for name, exception in rows
    ]


def ended_findings(policies: Policies, now: float) -> list[Finding]:
    """A warning for each exception that has ended: its rules hold for everybody again, and it can be taken out."""
    return [
        Finding(
            severity=Severity.WARNING,
            source=exception.source,
            message=f"the exception of {exception.who} from {', '.join(exception.rules)} ended {exception.until}; "
            f"take it out, or ask its owner for another end ({exception.owner}: {exception.reason})",
        )
        for exception in exceptions(policies, now)
        if exception.ended
    ]


def next_end(policies: Policies, now: float) -> float | None:
    """When the next exception ends, in seconds since the epoch; None if none does."""
    ends = [exception.until for policy in policies.priority for exception in policy.exceptions if exception.until > now]
    return min(ends, default=None)
