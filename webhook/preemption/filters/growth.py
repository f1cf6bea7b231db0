"""What a pod that is bound and wants to grow in place uses up: resources of its own node, and nothing else.

The kubelet grants a resize if the pod fits with what it wants now beside what the others were allotted or have. What
others want and have not got does not count there (docs/kubernetes-behaviour.md K53): nobody goes for a neighbour's
wish.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.counters import UNBOUNDED, Counter, column_share
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.snapshot import Snapshot

Rows = NDArray[np.intp]


def growth_counters(snapshot: Snapshot, incoming: PodInfo, without: Rows) -> list[Counter]:
    """A counter for each resource that the pod asks for, as if the pods in the rows `without` were gone.

    What the pod wants is counted on its node already; only there is anything bounded.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    count, node = nodes.rows, nodes.find(incoming.pod.spec.node_name)
    own = pods.find(incoming.namespace, incoming.name)
    gone = without[pods.node[without] >= 0]
    counters = [
        Counter(
            stage="resources",
            base=np.zeros(count, np.int64),
            limit=np.full(count, UNBOUNDED),
            share=column_share(np.zeros(pods.node.shape, np.int64)),
        )
    ]
    for name in sorted(incoming.amounts):
        row = nodes.resources.index.get(name)
        if row is None or row >= len(pods.amounts) or node is None:
            continue
        column = pods.amounts[row].copy()
        base = nodes.used[row, :count].copy()
        for other, wish in pods.wishes.items():
            if other != own:
                column[other] -= wish.get(name, 0)
                if pods.node[other] >= 0:
                    base[pods.node[other]] -= wish.get(name, 0)
        np.subtract.at(base, pods.node[gone], column[gone])
        limit = np.full(count, UNBOUNDED)
        limit[node] = nodes.allocatable[row, node]
        counters.append(Counter(stage="resources", base=base, limit=limit, share=column_share(column), name=name))
    return counters
