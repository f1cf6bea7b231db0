"""The pods of some nodes as matrices, one column a node, and which of them go together there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.preemption.victims.units import Units


class Followers(NamedTuple):
    """Pods that go with another one of their node: the `step` and `column` of each, and the step `to` of its leader."""

    step: Rows
    column: Rows
    to: Rows

    @classmethod
    def of(cls, leaders: NDArray[Any], may_go: Mask) -> Followers | None:
        """Those that may go; None if there are none. `leaders` has the steps of the leaders, a row a node.

        Where a leader may not go, the next one of its unit that may leads.
        """
        column, step = np.divmod(np.flatnonzero(leaders != np.arange(leaders.shape[1])), leaders.shape[1])
        goes = may_go[step, column]
        column, step = column[goes], step[goes]
        if not len(step):
            return None
        to = leaders[column, step].astype(np.intp)
        stays = np.flatnonzero(~may_go[to, column])
        if len(stays):
            _, first, of = np.unique(to[stays] * len(leaders) + column[stays], return_index=True, return_inverse=True)
            to[stays] = step[stays[first]][of]
            step, column, to = (part[step != to] for part in (step, column, to))
        return cls(step, column, to)

    def only(self, columns: Rows, width: int) -> Followers:
        """The same of some of the `width` columns."""
        place = np.full(width, -1)
        place[columns] = np.arange(len(columns))
        left = place[self.column] >= 0
        return Followers(self.step[left], place[self.column[left]], self.to[left])


class PodsOfNodes(NamedTuple):
    """The pods of some nodes: one column a node, most important first; `may_go` are the evictable ones.

    `followers` go with a leader, the pod that stands for its unit; None if every pod stands for itself. `core` is for a
    pod that its group can spare the place of the unit that is the rest of the group, if that has a pod on the node,
    else the pod's own place; None if no group has any to spare. `on` has the node that each pod is on; None if all are
    on the node of their column.
    """

    nodes: Rows
    rows: Rows
    may_go: Mask
    followers: Followers | None = None
    core: Rows | None = None
    on: Rows | None = None

    def only(self, columns: Rows) -> PodsOfNodes:
        """The same of some of the nodes."""
        followers = None if self.followers is None else self.followers.only(columns, len(self.nodes))
        core = None if self.core is None else self.core.take(columns, axis=1)
        rows, may_go = self.rows.take(columns, axis=1), self.may_go.take(columns, axis=1)
        on = None if self.on is None else self.on.take(columns, axis=1)
        return PodsOfNodes(self.nodes[columns], rows, may_go, followers, core, on)

    def of_units(self, some: Mask) -> Mask:
        """At the places of the leaders, whether some pod of their unit is among these."""
        if self.followers is None:
            return some
        step, column, to = self.followers
        gathered = some.copy()
        np.logical_or.at(gathered, (to, column), some[step, column])
        gathered[step, column] = False
        return gathered

    def leaders(self) -> Rows:
        """For each pod the step of the one that stands for its unit."""
        leaders = np.broadcast_to(np.arange(len(self.rows))[:, None], self.rows.shape).copy()
        if self.followers is not None:
            leaders[self.followers.step, self.followers.column] = self.followers.to
        return leaders

    def leads(self) -> Mask:
        """The pods that stand for their unit."""
        leads: Mask = self.leaders() == np.arange(len(self.rows))[:, None]
        return leads

    def members(self, leaders: Mask) -> Mask:
        """The pods whose unit's leader is among these."""
        if self.followers is None:
            return leaders
        members: Mask = np.take_along_axis(leaders, self.leaders(), axis=0)
        return members

    def in_units(self, leaders: NDArray[Any], units: Units) -> PodsOfNodes:
        """The same with their units; `leaders` has for each the step of the first one of its group, a row a node."""
        pods = self._replace(followers=Followers.of(leaders, self.may_go))
        above = None if units.above is None else np.where(self.may_go, units.above[self.rows], 0)
        if above is None or not above.any():
            return pods
        group = np.where(self.may_go, units.group[self.rows], 0)
        core = np.broadcast_to(np.arange(len(group))[:, None], group.shape).copy()
        for step in (1 + np.flatnonzero(above[1:].any(axis=1))).tolist():
            same = (group[:step] == above[step]) & (above[step] != 0)
            there = np.flatnonzero(same.any(axis=0))
            core[step, there] = same[:, there].argmax(axis=0)
        return pods._replace(core=core)
