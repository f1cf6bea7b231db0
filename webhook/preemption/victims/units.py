"""What goes together: one pod, or all members of a group (docs/semantics.md D10).

A group goes whole if its PodGroup or the policy says so. Its members are one unit, with one
priority: if one may not go, none may. By Kubernetes' own rules for one preemptor every pod is a unit.

What a group has above its minimum may go one by one: its members of the highest indices are units, at
the group's priority. If the others go, these go, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.snapshot.columns import Ints, Ints8, Ints32, Mask, Rows, ranked
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

_WHOLE, _NEVER = 1, 2
_LARGEST = 2**28 - 1
_UNSAID = -(2**31) - 1
"""Stands for a group without its own priority: no int32 is as low."""


class Units(NamedTuple):
    """Which pods go together, in columns by pod row.

    `group` is the id of the pod's group if it goes only with all of it, else 0. `above` is that of a
    group that goes whole but can spare the pod, else 0; None if none can. `never` are the pods whose
    group is never disrupted, None without any. `priority` is the group's for its members, else
    the pod's own. `sizes` counts members on nodes by the id of the group. `by_policy` is how groups go
    that do not say it.
    """

    group: Ints32
    never: Mask | None
    priority: Ints
    sizes: Ints
    above: Ints32 | None
    by_policy: GroupDisruption

    def importance(self, member_index: Ints32) -> Ints:
        """One number to order units.

        By priority; then groups, the larger first, single pods, and spared ones by `member_index`.
        """
        sizes = np.minimum(self.sizes, _LARGEST)
        sizes[0] = -(1 << 28)
        importance: Ints = (self.priority << 30) + sizes.take(self.group)
        if self.above is not None:
            spared = np.flatnonzero(self.above > 0)
            indices = np.minimum(member_index[spared], _LARGEST)
            importance[spared] = (self.priority[spared] << 30) - (2 << 28) - indices
        return importance

    @property
    def member_of(self) -> Ints32:
        """The id of the pod's group if it goes whole, with or without the pod; else 0."""
        return self.group if self.above is None else np.maximum(self.group, self.above)

    def goes_with(self, rows: Rows) -> Ints32:
        """If these pods go, the id of the group that each goes with, else 0."""
        member_of = self.member_of[rows]
        return np.where(np.isin(member_of, self.group[rows]), member_of, 0).astype(np.int32)

    def spread(self, marked: Mask) -> Mask:
        """The marked pods, and all members of groups that go with one of them."""
        return marked | self.groups_of(self.group[marked])[self.member_of]

    def groups_of(self, ids: Ints32) -> Mask:
        """By id of a group, whether it is among these; 0 never is."""
        there = np.bincount(ids, minlength=len(self.sizes)) > 0
        there[0] = False
        return there


def group_units(snapshot: Snapshot, rules: Rules, leaving: Mask | None = None) -> Units | None:
    """The units under these rules; None if every pod is its own unit.

    A group keeps none that is `leaving` anyway, by pod row.
    """
    pods, policy = snapshot.pods, rules.policy
    if policy is None or not pods.grouped:
        return None
    default, of_pod = policy.groups.disruption, pods.group[: pods.rows]

    def fate(key: GroupKey) -> int:
        if key == NO_GROUP:
            return 0
        if default is GroupDisruption.NEVER:
            return _NEVER
        known = pods.grouped.objects.get(key)
        says = known.goes_whole if known else None
        whole = default is GroupDisruption.GROUP if says is None else says
        return _WHOLE if whole else 0

    def own_priority(key: GroupKey) -> int:
        known = pods.grouped.objects.get(key)
        return _UNSAID if known is None or known.spec.priority is None else known.spec.priority

    grouped, ids = pods.grouped, pods.groups
    grouped.refresh(pods.priority, pods.beyond)
    table = snapshot.table(("group fate", grouped.version, default), ids, np.int8, fate)
    fates: Ints8 = table[: len(ids)]
    if not fates[1:].any():
        return None
    whole = fates == _WHOLE
    group = np.where(whole, np.arange(len(ids), dtype=np.int32), np.int32(0)).take(of_pod)
    group[pods.node[: pods.rows] < 0] = 0
    # The group's priority counts for its members; of a group that has none, the highest of them
    said = snapshot.table(("group priority", grouped.version), ids, np.int64, own_priority)[: len(ids)]
    said = np.where(said == _UNSAID, grouped.highest[: len(ids)], said)
    priority = np.where(group > 0, said.take(group), pods.priority[: pods.rows])
    never, above = fates == _NEVER, None
    spared = _spared(snapshot, leaving)
    spared = spared[group[spared] > 0]
    if len(spared):
        above = np.zeros(len(group), np.int32)
        above[spared], group[spared] = group[spared], 0
    sizes = np.where(whole, grouped.sizes[: len(ids)], 0)
    return Units(group, never[of_pod] if never.any() else None, priority, sizes, above, default)


def _spared(snapshot: Snapshot, leaving: Mask | None) -> Rows:
    """The members that their groups can spare, beside leaving ones."""
    pods = snapshot.pods
    spared = pods.grouped.above
    if leaving is None or not len(spared):
        return spared
    going = np.flatnonzero(leaving & ~pods.terminating[: pods.rows])
    touched = np.intersect1d(pods.group[going], pods.group[spared])
    parts = [spared[~np.isin(pods.group[spared], touched)]]
    for group in touched.tolist():
        key = pods.groups.values[group]
        assert key is not None
        members = pods.grouped.members(group)
        minimum = pods.grouped.objects[key].minimum
        parts.append(np.array(pods.beyond(members.tolist(), minimum, set(going.tolist())), np.intp))
    return np.sort(np.concatenate(parts))


class PodsOfNodes(NamedTuple):
    """The pods of some nodes that may go, by step, layer and node.

    A step is a unit, the most important first, its pods are in layers. `rows` are those of the pods, 0
    for no more. `core` is the step of the unit that is the rest of the group, for a pod that its group
    can spare and if that has a pod on the node, else the pod's own; None if no group can spare any.
    `across` says whether some may be on other nodes.
    """

    nodes: Rows
    rows: Rows
    core: Rows | None = None
    across: bool = False

    @property
    def units(self) -> Mask:
        """Where there is a unit: steps and nodes."""
        units: Mask = self.rows[:, 0] > 0
        return units

    def only(self, columns: Rows) -> PodsOfNodes:
        """The same of some of the nodes."""
        core = None if self.core is None else self.core.take(columns, axis=1)
        return PodsOfNodes(self.nodes[columns], self.rows.take(columns, axis=2), core, self.across)

    def of(self, some: Mask) -> Rows:
        """The pods of these units, 0 for the others."""
        return np.where(some[:, None], self.rows, 0)

    def in_units(self, units: Units) -> PodsOfNodes:
        """The same with what goes together at the step of the first pod."""
        pods, rows = self, self.rows[:, 0]
        group = units.group.take(rows)
        members = np.flatnonzero(group > 0)
        step, column = np.divmod(members, len(self.nodes))
        layer, first, _ = ranked(group.take(members).astype(np.int64) * len(self.nodes) + column)
        if layer.any():
            layered = np.zeros((len(rows), 1 + layer.max(), len(self.nodes)), np.intp)
            layered[:, 0] = rows
            layered[step, 0, column] = 0
            layered[step[first], layer, column] = rows[step, column]
            pods = self._replace(rows=layered)
        above = None if units.above is None else units.above.take(rows)
        if above is None or not above.any():
            return pods
        core = np.repeat(np.arange(len(rows))[:, None], len(self.nodes), axis=1)
        for at in (1 + np.flatnonzero(above[1:].any(axis=1))).tolist():
            same = (group[:at] == above[at]) & (above[at] != 0)
            there = np.flatnonzero(same.any(axis=0))
            core[at, there] = same[:, there].argmax(axis=0)
        return pods._replace(core=core)
