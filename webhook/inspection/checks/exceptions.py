"""Exceptions of the policies: those that have ended, and until when the others let somebody in."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import Observed
from webhook.kube.instants import epoch
from webhook.policy.exceptions import exceptions

_SOON_SECONDS = 14 * 86_400


def listed(observed: Observed) -> Iterator[ClusterFinding]:
    """Every exception of the policies, in the order in which they end: a warning once it has ended, an info before."""
    for exception in exceptions(observed.policies, observed.now):
        about = f"The exception of {exception.who} from {names(exception.rules)}"
        said = f"(owner {exception.owner}: {exception.reason})"
        if exception.ended:
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"{about} ended {exception.until} {said}.",
                "It lets nobody in any more: what its rules refuse is refused to everybody again.",
                f"Take it out of {exception.source}, or agree on another end with {exception.owner}.",
            )
        elif epoch(exception.until) - observed.now <= _SOON_SECONDS:
            yield ClusterFinding(
                FindingSeverity.INFO,
                f"{about} ends soon: {exception.until} {said}.",
                "From then on its rules refuse what it lets in today.",
                f"Ask {exception.owner} whether all is ready; another end goes into {exception.source}.",
            )
        else:
            yield ClusterFinding(
                FindingSeverity.INFO,
                f"{about} holds until {exception.until} {said}.",
                "Until then its rules only warn whom it lets in.",
                f"Nothing, if that is still meant; it is in {exception.source}.",
            )
