"""What goes together: a pod by itself, or all members of a group on all nodes (docs/semantics.md D10).

A group goes whole if its PodGroup or the policy says so. Then its members are one unit: it has one priority, and if one
member may not go, none may. By Kubernetes' own rules for one preemptor every pod is a unit of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.policy.model import GroupDisruption
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

__all__ = ["Units", "group_units"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_WHOLE, _NEVER = 1, 2
_UNSAID = -(2**31) - 1
"""Stands for a group that has no priority of its own: no int32 is as low."""


class Units(NamedTuple):
    """The groups that are no matter of single pods. Columns by pod row, if nothing else is said.

    `group` is the id of the pod's group if that goes whole, else 0. `never` are the pods whose group is never
    disrupted. `priority` is the group's for its members, else the pod's own. `sizes` has the number of members on nodes
    by the id of the group.
    """

    group: NDArray[np.int32]
    never: Mask
    priority: Ints
    sizes: Ints

    def spread(self, marked: Mask) -> Mask:
        """The marked pods, and all members of each group that has one of them."""
        hit = np.bincount(self.group[marked], minlength=len(self.sizes)) > 0
        hit[0] = False
        spread: Mask = marked | hit[self.group]
        return spread


def group_units(snapshot: Snapshot, rules: Rules) -> Units | None:
    """The units of the snapshot under these rules; None if every pod is a unit of its own."""
    pods, policy = snapshot.pods, rules.policy
    if policy is None or not pods.grouped:
        return None
    default = policy.groups.disruption

    def fate(key: GroupKey) -> int:
        if key == NO_GROUP:
            return 0
        known = pods.grouped.object_of(key)
        says = known.goes_whole if known else None
        if default is GroupDisruption.NEVER:
            return _NEVER
        whole = default is GroupDisruption.GROUP if says is None else says
        return _WHOLE if whole else 0

    def own_priority(key: GroupKey) -> int:
        known = pods.grouped.object_of(key)
        return _UNSAID if known is None or known.spec.priority is None else known.spec.priority

    version = pods.grouped.version
    fates: NDArray[np.int8] = snapshot.table(("group fate", version, default), pods.groups, np.int8, fate)
    if not fates[1 : len(pods.groups)].any():
        return None
    of_pod = pods.group[: pods.rows]
    group = np.where((fates == _WHOLE)[of_pod] & (pods.node[: pods.rows] >= 0), of_pod, 0).astype(np.int32)
    group[0] = 0
    sizes = np.bincount(group, minlength=len(pods.groups)).astype(np.int64)
    sizes[0] = 0
    # The group's priority counts for its members; of a group that has none, the highest of them
    said: Ints = snapshot.table(("group priority", version), pods.groups, np.int64, own_priority)[: len(sizes)].copy()
    unsaid = np.flatnonzero((said == _UNSAID)[group] & (group > 0))
    if len(unsaid):
        np.maximum.at(said, group[unsaid], pods.priority[unsaid])
    priority = np.where(group > 0, said[group], pods.priority[: pods.rows])
    return Units(group, (fates == _NEVER)[of_pod], priority, sizes)
