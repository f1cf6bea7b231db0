"""The cluster's pods as columns, one row a pod, and every node's pods in order of importance.

Row 0 stands for "no pod". A node's pods are a row of `slots`, most important first, then zeros:
by higher priority, earlier start (docs/semantics.md D3), name and namespace.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.objects.pod import Pod
from webhook.policy.model.creation import at_creation
from webhook.preemption.snapshot.amounts import Amounts, occupied, wished
from webhook.preemption.snapshot.columns import Columns, Interner, Ints32, Rows, RowSet, array, grown, listed, take_out
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, PodGroups, group_of, index_of
from webhook.preemption.snapshot.pod_info import (
    NO_ANTI_AFFINITY,
    NO_CLAIMS,
    AntiAffinity,
    HostPorts,
    PodClaims,
    anti_affinity_of,
    claims_of,
    host_ports,
)
from webhook.preemption.snapshot.pod_view import (
    Identity,
    Owner,
    Profile,
    created_at,
    disruption_of,
    grace_of,
    health_of,
    owner_of,
    priority_of,
    profile_of,
    start_of,
)


class Pods(Columns):
    """Pods by row. `node` is the row of the pod's node, -1 for none and in unused rows.

    `nominated` is the row of the node that a pod without one is nominated to, else -1, as for
    a pod with scheduling gates. `grace` is how many seconds a pod gets to end, `gone_at` when
    the time of a terminating one is over, in seconds, infinite if it cannot be read.
    """

    node = array(np.int32, -1)
    nominated = array(np.int32, -1)
    priority = array(np.int64)
    start = array(np.float64)
    created = array(np.float64)
    terminating = array(np.bool_)
    gone_at = array(np.float64)
    grace = array(np.float64)
    disruption = array(np.int8)
    health = array(np.int8)
    identity = array(np.int32)
    profile = array(np.int32)
    owner = array(np.int32)
    port_set = array(np.int32)
    anti_set = array(np.int32)
    claim_set = array(np.int32)
    group = array(np.int32)
    member_index = array(np.int32)
    amounts = array(np.int64, lines=3)
    names = listed("")
    namespaces = listed("")
    uids = listed("")

    def __init__(self, nodes: Nodes, annotations: frozenset[str]) -> None:
        super().__init__()
        self.nodes = nodes
        self.annotations = annotations
        self.identities = Interner[tuple[Any, ...], Identity]()
        self.profiles = Interner[Profile, Profile]()
        self.owners = Interner[Owner, Owner]()
        self.ports = Interner[HostPorts, HostPorts]()
        self.anti = Interner[tuple[str, bytes], AntiAffinity]()
        self.claims = Interner[PodClaims, PodClaims]()
        self.groups = Interner[GroupKey, GroupKey]()
        self.grouped = PodGroups(self.groups)
        self.wishes: dict[int, Amounts] = {}
        """By row of a pod whose resize is deferred, what it wants beyond what it has."""
        self._unadvertised: dict[int, Amounts] = {}
        """By row, the amounts of pods asking for what no node has: anybody makes up names."""
        self._ending, self._nominees = RowSet(), RowSet()
        """Terminating and nominated pods: every look needs these few."""
        self.slots = np.zeros((16, 4), np.int32)
        self._index: dict[str, dict[str, int]] = {}
        self.new_row()  # row 0
        self.ports.take((), ())  # id 0 is "none" here and below
        self.anti.take(*NO_ANTI_AFFINITY)
        self.claims.take(NO_CLAIMS, NO_CLAIMS)
        self.groups.take(NO_GROUP, NO_GROUP)

    def find(self, namespace: str, name: str) -> int | None:
        """The row of a pod."""
        return self._index.get(namespace, {}).get(name)

    def rows_of(self, pods: Iterable[tuple[str, ...]]) -> Rows:
        """The rows of pods by namespace and name, ascending, without unknown ones."""
        return np.array(sorted(row for pod in pods if (row := self.find(*pod)) is not None), np.intp)

    def key(self, row: int) -> str:
        """`namespace/name` of a pod."""
        return f"{self.namespaces[row]}/{self.names[row]}"

    def on_node(self, row: int) -> list[int]:
        """The rows of the pods on a node, most important first."""
        self._fit_slots(row, 0)
        return [*self.slots[row, : self.nodes.pod_count[row]].tolist()]

    def width(self, nodes: Rows) -> int:
        """How many pods the fullest of these nodes has; the `slots` have a row for each."""
        self._fit_slots(self.nodes.rows, 0)
        return int(self.nodes.pod_count[nodes].max(initial=0))

    def slots_of(self, nodes: Rows) -> Ints32:
        """The nodes' pods, a row a node, most important first, as wide as the fullest."""
        width = self.width(nodes)
        return self.slots[nodes, :width]

    def leaving(self) -> Rows:
        """The rows of the terminating pods on nodes, ascending."""
        rows = self._ending.ascending()
        return rows[self.terminating[rows] & (self.node[rows] >= 0)]

    def nominees(self) -> Rows:
        """The rows of the nominated pods, ascending."""
        return self._nominees.ascending()

    @contextmanager
    def staying(self, rows: Rows) -> Iterator[None]:
        """While this lasts these pods, only expected to be terminating, are not."""
        before = self.terminating[rows]
        self.terminating[rows] = False
        try:
            yield
        finally:
            self.terminating[rows] = before

    def put(self, pod: Pod) -> str:
        """Add or update a pod; returns the uid of the one of its name before, empty for none.

        Raises ClusterError for what cannot be read, and changes nothing.
        """
        meta, spec, made = pod.metadata, pod.spec, at_creation(pod.metadata)
        amounts, wish, start, priority = occupied(pod), wished(pod), start_of(pod), priority_of(pod)
        ports, anti, claims = host_ports(pod), anti_affinity_of(pod), claims_of(pod) or NO_CLAIMS
        group, profile, owner = group_of(pod, made), profile_of(pod, self.annotations), owner_of(pod)
        labels, labels_made = meta.labels or {}, made.labels or {}
        index = self._index.setdefault(meta.namespace, {})
        row = index.get(meta.name)
        if row is None:
            row, stays = self.new_row(), False
            index[meta.name], self.names[row], self.namespaces[row] = row, meta.name, meta.namespace
        else:
            place = self._node_name(row), self.priority[row], self.start[row]
            stays = place == (spec.node_name, priority, start)
            self._drop_references(row)
            if not stays:
                self._leave(row)
        self.wishes.pop(row, None)
        if wish:
            self.wishes[row] = wish
        before, self.uids[row] = self.uids[row], meta.uid
        self.priority[row], self.start[row] = priority, start
        self.created[row] = created_at(meta, start)
        self.terminating[row] = ends = meta.deletion_timestamp is not None
        self._ending.keep(row, kept=ends)
        self.gone_at[row] = epoch_or(meta.deletion_timestamp, math.inf) if ends else math.inf
        self.grace[row] = grace_of(pod)
        self.disruption[row] = disruption_of(pod)
        self.health[row] = health_of(pod)
        now = tuple(sorted(labels.items()))
        made_with = () if labels_made == labels else (tuple(sorted(labels_made.items())),)
        identity = Identity(meta.namespace, labels, labels_made)
        self.identity[row] = self.identities.take((meta.namespace, now, *made_with), identity)
        self.profile[row] = self.profiles.take(profile, profile)
        self.owner[row] = self.owners.take(owner, owner)
        self.port_set[row] = self.ports.take(ports, ports)
        self.anti_set[row] = self.anti.take(*anti)
        self.claim_set[row] = self.claims.take(claims, claims)
        self.group[row] = joined = self.groups.take(group, group)
        self.member_index[row] = index_of(pod, made) if joined else 0
        if spec.node_name:
            self.grouped.join(row, joined)
        self._put_amounts(row, amounts)
        if not stays:
            self._enter(row, spec.node_name)
        self._nominate(row, "" if spec.node_name or spec.scheduling_gates else pod.status.nominated_node_name)
        return before

    def doubt_starts_after(self, latest: float) -> None:
        """Let pods that say they started after this, in seconds, have started when made.

        Who writes `status.startTime` could else protect a pod, or have it go before others.
        """
        later = np.flatnonzero(self.start > latest)
        for row in later[np.isfinite(self.start[later])].tolist():
            node = self._node_name(row)
            self._leave(row)
            self.start[row] = self.created[row]
            self._enter(row, node)

    def remove(self, namespace: str, name: str) -> str:
        """Forget a pod; returns its uid, empty if not known."""
        row = self.find(namespace, name)
        if row is None:
            return ""
        take_out(self._index, namespace, name)
        self._leave(row)
        self._nominate(row, "")
        self._drop_references(row)
        self._unadvertised.pop(row, None)
        self.wishes.pop(row, None)
        self._ending.keep(row, kept=False)
        before = self.uids[row]
        self.free(row)
        return before

    def _drop_references(self, row: int) -> None:
        self.grouped.leave(row, int(self.group[row]))
        self.identities.drop(int(self.identity[row]))
        self.profiles.drop(int(self.profile[row]))
        self.owners.drop(int(self.owner[row]))
        self.ports.drop(int(self.port_set[row]))
        self.anti.drop(int(self.anti_set[row]))
        self.claims.drop(int(self.claim_set[row]))
        self.groups.drop(int(self.group[row]))

    def beyond(self, members: Collection[int], minimum: int, leaving: Collection[int] = ()) -> list[int]:
        """A group's members (rows) that it can spare: all but the `minimum` of lowest index.

        It keeps nobody who is terminating or `leaving`. Below the minimum it spares nobody.
        """
        going = {row for row in members if self.terminating[row] or row in leaving}
        index, names = self.member_index, self.names
        order = sorted(members, key=lambda row: (row in going, int(index[row]), names[row]))
        return order[minimum:] if len(order) - len(going) >= minimum else []

    def advertise(self) -> None:
        """Take into the columns what pods asked for of resources that no node had until now."""
        self.fit(len(self.nodes.resources))
        for row, amounts in list(self._unadvertised.items()):
            self._put_amounts(row, amounts)

    def _put_amounts(self, row: int, amounts: Amounts) -> None:
        """Set a pod's amounts, also on its node; resources no node has decide nothing."""
        nodes, node = self.nodes, int(self.node[row])
        if nodes.resources.keys() >= amounts.keys():
            self._unadvertised.pop(row, None)
        else:
            self._unadvertised[row] = amounts
        if node >= 0:
            nodes.used[:, node] -= self.amounts[:, row]
        self.amounts[:, row] = [amounts.get(name, 0) for name in nodes.resources]
        if node >= 0:
            nodes.used[:, node] += self.amounts[:, row]
            nodes.pod_changes[node] += 1

    def _node_name(self, row: int) -> str:
        node = int(self.node[row])
        return self.nodes.names[node] if node >= 0 else ""

    def _enter(self, row: int, node_name: str) -> None:
        """Put the pod on its node."""
        if not node_name:
            return
        nodes = self.nodes
        self.node[row] = node = nodes.claim(node_name)
        nodes.used[:, node] += self.amounts[:, row]
        nodes.pod_changes[node] += 1
        count = int(nodes.pod_count[node])
        nodes.pod_count[node] = count + 1
        self._fit_slots(node, count + 1)
        slots = self.slots[node]
        at = bisect_left(slots[:count].tolist(), self._importance(row), key=self._importance)
        slots[at + 1 : count + 1] = slots[at:count]
        slots[at] = row

    def _leave(self, row: int) -> None:
        """Take the pod off its node."""
        node = int(self.node[row])
        if node < 0:
            return
        nodes = self.nodes
        self.node[row] = -1
        nodes.used[:, node] -= self.amounts[:, row]
        nodes.pod_changes[node] += 1
        count, slots = int(nodes.pod_count[node]), self.slots[node]
        nodes.pod_count[node] = count - 1
        at = slots[:count].tolist().index(row)
        slots[at : count - 1] = slots[at + 1 : count]
        slots[count - 1] = 0
        nodes.release(node)

    def _nominate(self, row: int, node_name: str) -> None:
        """Note the node the pod is nominated to, empty for none."""
        nodes, before = self.nodes, int(self.nominated[row])
        self.nominated[row] = node = nodes.claim(node_name) if node_name else -1
        self._nominees.keep(row, kept=node >= 0)
        if node >= 0:
            nodes.nominations[node] += 1
        if before >= 0:
            nodes.nominations[before] -= 1
            nodes.release(before)

    def _importance(self, row: int) -> tuple[int, float, str, str, int]:
        return (-int(self.priority[row]), float(self.start[row]), self.names[row], self.namespaces[row], row)

    def _fit_slots(self, node: int, count: int) -> None:
        height, width = self.slots.shape
        if node >= height:
            self.slots = np.pad(self.slots, ((0, max(height, node + 1 - height)), (0, 0)))
        if count > width:
            self.slots = grown(self.slots, 2 * width)
