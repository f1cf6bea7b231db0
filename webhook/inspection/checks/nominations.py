"""What nobody takes back: nominations, which keep room from others, and notices, for which pods get ready to leave.

docs/kubernetes-behaviour.md K9 and K11; docs/notice.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import Observed
from webhook.kube.instants import epoch_or, time_span
from webhook.policy.model.values import NOTICE, PLAN

_WHY = "kube-scheduler keeps the room free for the pod, and nobody clears a nomination that was never used."
_LONG = 600.0
"""Seconds after which a nomination is longer than any plan of the default timeout needs."""
_LATE = 60.0
"""Seconds past its deadline by which the reconciler has ended a plan, or past a notice by which it has asked."""


class _Notice(msgspec.Struct):
    """What is read of a notice; nothing of one that cannot be read."""

    by: str = ""


class _Plan(msgspec.Struct):
    """What is read of a plan; nothing of one that cannot be read."""

    deadline: str = ""


def stuck(observed: Observed) -> Iterator[ClusterFinding]:
    """Pending pods that are nominated to a node that is gone, for a plan that is over, or for very long."""
    nodes = None if "nodes" in observed.missing else {node.metadata.name for node in observed.nodes}
    for pod in observed.pods:
        if pod.node or not (pod.nominated or PLAN in pod.annotations):
            continue
        plan = _Plan()
        with suppress(msgspec.DecodeError, UnicodeError):
            plan = msgspec.json.decode(pod.annotations.get(PLAN, "{}"), type=_Plan)
        clear = '{"status":{"nominatedNodeName":null}}'
        fix = f"kubectl patch pod -n {pod.namespace} {pod.name} --subresource=status --type=merge -p '{clear}'"
        if nodes is not None and pod.nominated and pod.nominated not in nodes:
            what = f"Pod {pod.key} is nominated to node {pod.nominated}, which does not exist."
            yield ClusterFinding(FindingSeverity.WARNING, what, _WHY, fix)
        elif (late := observed.now - epoch_or(plan.deadline, observed.now)) > _LATE:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"The plan on pod {pod.key} should have ended {time_span(late)} ago.",
                "No reconciler leads, or the pod's scheduler is not at work: a plan with room stands until it is. "
                + _WHY,
                "Look whether a reconciler leads and the scheduler runs; docs/operations.md says how to clear plans.",
            )
        elif PLAN not in pod.annotations and (since := observed.now - epoch_or(pod.nominated_at, observed.now)) > _LONG:
            by = f" by {pod.nominated_by}" if pod.nominated_by else ""
            what = f"Pod {pod.key} has been nominated to node {pod.nominated}{by} for {time_span(since)}."
            yield ClusterFinding(FindingSeverity.WARNING, what, _WHY, f"Ask whoever nominated it; to clear it: {fix}")


def overdue_notices(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods whose notice is over, and that neither leave nor were told that they stay."""
    for pod in observed.pods:
        if NOTICE not in pod.annotations:
            continue
        notice = _Notice()
        with suppress(msgspec.DecodeError, UnicodeError):
            notice = msgspec.json.decode(pod.annotations[NOTICE], type=_Notice)
        if (late := observed.now - epoch_or(notice.by, observed.now)) > _LATE:
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"Pod {pod.key} has a notice that was over {time_span(late)} ago, and does not leave.",
                "No reconciler leads, or the API server lets it neither evict the pod nor take the notice off. The pod"
                " goes on getting ready to leave.",
                "Look whether a reconciler leads, and what its log says about the pod. If giveway is gone for good:"
                f" kubectl annotate pod -n {pod.namespace} {pod.name} {NOTICE}-",
            )
