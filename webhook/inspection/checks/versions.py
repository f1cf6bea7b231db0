"""The version of the API server against those that giveway needs and was tested on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import Observed
from webhook.kube.resources import OLDEST, RESIZES_SINCE, TESTED, minor_of


def untested(observed: Observed) -> Iterator[ClusterFinding]:
    """A server that is too old, or of a version on which nobody ran the tests; a webhook of another version."""
    probe, this = observed.own_state.probe, version("giveway")
    others = sorted((probe.versions if probe else frozenset()) - {this})
    if others:
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"giveway {names(others)} answers in this cluster, and this command is giveway {this}.",
            "Of two versions each may know fields of policies, rules and checks that the other does not.",
            "Bring the older one to the newer version: giveway install with its image, or install that command.",
        )
    minor, shown = minor_of(observed.version), observed.version.get("gitVersion", "of an unknown version")
    tested = " and ".join(f"1.{number}" for number in TESTED)
    if minor is not None and minor < OLDEST:
        yield ClusterFinding(
            FindingSeverity.ERROR,
            f"The API server is {shown}; giveway needs Kubernetes 1.{OLDEST} or newer.",
            "Older servers drop matchConditions: the webhook would be asked about every change of every pod.",
            "Upgrade the cluster first.",
        )
    elif minor is None or not min(TESTED) <= minor <= max(TESTED):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"The API server is {shown}; giveway was tested on {tested}.",
            "giveway relies on behaviour of Kubernetes (page kubernetes-behaviour of docs/), and nobody has looked"
            " whether this version keeps it.",
            "On a test cluster of this version run pytest tests/e2e --kubeconfig FILE, and giveway doctor --canary.",
        )
    elif minor not in TESTED:
        yield ClusterFinding(
            FindingSeverity.INFO,
            f"The API server is {shown}; giveway was tested on {tested}, and not on the versions between them.",
            "No change between them is known that matters (page kubernetes-behaviour of docs/).",
            "giveway doctor --canary checks the behaviour that matters most.",
        )


def without_resizes(observed: Observed) -> Iterator[ClusterFinding]:
    """Policies that evict for pods that want to grow in place, on a server whose pods never say so."""
    minor = minor_of(observed.version)
    growing = [policy.name for policy in observed.policies.preemption if policy.preemptors.resize]
    if growing and minor is not None and minor < RESIZES_SINCE:
        yield ClusterFinding(
            FindingSeverity.INFO,
            f"preemptors.resize is true in {names(growing)}, and the API server is older than 1.{RESIZES_SINCE}.",
            "No pod has the condition PodResizePending there, so nobody is evicted for one that wants to grow.",
            f"Nothing, if the cluster is going to be 1.{RESIZES_SINCE} or newer; else take resize out.",
        )
