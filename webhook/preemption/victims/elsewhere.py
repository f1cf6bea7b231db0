"""Pods on other nodes that stand in the preemptor's way (docs/semantics.md D15).

They are read off what refused a node: pods of its domain that anti-affinity of either side or a spread constraint
counts, and the users of a claim that only one pod may use.
"""

from __future__ import annotations

import numpy as np

from webhook.preemption.filters.filtering import PreFilterState
from webhook.preemption.snapshot.columns import Rows
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims

_MOST_PODS, _MOST_NODES = 32, 1000
"""Pods of one domain that are looked at for one reason, and nodes."""


def in_the_way(state: PreFilterState, victims: PotentialVictims, nodes: Rows) -> tuple[Rows, Rows]:
    """Of these nodes (rows) those whose domains can be cleared, and the pods on others that count there and may go.

    The most promising nodes come first. The pods are a row a node, 0 for no more; of too many the less important ones.
    """
    pods, tables = state.snapshot.pods, []
    rows = np.flatnonzero((victims.code == Exclusion.NONE) & (pods.node[: len(victims.code)] >= 0))
    for counter in state.counters:
        over = (counter.beside - counter.limit)[nodes]
        # Whoever spread counts may matter once others are gone; of the rest what refuses a node
        if counter.reach is None or not (counter.stage == "spread" or (over > 0).any()):
            continue
        _, domains = counter.reach
        adding = rows[counter.share(rows, pods.node[rows].astype(np.intp)) > 0]
        where = domains[pods.node[adding]]
        order = np.lexsort((-pods.start[adding], pods.priority[adding], where))
        adding, where = adding[order], where[order]
        given = np.bincount(where, counter.share(adding, pods.node[adding].astype(np.intp)), domains.max(initial=0) + 1)
        nodes = nodes[np.append(given, 0)[domains[nodes]] >= over]
        place = np.arange(len(where)) - np.searchsorted(where, where)
        table, kept = np.zeros((len(given) + 1, _MOST_PODS), np.intp), place < _MOST_PODS
        table[where[kept], place[kept]] = adding[kept]
        tables.append((domains, table))
    empty = np.zeros((len(nodes), 0), np.intp)
    elsewhere = np.concatenate([empty, *(table[domains[nodes]] for domains, table in tables)], axis=1)
    elsewhere[pods.node[elsewhere] == nodes[:, None]] = 0
    # Each of them once, by name: the order of the input does not matter
    rank = np.zeros(pods.rows, np.intp)
    rank[elsewhere] = 1
    by_name = sorted(np.flatnonzero(rank).tolist(), key=lambda row: (pods.names[row], pods.namespaces[row]))
    rank[by_name] = np.arange(len(by_name))
    elsewhere = np.take_along_axis(elsewhere, np.argsort(rank[elsewhere], axis=1), axis=1)
    elsewhere[:, 1:][elsewhere[:, 1:] == elsewhere[:, :-1]] = 0
    # In a large cluster the nodes for which the least important ones and the fewest go
    count, highest = np.count_nonzero(elsewhere, axis=1), pods.priority[elsewhere].max(axis=1, initial=-(2**31))
    best = np.lexsort((nodes, count, highest))[:_MOST_NODES]
    return nodes[best], elsewhere[best][:, elsewhere[best].any(axis=0)]
