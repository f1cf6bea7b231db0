"""What goes together: a pod by itself, or all members of a group on all nodes (docs/semantics.md D10).

A group goes whole if its PodGroup or the policy says so. Then its members are one unit: it has one priority, and if one
member may not go, none may. By Kubernetes' own rules for one preemptor every pod is a unit of its own.

What a group has above its minimum may go one by one: its members of the highest indices are units of their own, at the
group's priority. If the others go, these go, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey
from webhook.preemption.snapshot.slot_orders import first_of_each
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

_WHOLE, _NEVER = 1, 2
_LARGEST = 2**28 - 1
_UNSAID = -(2**31) - 1
"""Stands for a group that has no priority of its own: no int32 is as low."""
_NOBODY: Rows = np.zeros(0, np.intp)


class Units(NamedTuple):
    """The groups that are no matter of single pods. Columns by pod row, if nothing else is said.

    `group` is the id of the pod's group if it goes only with all of that, else 0. `above` is the id of its group if
    that goes whole but can spare the pod, else 0; None if no group has members above a minimum. `never` are the pods
    whose group is never disrupted, None if there are none. `priority` is the group's for its members, else the pod's
    own. `sizes` has the number of members on nodes by the id of the group. `by_policy` is how groups go that do not say
    it themselves.
    """

    group: NDArray[np.int32]
    never: Mask | None
    priority: Ints
    sizes: Ints
    above: NDArray[np.int32] | None = None
    by_policy: GroupDisruption = GroupDisruption.GROUP

    def importance(self, member_index: NDArray[np.int32]) -> Ints:
        """One number to order units by: the priority, then groups, single pods, spared ones, then size or index.

        A larger group is more important, and of the spared ones the one of lower `member_index`.
        """
        sizes = np.minimum(self.sizes, _LARGEST)
        sizes[0] = -(1 << 28)
        importance: Ints = (self.priority << 30) + sizes[self.group]
        if self.above is not None:
            spared = np.flatnonzero(self.above)
            indices = np.minimum(member_index[spared], _LARGEST)
            importance[spared] = (self.priority[spared] << 30) - (2 << 28) - indices
        return importance

    @property
    def member_of(self) -> NDArray[np.int32]:
        """The id of the pod's group if that goes whole, whether it can spare the pod or not; else 0."""
        return self.group if self.above is None else np.maximum(self.group, self.above)

    def goes_with(self, rows: Rows) -> NDArray[np.int32]:
        """If these pods go, the id of the group that each of them goes with, 0 for one that goes by itself."""
        member_of = self.member_of[rows]
        return np.where(np.isin(member_of, self.group[rows]), member_of, 0).astype(np.int32)

    def spread(self, marked: Mask) -> Mask:
        """The marked pods, and all members of each group that goes whole with one of them."""
        hit = np.bincount(self.group[marked], minlength=len(self.sizes)) > 0
        hit[0] = False
        spread: Mask = marked | hit[self.member_of]
        return spread

    def kept_by(self, staying: Mask) -> Mask:
        """The pods that stay because another member of their group is `staying`, which these are."""
        if not staying.any():
            return staying
        kept = np.bincount(self.member_of[staying], minlength=len(self.sizes)) > 0
        kept[0] = False
        return kept[self.group] & ~staying


def group_units(snapshot: Snapshot, rules: Rules, leaving: Mask | None = None) -> Units | None:
    """The units of the snapshot under these rules; None if every pod is a unit of its own.

    Members that are `leaving` anyway, by pod row, are none that a group keeps.
    """
    pods, policy = snapshot.pods, rules.policy
    if policy is None or not pods.grouped:
        return None
    default = policy.groups.disruption

    def fate(key: GroupKey) -> int:
        if key == NO_GROUP:
            return 0
        known = pods.grouped.objects.get(key)
        says = known.goes_whole if known else None
        if default is GroupDisruption.NEVER:
            return _NEVER
        whole = default is GroupDisruption.GROUP if says is None else says
        return _WHOLE if whole else 0

    def own_priority(key: GroupKey) -> int:
        known = pods.grouped.objects.get(key)
        return _UNSAID if known is None or known.spec.priority is None else known.spec.priority

    grouped, version = pods.groups_now(), pods.grouped.version
    fates: NDArray[np.int8] = snapshot.table(("group fate", version, default), pods.groups, np.int8, fate)
    fates = fates[: len(pods.groups)]
    if not fates[1:].any():
        return None
    of_pod = pods.group[: pods.rows]
    whole = fates == _WHOLE
    group = np.where(whole, np.arange(len(fates), dtype=np.int32), 0).astype(np.int32)[of_pod]
    group[pods.node[: pods.rows] < 0] = 0
    group[0] = 0
    # The group's priority counts for its members; of a group that has none, the highest of them
    said = snapshot.table(("group priority", version), pods.groups, np.int64, own_priority)[: len(fates)]
    said = np.where(said == _UNSAID, grouped.highest[: len(fates)], said)
    priority = np.where(group > 0, said[group], pods.priority[: pods.rows])
    never = (fates == _NEVER)[of_pod] if (fates == _NEVER).any() else None
    units = Units(group, never, priority, np.where(whole, grouped.sizes[: len(fates)], 0), by_policy=default)
    spared = _spared(snapshot, leaving)
    spared = spared[group[spared] > 0]
    if not len(spared):
        return units
    core, above = group.copy(), np.zeros(len(group), np.int32)
    core[spared], above[spared] = 0, group[spared]
    return units._replace(group=core, above=above)


def _spared(snapshot: Snapshot, leaving: Mask | None) -> Rows:
    """The members that their groups can spare, beside those that are leaving."""
    pods = snapshot.pods
    spared = pods.grouped.above
    if leaving is None or not len(spared):
        return spared
    going = np.flatnonzero(leaving & ~pods.terminating[: pods.rows])
    parts = [spared]
    for group in np.intersect1d(pods.group[going], pods.group[spared]).tolist():
        members = pods.grouped.members(group)
        key = pods.groups.values[group]
        known = pods.grouped.objects.get(key) if key else None
        assert known is not None
        spared = spared[pods.group[spared] != group]
        parts.append(np.array(pods.beyond(members.tolist(), known.minimum, set(going.tolist())), np.intp))
    parts[0] = spared
    return np.sort(np.concatenate(parts))


class PodsOfNodes(NamedTuple):
    """The pods of some nodes: one column a node, most important first; `may_go` are the evictable ones.

    `leaders` has for each the step of the pod that stands for its unit; None if every pod stands for itself. `core` is
    for a pod that its group can spare the place of the unit that is the rest of the group, if that has a pod on the
    node, else the pod's own place; None if no group has any to spare. `across` says whether some may be on other nodes.
    """

    nodes: Rows
    rows: Rows
    may_go: Mask
    leaders: Rows | None = None
    core: Rows | None = None
    across: bool = False

    def only(self, columns: Rows) -> PodsOfNodes:
        """The same of some of the nodes."""
        leaders, core = (None if part is None else part.take(columns, axis=1) for part in (self.leaders, self.core))
        rows, may_go = self.rows.take(columns, axis=1), self.may_go.take(columns, axis=1)
        return PodsOfNodes(self.nodes[columns], rows, may_go, leaders, core, self.across)

    def in_steps(self) -> Rows:
        """The pods that may go, those of a unit at the place of its leader: layers of rows of pods, 0 for no more."""
        rows, (step, column, to) = np.where(self.may_go, self.rows, 0), self.followers()
        layers = [rows]
        if len(step):
            layers = [rows.copy()]
            layers[0][step, column] = 0
        while len(step):
            _, first = np.unique(to * len(self.nodes) + column, return_index=True)
            layer = np.zeros_like(self.rows)
            layer[to[first], column[first]] = rows[step[first], column[first]]
            layers.append(layer)
            rest = np.ones(len(step), np.bool_)
            rest[first] = False
            step, to, column = step[rest], to[rest], column[rest]
        return np.stack(layers)

    def followers(self) -> tuple[Rows, Rows, Rows]:
        """The pods that go with another one of their node: step and column of each, and the step of its leader."""
        if self.leaders is None:
            return _NOBODY, _NOBODY, _NOBODY
        step, column = np.nonzero(~self.leads())
        return step, column, self.leaders[step, column]

    def of_units(self, some: Mask) -> Mask:
        """At the places of the leaders, whether some pod of their unit is among these."""
        step, column, to = self.followers()
        gathered = some.copy()
        np.logical_or.at(gathered, (to, column), some[step, column])
        gathered[step, column] = False
        return gathered

    def leads(self) -> Mask:
        """The pods that stand for their unit."""
        own = np.arange(len(self.rows))[:, None]
        leads: Mask = np.ones(self.rows.shape, np.bool_) if self.leaders is None else self.leaders == own
        return leads

    def members(self, leaders: Mask) -> Mask:
        """The pods whose unit's leader is among these."""
        return leaders if self.leaders is None else np.take_along_axis(leaders, self.leaders, axis=0)

    def in_units(self, first: NDArray[Any], units: Units) -> PodsOfNodes:
        """The same with their units; `first` has for each the step of the first one of its group, a row a node.

        If that may not go, the next one of its unit that may leads.
        """
        own = np.broadcast_to(np.arange(len(self.rows))[:, None], self.rows.shape)
        leaders = np.where(self.may_go, first.T, own)
        again = np.flatnonzero((self.may_go & ~np.take_along_axis(self.may_go, leaders, axis=0)).any(axis=0))
        if len(again):
            some = self.may_go[:, again]
            leaders[:, again] = first_of_each(np.where(some, units.group[self.rows[:, again]], 0).T).T
        pods = self if (leaders == own).all() else self._replace(leaders=leaders)
        above = None if units.above is None else np.where(self.may_go, units.above[self.rows], 0)
        if above is None or not above.any():
            return pods
        group, core = np.where(self.may_go, units.group[self.rows], 0), own.copy()
        for step in (1 + np.flatnonzero(above[1:].any(axis=1))).tolist():
            same = (group[:step] == above[step]) & (above[step] != 0)
            there = np.flatnonzero(same.any(axis=0))
            core[step, there] = same[:, there].argmax(axis=0)
        return pods._replace(core=core)
