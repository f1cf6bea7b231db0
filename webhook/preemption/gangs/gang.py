"""Which pods wait together, how many are needed, what holds them up (docs/semantics.md D12).

A group with a minimum is a gang: its members are of use only together. Bound ones stay.
Of those waiting as many are placed together as the minimum lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.columns import Rows
from webhook.preemption.snapshot.pod_groups import POD_GROUP, GroupKey, group_of, index_of, minimum_said_by
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot


class Gang(NamedTuple):
    """A group with members that wait for a node.

    `waiting` are those that may be placed now, in their order. Scheduling gates hold back so many as
    are `gated`. The others are on nodes, `secured` by row: bound and not leaving, or nominated together
    before. The nodes of all members have the same value of each label in `topology_keys`. Victims have
    a lower `priority`.
    """

    key: GroupKey
    minimum: int
    priority: int
    topology_keys: tuple[str, ...]
    waiting: tuple[Pod, ...]
    gated: int
    secured: Rows

    @property
    def missing(self) -> int:
        """How many are placed together: as many as the minimum lacks, else one."""
        return max(1, self.minimum - len(self.secured))

    @property
    def incomplete(self) -> str:
        """Why it is too early to place anybody; empty if it is not."""
        lacking = self.missing - len(self.waiting)
        if lacking <= 0:
            return ""
        bound, waiting = len(self.secured), len(self.waiting)
        text = f"{self.key} needs {self.minimum} pods: {bound} are bound and {waiting} wait"
        if self.gated >= lacking:
            return f"{text}, and {self.gated} are held back by scheduling gates"
        return f"{text}, so {lacking} more have to come"


def is_gang(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether the pod waits to be placed with others of its group."""
    if pod.spec.node_name:
        return False
    key = group_of(pod)
    return key.source == POD_GROUP or _minimum(snapshot, key, (pod,)) > 1


def form_gang(snapshot: Snapshot, pending: Iterable[Pod], nominated: Iterable[str] = ()) -> Gang:
    """The gang of these pods: all waiting members of a group, gated ones, too.

    Members `nominated` to these nodes count like bound ones. The PodGroup's priority counts if it has
    one, else the lowest of the waiting members. Raises ClusterError for a priority that is no int32.
    """
    members = sorted(pending, key=lambda pod: (-priority_of(pod), index_of(pod), key_of(pod)))
    key, pods = group_of(members[0]), snapshot.pods
    known = pods.grouped.objects.get(key)
    on_nodes = pods.grouped.members(pods.groups.find(key) or 0)
    bound = pods.node[on_nodes[~pods.terminating[on_nodes]]]
    waiting = tuple(pod for pod in members if not pod.spec.scheduling_gates)
    own = known.spec.priority if known else None
    return Gang(
        key=key,
        minimum=_minimum(snapshot, key, members),
        priority=min(map(priority_of, waiting or members)) if own is None else own,
        topology_keys=known.topology_keys if known else (),
        waiting=waiting,
        gated=len(members) - len(waiting),
        secured=np.append(bound, snapshot.nodes.rows_of(nominated)).astype(np.intp),
    )


def _minimum(snapshot: Snapshot, key: GroupKey, members: Iterable[Pod]) -> int:
    """How many members the group needs, by its PodGroup or its pods, else 1."""
    known = snapshot.pods.grouped.objects.get(key)
    said = known.minimum if known else max(map(minimum_said_by, members))
    return max(1, said)
