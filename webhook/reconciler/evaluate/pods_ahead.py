"""Who else comes to a candidate: kube-scheduler places pods of higher priority first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A waiting pod of higher priority takes what is emptied as
soon as it fits there. So the preemptor has to fit beside all of those that come when its victims are gone, in three
states: with the pods there that leave the node anyway, without these, and with the victims there that another plan has
yet to ask. It does not fit beside a pod that takes its host port, its claim that only one pod may use, or that
anti-affinity keeps from it.

A nomination reserves no devices, and they come free claim by claim (docs/reconciler.md#devices). As long as something
is missing the preemptor gets nothing, and who wants less takes what is free: one that waits, of whatever priority and
scheduler, or the one that a controller puts in a victim's place at once (docs/kubernetes-behaviour.md K43).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits, fits_on, victims_needed
from webhook.preemption.filters.devices import DeviceFilter, needs_devices, without_devices
from webhook.preemption.filters.filtering import NO_PODS, prefilter, reserving
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import compile_pod, for_any_node, node_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidate, Candidates
from webhook.preemption.victims.selection import fits_without
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import (
    Evaluator,
    amounts_on,
    count_on,
    free_without,
    needed_by,
    share_no_node,
)
from webhook.reconciler.evaluate.outcomes import NOTHING_PROMISED, Promised
from webhook.reconciler.preemptors import unschedulable_since

AHEAD = 9
"""The code of candidates that pods of higher priority would take."""
_GROUPS = 100
"""Groups of pods in front that are looked at."""
_CANDIDATES = 16
"""The best candidates, which are looked at one by one for devices."""
_DEVICE_GROUPS = 16
"""Groups of other waiting pods that ask for devices that are looked at."""
_AT_ONCE = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers that replace a pod as soon as it leaves or is gone. A Job does so after ten seconds."""


class Coming(NamedTuple):
    """Pods that are alike, of which some come: what each takes, by candidate how many come, how many are nominated."""

    alike: list[Pod]
    need: Ints
    number: Ints
    there: Ints


class PodsAhead:
    """Says of each candidate whether it is left to the preemptor (`CandidateFilter`), and to pods placed beside it.

    Preemptors of lower priority for which pods were evicted get the room made for them (`Promised.held`). Plans of its
    `own`, by id, ask their victims together. The `others` of its gang take nothing from it.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        pods: Sequence[Pod],
        at: Now,
        promised: Promised = NOTHING_PROMISED,
        *,
        own: Collection[str] = (),
        others: Collection[Pod] = (),
    ) -> None:
        self._evaluator, self._state = evaluator, evaluator.state
        self._at, self._promised = at, promised
        self._snapshot = evaluator.state.snapshot
        self._served = {key_of(pod) for pod in (*pods, *others)}
        """Those who take nothing from the preemptor."""
        self.blocking = ""
        """Why the first candidate is not left to the preemptor, for people; empty as long as all are."""
        self._pods, self._plans = sorted(pods, key=priority_of), own
        known = [(pod, needed_by(self._snapshot, pod)) for pod in map(compile_pod, self._pods)]
        self._own = [(pod, need) for pod, need in known if need is not None]
        """What each of those that are placed needs, the least important first; those for which some node has that."""
        self.groups = self._state.index.groups(ahead_of=self._pods[0])[:_GROUPS]
        """The pods of higher priority that wait, the most important first."""
        self._leaving = evaluator.leaving_within(math.inf, at)
        """The rows of the pods that leave anyway: how long they take is not known, at most their grace period."""
        self._fitting: dict[str, Rows | None] = {}
        """The nodes, by row, on which a pod fits, by its uid; None if its scheduler does not want to place it."""
        self._needed: dict[str, DeviceFilter | None] = {}
        """What pods need of devices, by their uid."""

    def taken(self, victims: Rows) -> set[str]:
        """The nodes of these pods that are not left to the preemptor once all of them are gone; held room is."""
        nodes = self._snapshot.pods.node[victims].astype(np.intp)
        order = np.argsort(nodes, kind="stable")
        nobody = np.zeros(len(order), np.bool_)
        candidates = Candidates.on_nodes(self._snapshot, nodes[order], victims[order], nobody)
        return set(candidates.names(np.flatnonzero(self._lost(candidates))))

    def taker(self, node: str, victims: Rows, *, evicts: bool) -> str:
        """Why a node is not left to the preemptors once the victims there are gone, for people; empty if it is.

        If nobody `evicts` them, neither who is held there counts nor who takes a part of the devices.
        """
        if not len(victims) and not evicts:
            return ""
        nobody, first = np.zeros(len(victims), np.bool_), np.zeros(1, np.intp)
        here = self._snapshot.nodes.rows_of((node,)), first, np.array([len(victims)])
        candidate = Candidates(self._snapshot, *here, victims, nobody, first, nobody.astype(np.intp))
        if (self(candidate) if evicts else self._lost(candidate)).any():
            return self.blocking
        takers = (self.takes_devices(pod, node, victims, evicts=evicts) for pod in self._pods)
        return next(filter(None, takers), "")

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that is left to the preemptor, else AHEAD."""
        lost, held = self._lost(candidates), self._promised.held
        # Where pods were evicted for one of lower priority, that one keeps its room beside the preemptor.
        for place, node in enumerate(candidates.names(range(len(lost)))) if held else ():
            if lower := [pod for pod in held.get(node, ()) if key_of(pod) not in self._served]:
                last = min(lower, key=priority_of)
                both = PodsAhead(self._evaluator, (last, *self._pods), self._at, own=self._plans)
                here = candidates.only(np.arange(len(lost)) == place)
                pairs = product((pod for pod, _ in self._own), lower)
                apart = any(share_no_node(self._snapshot, pod, low, here.nodes).any() for pod, low in pairs)
                if apart or both._lost(here, crowded=True).any():
                    lost[place], self.blocking = True, self.blocking or _kept_for(last)
        return np.where(lost, AHEAD, 0).astype(np.int8)

    def _lost(self, candidates: Candidates, *, crowded: bool = False) -> Mask:
        """Which candidates others take; also where there is no room for all if only nominated pods come, if `crowded`.

        Pods of higher priority are placed first. Those that are nominated keep their room, wherever they will be.
        """
        snapshot, lost = self._snapshot, np.zeros(len(candidates.nodes), np.bool_)
        if not len(lost) or not (self.groups or crowded) or len(self._own) < len(self._pods):
            return lost
        free = free_without(candidates)
        nominees = reserving(snapshot, self._own[0][0], snapshot.pod_rows(self._served))
        beside = amounts_on(candidates, nominees, snapshot.pods.nominated[nominees])
        beside += sum(need[:, None] for _, need in self._own)
        lost |= crowded & (free < beside).any(axis=0)
        for (room, gone), order in product(self._rooms(candidates, free), (1, -1)):
            left = room - beside
            for alike, need, number, there in self._come(candidates, room, gone, order):
                left -= need[:, None] * np.maximum(number - there, 0)
                taken = (left < 0).any(axis=0)
                for pod, _ in self._own:
                    apart = share_no_node(snapshot, pod, alike[0], candidates.nodes)
                    # It may keep others out of all of a zone, on whichever node there it comes.
                    if apart.any() and (elsewhere := self._nodes_for(alike[0])) is not None:
                        lost |= share_no_node(snapshot, pod, alike[0], candidates.nodes, elsewhere)
                    taken |= apart
                lost |= taken & ((number > 0) | (there > 0))
                if not self.blocking and lost.any():
                    self.blocking = _kept_for(alike[0])
        return lost

    def _come(self, candidates: Candidates, free: Ints, gone: Rows, order: int) -> Iterator[Coming]:
        """Who comes before the preemptor if so much is `free`; of a gang only all together.

        The most important pod comes first, by an `order` of -1 last. The victims are gone, and the pods in the rows
        `gone`: victims on other nodes than their candidate's count for all, since they may stand in the way of these
        pods, too. Pods between those that are placed together come after the more important ones of these.
        """
        snapshot, room, pods = self._snapshot, free.copy(), self._snapshot.pods
        elsewhere = candidates.pods[~candidates.here() & (candidates.group == 0)]
        gone, going = np.union1d(gone, elsewhere), np.zeros(pods.rows, np.bool_)
        going[candidates.pods] = True
        for group in self.groups[::order]:
            example = group.example
            alike = [pod for key, pod in group.pods.items() if key not in self._served]
            try:
                pod = compile_pod(for_any_node(example))
            except ClusterError:
                continue
            if not alike or pod.beyond or (need := needed_by(snapshot, pod)) is None:
                continue  # nobody can say where it fits, or no node has what it needs
            there = count_on(candidates, (pod.status.nominated_node_name for pod in alike))
            before = sum((own for other, own in self._own if other.priority >= group.priority), np.zeros_like(need))
            wanted = need > 0
            times = ((room - before[:, None])[wanted] // need[wanted][:, None]).min(axis=0)
            count = np.clip(times, 0, len(alike))
            if node_of(example):
                count = np.minimum(count, count_on(candidates, map(node_of, alike)))
            if count.any():
                fits_there = fits_without(prefilter(snapshot, pod, gone), going, candidates.nodes)
                if needs_devices(snapshot, pod):
                    # Where claims with a name may stay in use, or come free for others, it may get its devices.
                    users = snapshot.pod_rows(self._state.index.sharing())
                    users = np.intersect1d(users, np.append(candidates.pods, gone))
                    bare = prefilter(snapshot, without_devices(snapshot, pod), gone)
                    unsure = np.isin(candidates.nodes, pods.node[users])
                    fits_there |= unsure & fits_without(bare, going, candidates.nodes)
                count = np.where(fits_there, count, 0)
            if example.spec.scheduling_group:
                missing = form_gang(snapshot, self._state.waiting_members(group_of(example))).missing
                count = np.where(count < missing, np.minimum(count, there), count)
            if count.any() and self._nodes_for(example) is None:
                count = np.zeros_like(count)
            room -= need[:, None] * count
            yield Coming(alike, need, count, there)

    def _nodes_for(self, example: Pod) -> Rows | None:
        """The nodes, by row, on which a pod fits; None if its scheduler leaves it pending all the same."""
        uid, snapshot = example.metadata.uid, self._snapshot
        if uid not in self._fitting:
            nodes = fits(snapshot, for_any_node(example))
            late = self._evaluator.schedulers.overdue(example, fits=bool(nodes), now=self._at.monotonic)
            self._fitting[uid] = None if late else snapshot.nodes.rows_of(nodes)
        return self._fitting[uid]

    def _rooms(self, candidates: Candidates, free: Ints) -> Iterator[tuple[Ints, Rows]]:
        """What is free in each state that may come up, and the rows of the pods that have left besides the victims."""
        pods, pending = self._snapshot.pods, self._state.pending
        yield free, NO_PODS
        later = np.setdiff1d(self._leaving, candidates.pods)
        later = later[np.isin(pods.node[later], candidates.nodes)]
        if len(later):
            yield free + amounts_on(candidates, later, pods.node[later]), later
        # Victims that another plan has yet to ask may be the last to leave
        planned = candidates.pods[candidates.here() & np.isin(candidates.pods, self._leaving)].tolist()
        staying = [row for row in planned if not pending.leaves_for(pods.key(row)) <= set(self._plans)]
        if staying:
            yield free - amounts_on(candidates, np.array(staying), pods.node[staying]), NO_PODS

    # Devices, node by node.

    def first_left(self, decision: Decision) -> Candidate | None:
        """The best candidate of which nobody takes devices; None if there is none among those that are looked at."""
        for candidate in decision.shortlist(_CANDIDATES):
            victims = self._snapshot.pod_rows([victim.key for victim in candidate.victims])
            if not self.takes_devices(self._pods[0], candidate.node, victims):
                return candidate
        return None

    def takes_devices(self, pod: Pod, host: str, victims: Rows, *, evicts: bool = True) -> str:
        """Who takes devices on a node before a preemptor has those that it needs, as in `taker`.

        Pods of lower priority for which others were evicted get theirs once all victims are gone, then pods in front.
        """
        snapshot, own = self._snapshot, self._device_needs(pod)
        pods, claims, node = snapshot.pods, snapshot.device_claims, snapshot.nodes.find(host)
        leaving = pods.leaving()
        rows = np.union1d(victims, leaving[pods.node[leaving] == node])
        if node is None or own is None or not len(rows):
            return ""
        left = {pods.uids[row]: row for row in rows.tolist()}
        candidate = Candidates.on_nodes(snapshot, np.full(len(rows), node), rows, np.zeros(len(rows), np.bool_))
        # 1. What is held for pods of lower priority, and what those in front take that have room there, plans' as well.
        lower = [other for other in self._promised.held.get(host, ()) if key_of(other) not in self._served]
        held = {device for other in lower for device in claims.planned_for(other.metadata.uid)}
        free = free_without(candidate)
        for order in (1, -1):
            gone, settled, taken = set(left), set[str](), set(held)
            last = lower[0] if held else None
            for alike, _, number, _ in self._come(candidate, free, NO_PODS, order):
                example = min(alike, key=lambda other: bool(claims.planned_for(other.metadata.uid)))
                if not number.any() or (needs := self._device_needs(example)) is None:
                    continue
                gone |= {other.metadata.uid for other in alike}
                for _ in range(int(number[0])):
                    if not (devices := needs.allocation(node, gone, taken, settled)):
                        break
                    taken, last = taken.union(devices), example
                    names = [entry.get("resourceClaimName") for entry in example.spec.resource_claims or ()]
                    settled |= {f"{example.metadata.namespace}/{name}" for name in names if name}
            if last is not None and own.allocation(node, gone, taken, settled) is None:
                self.blocking = self.blocking or _kept_for(last)
                return _kept_for(last)
        # 2. What others take as long as one of those who hold devices has not left. A nomination keeps all other room.
        holders = [uid for uid in left if claims.used_by(uid)] if evicts else []
        last_of_all = [uid for uid in holders if own.allocation(node, left.keys() - {uid}) is None]
        need = needed_by(snapshot, compile_pod(pod)) if len(holders) > 1 and last_of_all else None
        takers = self._take_parts(candidate, last_of_all, free[:, 0] - need) if need is not None else ()
        for who, part in takers:
            if own.allocation(node, gone, taken.union(part), settled) is None:
                why = f"devices come free one by one, and {who} would take a part of them first"
                self.blocking = self.blocking or why
                return why
        return ""

    def _take_parts(
        self, candidate: Candidates, last: Sequence[str], beside: Ints
    ) -> Iterator[tuple[str, Collection[DeviceId]]]:
        """Who takes which devices while one of the victims with these uids is there, if so much is free `beside` it.

        Of each group of pods that wait one counts, for which no plan holds devices and at which its scheduler looks.
        """
        snapshot = self._snapshot
        pods, claims = snapshot.pods, snapshot.device_claims
        rows = {pods.uids[row]: row for row in candidate.pods.tolist()}
        node = int(candidate.nodes[0])
        for uid in last:
            owner, used = pods.owners.values[pods.owner[rows[uid]]], pods.amounts[:, rows[uid]]
            if owner and owner.kind in _AT_ONCE and (used <= beside[1 : 1 + len(used)]).all():
                devices = [device for key in claims.used_by(uid) for device in devices_of(claims.claims[key])]
                yield f"the pod that {owner.kind} {owner.name} puts in place of a victim", devices
        counted = self._served.union(*(group.pods for group in self.groups))
        groups = self._state.index.groups()
        asking = [group for group in groups if self._device_needs(group.example) is not None]
        for group in asking[:_DEVICE_GROUPS]:
            others = (other for key, other in group.pods.items() if key not in counted)
            example = next((other for other in others if not claims.planned_for(other.metadata.uid)), None)
            needs = None if example is None else self._device_needs(example)
            if example is None or needs is None or unschedulable_since(example) is None:
                continue
            wanted = needed_by(snapshot, compile_pod(example))
            has_room = wanted is not None and not (wanted > beside).any()
            if has_room and fits_on(snapshot, example, snapshot.nodes.names[node], without=candidate.pods):
                parts = (needs.allocation(node, rows.keys() - {uid}) for uid in last)
                yield from ((waiting_text(example), part) for part in parts if part)

    def _device_needs(self, pod: Pod) -> DeviceFilter | None:
        """What the pod needs of devices; None if it needs none, or it cannot be told."""
        if (uid := pod.metadata.uid) not in self._needed:
            try:
                incoming = compile_pod(pod)
                asks = needs_devices(self._snapshot, incoming)
                self._needed[uid] = prefilter(self._snapshot, incoming).devices if asks else None
            except ClusterError:
                self._needed[uid] = None
        return self._needed[uid]


def taken_by(
    evaluator: Evaluator,
    pod: Pod,
    policy: PreemptionPolicy,
    node: str,
    victims: Rows,
    *,
    plans: Collection[str],
    at: Now,
) -> str:
    """Why a node is not left to the pod once the victims are gone, for people; empty if it is.

    The victims go for the `plans` (by id) of the pod and of the other members of its gang. As in the decision, pods
    that leave anyway are gone then, too, if the plan counts on them.
    """
    ahead, snapshot = PodsAhead(evaluator, (pod,), at, own=plans), evaluator.state.snapshot
    there = victims[snapshot.pods.node[victims] == snapshot.nodes.find(node)]
    if not len(there) or not ahead.groups:
        return ""
    soon = evaluator.room_within(min(policy.wait_for_terminating, policy.plan_timeout), at)
    leaving = np.setdiff1d(soon, there)
    leaving = leaving[snapshot.pods.node[leaving] == snapshot.nodes.find(node)]
    needed = victims_needed(snapshot, pod, node, leaving, without=there) if len(leaving) else leaving
    return ahead.taker(node, np.append(there, needed), evicts=False)


def waiting_text(pod: Pod) -> str:
    """A pod that waits, for people."""
    return f"{key_of(pod)} of priority {priority_of(pod)}, which waits,"


def _kept_for(pod: Pod) -> str:
    """Why room is not left to a preemptor, for people."""
    return f"it is kept for {waiting_text(pod)} too"
