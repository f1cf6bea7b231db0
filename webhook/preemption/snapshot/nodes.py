"""The cluster's nodes as columns, a row a node, changed by single-node events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.bounded import Newest
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.placement import Taint
from webhook.preemption.snapshot.amounts import CPU, EPHEMERAL_STORAGE, MEMORY, allocatable
from webhook.preemption.snapshot.columns import Columns, Interner, Ints, Ints32, Mask, Rows, array, listed

MOST_LABEL_COLUMNS = 64
"""So many label columns are kept, those asked for last: tenants write keys into pods."""

TaintKey = tuple[tuple[str, str, str], ...]


class LabelColumn(NamedTuple):
    """One label over all nodes: the id of each node's value, -1 for none, and ids by value."""

    ids: Ints32
    values: dict[str, int]


class Nodes(Columns):
    """Nodes by row. A row that is not `valid` holds pods of an unknown node.

    `allocatable` and `used` have a line a resource (millicores, bytes or counts). `pod_limit`
    and `pod_count` are numbers of pods, `nominations` that of pods only nominated there.
    """

    valid = array(np.bool_)
    unschedulable = array(np.bool_)
    taints = array(np.int32)
    pod_limit = array(np.int64)
    pod_count = array(np.int64)
    pod_changes = array(np.int64, kept=True)
    """How often a pod of the row has changed, also on earlier nodes (`slot_orders`)."""
    nominations = array(np.int64)
    allocatable = array(np.int64, lines=3)
    used = array(np.int64, lines=3)
    names = listed("")
    labels: list[dict[str, str]] = listed({})
    declared: list[frozenset[str]] = listed(frozenset())

    def __init__(self) -> None:
        super().__init__()
        self.resources = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}
        """Resources that nodes have had, with their lines in `used` and the pods' amounts."""
        self.taint_sets = Interner[TaintKey, list[Taint]]()
        self.taint_sets.take((), [])  # id 0, what an unused row holds
        self._index: dict[str, int] = {}
        self._columns = Newest[str, LabelColumn](MOST_LABEL_COLUMNS)
        self._alphabet: Ints | None = None

    def find(self, name: str) -> int | None:
        """The row of a known node."""
        row = self._index.get(name)
        return row if row is not None and self.valid[row] else None

    def rows_of(self, names: Iterable[str]) -> Rows:
        """The rows of these nodes, without unknown ones."""
        return np.array([row for name in names if (row := self.find(name)) is not None], np.intp)

    def known(self) -> Rows:
        """The rows of all known nodes."""
        return np.flatnonzero(self.valid[: self.rows])

    def put(self, node: Node) -> None:
        """Add or update a node. Raises ClusterError for what is no quantity."""
        amounts = allocatable(node)
        row = self.claim(node.metadata.name)
        self.pod_limit[row] = amounts.pop("pods", 0)
        for name in amounts:
            self.resources.setdefault(name, len(self.resources))
        if len(self.resources) > len(self.used):
            self.fit(len(self.resources))
        self.allocatable[:, row] = [amounts.get(name, 0) for name in self.resources]
        self.unschedulable[row] = node.spec.unschedulable
        taints, before = node.spec.taints or [], int(self.taints[row])
        key = tuple(sorted((taint.key, taint.value, taint.effect) for taint in taints))
        self.taints[row] = self.taint_sets.take(key, taints)
        self.taint_sets.drop(before)
        self._put_labels(row, node.metadata.labels or {})
        self.declared[row] = frozenset(node.status.declared_features or ())
        self.valid[row] = True

    def remove(self, name: str) -> None:
        """Forget a node; its row stays while pods are on it or nominated to it."""
        row = self._index.get(name)
        if row is None:
            return
        self.valid[row] = False
        self._put_labels(row, {})
        self.release(row)

    def claim(self, name: str) -> int:
        """The row of the name, made if it has none."""
        row = self._index.get(name)
        if row is not None:
            return row
        row = self.new_row()
        self.names[row] = name
        self.taints[row] = self.taint_sets.take((), [])
        self._alphabet = None
        self._columns.clear()
        self._index[name] = row
        return row

    def release(self, row: int) -> None:
        """Free the row if its node is unknown and no pod is on it or nominated to it."""
        if self.valid[row] or self.pod_count[row] or self.nominations[row]:
            return
        del self._index[self.names[row]]
        self.taint_sets.drop(int(self.taints[row]))
        self._alphabet = None
        self.free(row)

    def alphabetical(self) -> Ints:
        """By row the place of the name in alphabetical order."""
        if self._alphabet is None:
            self._alphabet = np.empty(len(self.names), np.int64)
            self._alphabet[sorted(range(self.rows), key=self.names.__getitem__)] = np.arange(self.rows)
        return self._alphabet

    def label(self, key: str) -> Ints32:
        """By row the id of the node's value of a label, -1 for none."""
        return self._columns.made(key, self._column, key).ids

    def values_of(self, key: str) -> dict[str, int]:
        """The nodes' values of a label with their ids in `label`."""
        return self._columns.made(key, self._column, key).values

    def has_label_in(self, key: str, values: Iterable[str]) -> Mask:
        """Which nodes have one of the values of a label, by row."""
        column, ids = self._columns.made(key, self._column, key)
        wanted = [ids[value] for value in values if value in ids]
        selected: Mask = column == wanted[0] if len(wanted) == 1 else np.isin(column, wanted)
        return selected

    def _column(self, key: str) -> LabelColumn:
        """The same each time until labels change."""
        values: dict[str, int] = {}
        given = (labels.get(key) for labels in self.labels)
        ids = [-1 if value is None else values.setdefault(value, len(values)) for value in given]
        return LabelColumn(np.array(ids, np.int32), values)

    def _put_labels(self, row: int, labels: dict[str, str]) -> None:
        if labels != self.labels[row]:
            self.labels[row] = labels
            self._columns.clear()
