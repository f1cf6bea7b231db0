"""Exceptions of the policies: those that have ended, and until when the others let somebody in."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import Observed
from webhook.kube.instants import epoch
from webhook.policy.exceptions import ExceptionState, exceptions

__all__ = ["listed"]

_SOON_SECONDS = 14 * 86_400


def listed(observed: Observed) -> Iterator[ClusterFinding]:
    """Every exception of the policies, in the order in which they end: a warning once it has ended, an info before."""
    return (_finding(one, observed.now) for one in exceptions(observed.policies, observed.now))


def _finding(one: ExceptionState, now: float) -> ClusterFinding:
    about = f"The exception of {one.who} from {names(one.rules)}"
    said = f"(owner {one.owner}: {one.reason})"
    if one.ended:
        return ClusterFinding(
            FindingSeverity.WARNING,
            f"{about} ended {one.until} {said}.",
            "It lets nobody in any more: what its rules refuse is refused to everybody again.",
            f"Take it out of {one.source}, or agree on another end with {one.owner}.",
        )
    if epoch(one.until) - now <= _SOON_SECONDS:
        return ClusterFinding(
            FindingSeverity.INFO,
            f"{about} ends soon: {one.until} {said}.",
            "From then on its rules refuse what it lets in today.",
            f"Ask {one.owner} whether all is ready; another end goes into {one.source}.",
        )
    return ClusterFinding(
        FindingSeverity.INFO,
        f"{about} holds until {one.until} {said}.",
        "Until then its rules only warn whom it lets in.",
        f"Nothing, if that is still meant; it is in {one.source}.",
    )
