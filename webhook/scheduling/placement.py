"""Where a pod goes, and what kube-scheduler says when it goes nowhere."""

from __future__ import annotations

import numpy as np

from webhook.preemption.filters.filtering import Failures
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.scheduling.scores import View, scores

__all__ = ["best_node", "no_fit_message"]

NO_NODES = "no nodes available to schedule pods"


def best_node(view: View, incoming: PodInfo, failures: Failures) -> str | None:
    """The nominated node if the pod fits there, else the one with the best score, of equals the first by name."""
    nodes = view.snapshot.nodes
    fitting = failures.fits
    if not len(fitting):
        return None
    nominated = nodes.find(incoming.pod.status.nominated_node_name)
    if nominated is not None and nominated in fitting:
        return nodes.names[nominated]
    if len(fitting) == 1:
        return nodes.names[int(fitting[0])]
    total = scores(view, incoming, fitting)
    best = fitting[total == total.max()]
    return nodes.names[int(best[int(np.argmin(nodes.alphabetical()[best]))])]


def no_fit_message(snapshot: Snapshot, failures: Failures, preemption: str) -> str:
    """kube-scheduler's sentence: how many nodes fail for which reason, and what became of preemption."""
    known = snapshot.nodes.known()
    if not len(known):
        return NO_NODES
    rows = sorted(f"{count} {reason}" for reason, count in _reasons(known, failures).items())
    tail = f" {preemption}" if preemption else ""
    return f"0/{len(known)} nodes are available: {', '.join(rows)}.{tail}"


def _reasons(known: np.ndarray[tuple[int], np.dtype[np.intp]], failures: Failures) -> dict[str, int]:
    counts: dict[str, int] = {}
    codes = failures.code[known]
    for code in np.unique(codes[codes > 0]):
        check, at = failures.checks[code - 1], known[codes == code]
        if check.kind == "resources":
            for row in range(len(failures.lacking)):
                name, count = failures.counters[row].name, int(failures.lacking[row, at].sum())
                if count:
                    reason = f"Insufficient {name}" if name else "Too many pods"
                    counts[reason] = counts.get(reason, 0) + count
        else:
            counts[check.reason] = counts.get(check.reason, 0) + len(at)
    return counts
