"""Who else comes to a candidate: kube-scheduler places pods of higher priority first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A waiting pod of higher
priority takes what is emptied if it fits there. So the preemptor has to fit beside all that
come when its victims are gone, in three states: with pods that leave anyway, without them,
and with victims that another plan has yet to ask. It shares no node with a pod that takes
its host port, or its claim for one pod alone, or that anti-affinity keeps from it.

A nomination reserves no devices, and they come free claim by claim
(docs/reconciler.md#devices). Until it can have all, the preemptor gets none, and who wants
less takes what is free: a waiting pod of any priority and scheduler, or one in a victim's
place (docs/kubernetes-behaviour.md K43).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits, fits_on
from webhook.preemption.filters.devices import DeviceFilter, needs_devices, without_devices
from webhook.preemption.filters.filtering import NO_PODS, prefilter, reserving
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod, for_any_node, node_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidate, Candidates
from webhook.preemption.victims.selection import fits_without
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import (
    Evaluator,
    amounts_on,
    count_on,
    free_without,
    mask_of,
    needed_by,
    on_nodes,
    share_no_node,
)
from webhook.reconciler.evaluate.outcomes import NOTHING_PROMISED, Promised
from webhook.reconciler.preemptors import unschedulable_since
from webhook.reconciler.state.pod_indexes import device_claims_of

AHEAD = 9
"""The code of candidates that pods of higher priority would take."""
_GROUPS = 100
"""Groups of pods in front that are looked at."""
_CANDIDATES = 16
"""The best candidates that are looked at for devices, one by one."""
_DEVICE_GROUPS = 16
"""Groups of others that wait for devices that are looked at."""
_AT_ONCE = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Controllers that replace a pod as it leaves or is gone. A Job waits ten seconds."""
_Coming = tuple[list[Pod], PodInfo, Ints, Ints, Ints]
"""Pods alike, one compiled, what it needs; how many come and are nominated, by candidate."""


@dataclass(eq=False)
class PodsAhead:
    """Whether candidates are left to the preemptor and pods beside it (`CandidateFilter`).

    Those of lower priority keep room made for them (`Promised.held`). The victims of a
    `plan` (id) go together. The `others` of its gang take nothing from it.
    """

    evaluator: Evaluator
    pods: Sequence[Pod]
    at: Now
    promised: Promised = NOTHING_PROMISED
    plan: str = ""
    others: Collection[Pod] = ()
    blocking: str = ""
    """Why the first candidate is not left to it, for people; empty if all are."""

    def __post_init__(self) -> None:
        self._state, self._snapshot = self.evaluator.state, self.evaluator.state.snapshot
        self._pods = sorted(self.pods, key=priority_of)
        self._served = {key_of(pod) for pod in (*self.pods, *self.others)}
        """Those who take nothing from the preemptor."""
        self.groups = self._state.index.groups(ahead_of=self._pods[0])[:_GROUPS]
        """The waiting pods of higher priority, the most important first."""
        self._fitting: dict[str, Rows | None] = {}
        """What `_nodes_for` says, by uid."""
        self._needed: dict[str, DeviceFilter | None] = {}
        """What pods need of devices, by uid."""

    @cached_property
    def _own(self) -> list[tuple[PodInfo, Ints]]:
        """What each preemptor needs, the least important first."""
        return [(pod, needed_by(self._snapshot, pod)) for pod in map(compile_pod, self._pods)]

    def taken(self, victims: Rows) -> set[str]:
        """The nodes that others take once these pods are gone, without held room."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        victims = victims[np.argsort(pods.node[victims], kind="stable")]
        nodes = pods.node[victims].astype(np.intp)
        candidates = Candidates.on_nodes(snapshot, nodes, victims)
        return set(candidates.names(np.flatnonzero(self._lost(candidates))))

    def taker(self, node: str, victims: Rows, *, evicts: bool) -> str:
        """Why they do not get a node without these victims; empty if they do.

        If nobody `evicts` them, neither held room counts nor who takes part of the devices.
        """
        if not len(victims) and not evicts:
            return ""
        nobody = np.zeros(len(victims), np.bool_)
        first = np.zeros(1, np.intp)
        here = self._snapshot.nodes.rows_of((node,)), first, np.array([len(victims)])
        candidate = Candidates(self._snapshot, *here, victims, nobody, first, nobody.astype(np.intp))
        if (self(candidate) if evicts else self._lost(candidate)).any():
            return self.blocking
        takers = (self.takes_devices(pod, node, victims, evicts=evicts) for pod in self._pods)
        return next(filter(None, takers), "")

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for candidates left to the preemptor, else AHEAD."""
        snapshot, lost = self._snapshot, self._lost(candidates)
        for node, lower in self.promised.held.items():
            # Those of lower priority for whom pods went keep their room.
            there = np.isin(candidates.nodes, snapshot.nodes.rows_of((node,)))
            if not there.any():
                continue
            here, last = candidates.only(there), min(lower, key=priority_of)
            both = PodsAhead(self.evaluator, (last, *self._pods), self.at, plan=self.plan)
            pairs = product((pod for pod, _ in self._own), map(compile_pod, lower))
            apart = any(share_no_node(snapshot, pod, low, here.nodes).any() for pod, low in pairs)
            if apart or both._lost(here, crowded=True).any():
                lost |= there
                self.blocking = self.blocking or _kept_for(last)
        return lost * np.int8(AHEAD)

    def _lost(self, candidates: Candidates, *, crowded: bool = False) -> Mask:
        """Which candidates others take; if `crowded`, also without room beside nominees.

        Pods of higher priority are placed first. Nominees keep room, wherever they will be.
        """
        snapshot, nodes = self._snapshot, candidates.nodes
        lost = np.zeros(len(nodes), np.bool_)
        if not len(nodes) or not (self.groups or crowded):
            return lost
        free = free_without(candidates)
        nominees = reserving(snapshot, self._own[0][0], snapshot.pod_rows(self._served))
        beside = amounts_on(candidates, nominees, snapshot.pods.nominated[nominees])
        beside += sum(need[:, None] for _, need in self._own)
        lost |= crowded & (free < beside).any(axis=0)
        for (room, gone), order in product(self._rooms(candidates, free), (1, -1)):
            left = room - beside
            for _, example, need, number, there in self._come(candidates, room, gone, order):
                left -= need[:, None] * np.maximum(number - there, 0)
                taken = (left < 0).any(axis=0)
                for pod, _ in self._own:
                    apart = share_no_node(snapshot, pod, example, nodes)
                    # Wherever it comes, it may keep others out of its zone.
                    if apart.any() and (elsewhere := self._nodes_for(example.pod)) is not None:
                        lost |= share_no_node(snapshot, pod, example, nodes, elsewhere)
                    taken |= apart
                lost |= taken & ((number > 0) | (there > 0))
                if not self.blocking and lost.any():
                    self.blocking = _kept_for(example.pod)
        return lost

    def _come(self, candidates: Candidates, free: Ints, gone: Rows, order: int) -> Iterator[_Coming]:
        """Who comes before the preemptor if so much is `free`; of a gang only all.

        The most important come first, by an `order` of -1 last. The victims and the rows
        `gone` have left. Victims on other nodes have left all candidates: they may be in
        the way of these, too. Of those placed together more important ones come
        before them.
        """
        snapshot, room, state = self._snapshot, free.copy(), self._state
        gone = np.union1d(gone, candidates.pods[~candidates.here() & (candidates.group == 0)])
        for group in self.groups[::order]:
            alike = [pod for key, pod in group.pods.items() if key not in self._served]
            if not alike:
                continue
            example = alike[0]
            try:
                pod = compile_pod(for_any_node(example))
            except ClusterError:
                continue
            need = needed_by(snapshot, pod)
            if pod.beyond or need[0] > 1:
                continue  # it fits nowhere, or nobody knows where
            there = count_on(candidates, (pod.status.nominated_node_name for pod in alike))
            before = sum(own[:, None] for other, own in self._own if other.priority >= group.priority)
            times = (room - before)[need > 0] // need[need > 0, None]
            count = np.clip(times.min(axis=0), 0, len(alike))
            if node_of(example):
                count = np.minimum(count, count_on(candidates, map(node_of, alike)))
            if count.any():
                count *= self._fits(pod, candidates, gone)
            if example.spec.scheduling_group:
                missing = form_gang(snapshot, state.waiting_members(group_of(example))).missing
                count = np.where(count < missing, np.minimum(count, there), count)
            if count.any() and self._nodes_for(example) is None:
                count *= 0
            room -= need[:, None] * count
            yield alike, pod, need, count, there

    def _fits(self, pod: PodInfo, candidates: Candidates, gone: Rows) -> Mask:
        """The candidates where a pod fits without the victims and the rows `gone`."""
        snapshot, nodes = self._snapshot, candidates.nodes
        going = mask_of(self._state, candidates.pods)
        fits_there = fits_without(prefilter(snapshot, pod, gone), going, nodes)
        if needs_devices(snapshot, pod):
            # Named claims may stay in use, or come free for others: it may get devices.
            users = snapshot.pod_rows(self._state.index.sharing())
            users = np.intersect1d(users, np.append(candidates.pods, gone))
            bare = prefilter(snapshot, without_devices(snapshot, pod), gone)
            unsure = np.isin(nodes, snapshot.pods.node[users])
            fits_there |= unsure & fits_without(bare, going, nodes)
        return fits_there

    def _nodes_for(self, example: Pod) -> Rows | None:
        """The nodes (rows) where a pod fits; None if its scheduler leaves it pending."""
        uid, snapshot = example.metadata.uid, self._snapshot
        if uid not in self._fitting:
            nodes = fits(snapshot, for_any_node(example))
            late = self.evaluator.schedulers.overdue(example, fits=bool(nodes), now=self.at.monotonic)
            self._fitting[uid] = None if late else snapshot.nodes.rows_of(nodes)
        return self._fitting[uid]

    def _rooms(self, candidates: Candidates, free: Ints) -> Iterator[tuple[Ints, Rows]]:
        """What is free in each possible state, and who left besides victims."""
        pods, pending, victims = self._snapshot.pods, self._state.pending, candidates.pods
        yield free, NO_PODS
        leaving = self.evaluator.leaving_within(math.inf, self.at)
        later = np.setdiff1d(leaving, victims)
        later = later[np.isin(pods.node[later], candidates.nodes)]
        if len(later):
            yield free + amounts_on(candidates, later, pods.node[later]), later
        # Victims that another plan has yet to ask may leave last
        planned = victims[candidates.here() & np.isin(victims, leaving)].tolist()
        staying = [row for row in planned if pending.leaves_for(pods.key(row)) - {self.plan}]
        if staying:
            yield free - amounts_on(candidates, np.array(staying), pods.node[staying]), NO_PODS

    # Devices, node by node.

    def first_left(self, decision: Decision) -> Candidate | None:
        """The best candidate of which nobody takes devices; None without one."""
        for candidate in decision.shortlist(_CANDIDATES):
            victims = self._snapshot.pod_rows([row.key for row in candidate.victims])
            if not (why := self.takes_devices(self._pods[0], candidate.node, victims)):
                return candidate
            self.blocking = self.blocking or why
        return None

    def takes_devices(self, pod: Pod, host: str, victims: Rows, *, evicts: bool = True) -> str:
        """Who takes devices on a node before a preemptor has its own; empty if nobody.

        When the victims are gone lower pods get what they wait for, then pods in front.
        """
        snapshot, own = self._snapshot, self._device_needs(pod)
        pods, claims = snapshot.pods, snapshot.device_claims
        node = snapshot.nodes.find(host)
        rows = np.union1d(victims, on_nodes(snapshot, pods.leaving(), (host,)))
        if node is None or not own or not len(rows):
            return ""
        uids = {pods.uids[row] for row in rows.tolist()}
        candidate = Candidates.on_nodes(snapshot, np.full(len(rows), node), rows)
        # 1. What is held for lower pods, and what those in front take.
        lower = self.promised.held.get(host, ())
        held = {device for low in lower for device in claims.planned_for(low.metadata.uid)}
        free = free_without(candidate)
        for order in (1, -1):
            gone, settled, taken = set(uids), set[str](), set(held)
            taker = lower[0] if held else None
            for alike, _, _, number, _ in self._come(candidate, free, NO_PODS, order):
                example = min(alike, key=lambda pod: bool(claims.planned_for(pod.metadata.uid)))
                if not number[0] or not (needs := self._device_needs(example)):
                    continue
                gone |= {other.metadata.uid for other in alike}
                for _ in range(int(number[0])):
                    if not (devices := needs.allocation(node, gone, taken, settled)):
                        break
                    taken, taker = taken.union(devices), example
                    settled |= device_claims_of(example, made=False)
            if taker and own.allocation(node, gone, taken, settled) is None:
                return _kept_for(taker)
        # 2. What others take while a holder is left. A nomination keeps other room.
        holders = [row for row in rows.tolist() if claims.used_by(pods.uids[row])]
        if not evicts or len(holders) < 2:
            return ""
        last = [row for row in holders if own.allocation(node, uids - {pods.uids[row]}) is None]
        beside = free[:, 0] - needed_by(snapshot, compile_pod(pod))
        for who, part in self._take_parts(candidate, last, beside) if last else ():
            if own.allocation(node, gone, taken.union(part), settled) is None:
                return f"devices come free one by one, and {who} would take a part of them first"
        return ""

    def _take_parts(
        self, candidate: Candidates, last: Sequence[int], beside: Ints
    ) -> Iterator[tuple[str, Collection[DeviceId]]]:
        """Who takes which devices while one of the `last` is there, and so much `beside` it.

        Of each group a pod counts if its scheduler looks at it and no plan holds any for it.
        """
        snapshot, node = self._snapshot, int(candidate.nodes[0])
        pods, claims = snapshot.pods, snapshot.device_claims
        uids = {pods.uids[row] for row in candidate.pods.tolist()}
        for row in last:
            owner, used = pods.owners.values[pods.owner[row]], pods.amounts[:, row]
            if owner and owner.kind in _AT_ONCE and (used <= beside[1 : 1 + len(used)]).all():
                keys = claims.used_by(pods.uids[row])
                devices = [device for key in keys for device in devices_of(claims.claims[key])]
                yield f"the pod that {owner.kind} {owner.name} puts in place of a victim", devices
        counted = self._served.union(*(group.pods for group in self.groups))
        groups = self._state.index.groups()
        asking = [group for group in groups if self._device_needs(group.example)]
        for group in asking[:_DEVICE_GROUPS]:
            others = (pod for key, pod in group.pods.items() if key not in counted)
            example = next((pod for pod in others if not claims.planned_for(pod.metadata.uid)), None)
            needs = example and self._device_needs(example)
            if not example or not needs or unschedulable_since(example) is None:
                continue
            has_room = (needed_by(snapshot, compile_pod(example)) <= beside).all()
            host = snapshot.nodes.names[node]
            if has_room and fits_on(snapshot, example, host, without=candidate.pods):
                for row in last:
                    if part := needs.allocation(node, uids - {pods.uids[row]}):
                        yield _waiting(example), part

    def _device_needs(self, pod: Pod) -> DeviceFilter | None:
        """What devices the pod needs; None for none, or if nobody can tell."""
        uid, snapshot = pod.metadata.uid, self._snapshot
        if uid not in self._needed:
            self._needed[uid] = None
            with suppress(ClusterError):
                incoming = compile_pod(pod)
                if needs_devices(snapshot, incoming):
                    self._needed[uid] = prefilter(snapshot, incoming).devices
        return self._needed[uid]


def _waiting(pod: Pod) -> str:
    """A pod that waits, for people."""
    return f"{key_of(pod)} of priority {priority_of(pod)}, which waits,"


def _kept_for(pod: Pod) -> str:
    """Why room is not left to a preemptor, for people."""
    return f"it is kept for {_waiting(pod)} too"
