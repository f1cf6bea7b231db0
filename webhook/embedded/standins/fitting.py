"""Where a pod goes, and what kube-scheduler says when it goes nowhere."""

from __future__ import annotations

import numpy as np

from webhook.preemption.filters.preemptor import Incoming
from webhook.preemption.filters.run import Failures
from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["best_node", "no_fit_message"]

NO_NODES = "no nodes available to schedule pods"
SCORED = 2
"""Resources that weigh when nodes are compared: cpu and memory, the first two rows."""


def best_node(snapshot: Snapshot, incoming: Incoming, failures: Failures) -> str | None:
    """The nominated node where it fits, else the node with the smallest used share; None if none fits."""
    nodes = snapshot.nodes
    known = nodes.known()
    fitting = known[failures.code[known] == 0]
    if not len(fitting):
        return None
    nominated = nodes.find(incoming.pod.status.nominated_node_name)
    if nominated is not None and nominated in fitting:
        return nodes.names[nominated]
    used, most = nodes.used[:SCORED, fitting], np.maximum(nodes.allocatable[:SCORED, fitting], 1)
    share = (used / most).sum(axis=0) + nodes.pod_count[fitting] / np.maximum(nodes.pod_limit[fitting], 1)
    return nodes.names[int(fitting[int(np.argmin(share))])]


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
