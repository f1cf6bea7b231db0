"""Who else comes to a candidate: kube-scheduler places pods of higher priority first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A waiting pod of higher priority takes what is emptied as
soon as it fits there. So the preemptor has to fit beside all of those that come when its victims are gone, in three
states: with the pods there that leave the node anyway, without these, and with the victims there that another plan has
yet to ask. It does not fit beside a pod that takes its host port, its claim that only one pod may use, or that
anti-affinity keeps from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.devices import needs_devices, without_devices
from webhook.preemption.filters.filtering import NO_PODS, prefilter, reserving
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod, for_any_node, node_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.selection import fits_without
from webhook.reconciler.evaluate.room import (
    amounts_on,
    count_on,
    free_without,
    needed_by,
    rows_with,
    share_no_node,
    times_in,
)
from webhook.reconciler.state.state import State
from webhook.reconciler.state.waiting_pods import WaitingGroup

AHEAD = 9
"""The code of candidates that pods of higher priority would take."""
_GROUPS = 100
"""Groups of pods in front that are looked at."""
NOBODY: Mapping[str, Sequence[Pod]] = MappingProxyType({})


class Coming(NamedTuple):
    """A group of pods of which some come: what each takes, by candidate how many come, and how many are nominated."""

    group: WaitingGroup
    need: Ints
    number: Ints
    there: Ints


class PodsAhead:
    """Says of each candidate whether it is left to the preemptor (`CandidateFilter`), and to pods placed beside it.

    `is_overdue` says whether a pod's scheduler does not want to place it. `held` are preemptors of lower priority, by
    node, for which pods were evicted there: they get the room made for them. `leaving` are the rows of the pods that
    leave anyway: how long they take is not known, at most their grace period. Plans of its `own`, by id, ask their
    victims together. The `others` of its gang take nothing from it.
    """

    def __init__(
        self,
        state: State,
        pods: Sequence[Pod],
        is_overdue: Callable[[Pod], bool],
        leaving: Rows,
        *,
        held: Mapping[str, Sequence[Pod]] = NOBODY,
        own: Collection[str] = (),
        others: Collection[Pod] = (),
    ) -> None:
        self.state, self.held = state, held
        self.served = {key_of(pod) for pod in (*pods, *others)}
        """Those who take nothing from the preemptor."""
        self.blocking: Pod | None = None
        """The first pod that keeps the preemptor from a candidate."""
        self._pods = sorted(pods, key=priority_of)
        self._is_overdue, self._leaving, self._plans = is_overdue, leaving, own
        self._late: dict[str, bool] = {}
        """Whether a pod is overdue, by its uid."""

    @cached_property
    def anybody(self) -> bool:
        """Whether pods of higher priority wait."""
        return any(self.state.waiting.ahead_of(self._pods[0], 1))

    @cached_property
    def _own(self) -> list[tuple[PodInfo, Ints]]:
        """Those that are placed and what each needs, the least important first; those for which some node has that."""
        known = [(pod, needed_by(self.state.snapshot, pod)) for pod in map(compile_pod, self._pods)]
        return [(pod, need) for pod, need in known if need is not None]

    def taken(self, victims: Rows, *, held: bool = False) -> set[str]:
        """The nodes of these pods that are not left to the preemptor once all of them are gone.

        What is `held` does not count unless it is to.
        """
        nodes = self.state.snapshot.pods.node[victims].astype(np.intp)
        order = np.argsort(nodes, kind="stable")
        nobody = np.zeros(len(order), np.bool_)
        candidates = Candidates.on_nodes(self.state.snapshot, nodes[order], victims[order], nobody)
        return set(candidates.names(np.flatnonzero(self(candidates) if held else self._lost(candidates))))

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that is left to the preemptor, else AHEAD."""
        lost = self._lost(candidates)
        # Where pods were evicted for one of lower priority, that one keeps its room beside the preemptor.
        for place, node in enumerate(candidates.names(range(len(lost)))) if self.held else ():
            if lower := [pod for pod in self.held.get(node, ()) if key_of(pod) not in self.served]:
                last = min(lower, key=priority_of)
                both = PodsAhead(self.state, (last, *self._pods), self._is_overdue, self._leaving, own=self._plans)
                if both._lost(candidates.only(np.arange(len(lost)) == place), crowded=True).any():
                    lost[place], self.blocking = True, self.blocking or last
        return np.where(lost, AHEAD, 0).astype(np.int8)

    def _lost(self, candidates: Candidates, *, crowded: bool = False) -> Mask:
        """Which candidates others take; also where there is no room for all if only nominated pods come, if `crowded`.

        Pods of higher priority are placed first. Those that are nominated keep their room, wherever they will be.
        """
        snapshot, lost = self.state.snapshot, np.zeros(len(candidates.nodes), np.bool_)
        if not len(lost) or not (self.anybody or crowded) or len(self._own) < len(self._pods):
            return lost
        nominees, free = reserving(snapshot, self._own[0][0], snapshot.pod_rows(self.served)), free_without(candidates)
        beside = amounts_on(candidates, nominees, snapshot.pods.nominated[nominees])
        beside += sum(need[:, None] for _, need in self._own)
        lost |= crowded & (free < beside).any(axis=0)
        for (room, gone), order in product(self._rooms(candidates, free), (1, -1)):
            left = room - beside
            for group, need, number, there in self.come(candidates, room, gone, order):
                left -= need[:, None] * np.maximum(number - there, 0)
                taken = (left < 0).any(axis=0)
                for pod, _ in self._own:
                    taken |= share_no_node(snapshot, pod, group.example, candidates.nodes)
                lost |= taken & ((number > 0) | (there > 0))
                if self.blocking is None and lost.any():
                    self.blocking = group.example
        return lost

    def come(self, candidates: Candidates, free: Ints, gone: Rows = NO_PODS, order: int = 1) -> Iterator[Coming]:
        """Who comes before the preemptor if so much is `free`; of a gang only all together.

        The most important pod comes first, by an `order` of -1 last. The victims are gone, and the pods in the rows
        `gone`. Pods between those that are placed together come after the more important ones of these.
        """
        snapshot, room = self.state.snapshot, free.copy()
        for group in [*self.state.waiting.ahead_of(self._pods[0], _GROUPS)][::order]:
            pods, example = [pod for key, pod in group.pods.items() if key not in self.served], group.example
            try:
                pod = compile_pod(for_any_node(example))
            except ClusterError:
                continue
            if not pods or pod.beyond or (need := needed_by(snapshot, pod)) is None:
                continue  # nobody can say where it fits, or no node has what it needs
            there = count_on(candidates, (pod.status.nominated_node_name for pod in pods))
            before = sum((own for other, own in self._own if other.priority >= group.priority), np.zeros_like(need))
            count = np.minimum(len(pods), times_in(room - before[:, None], need))
            if node_of(example):
                count = np.minimum(count, count_on(candidates, map(node_of, pods)))
            if count.any():
                count = np.where(self._fits_on(pod, candidates, gone), count, 0)
            if example.spec.scheduling_group:
                missing = form_gang(snapshot, self.state.waiting_members(group_of(example))).missing
                count = np.where(count < missing, np.minimum(count, there), count)
            if count.any() and self._is_late(example):
                count = np.zeros_like(count)
            room -= need[:, None] * count
            yield Coming(group, need, count, there)

    def _rooms(self, candidates: Candidates, free: Ints) -> Iterator[tuple[Ints, Rows]]:
        """What is free in each state that may come up, and the rows of the pods that have left besides the victims."""
        pods, state = self.state.snapshot.pods, self.state
        yield free, NO_PODS
        later = np.setdiff1d(self._leaving, candidates.pods)
        later = later[np.isin(pods.node[later], candidates.nodes)]
        if len(later):
            yield free + amounts_on(candidates, later, pods.node[later]), later
        # Victims that another plan has yet to ask may be the last to leave
        planned = candidates.pods[candidates.here() & np.isin(candidates.pods, self._leaving)].tolist()
        staying = [row for row in planned if not state.pending.leaves_for(pods.key(row)) <= set(self._plans)]
        if staying:
            yield free - amounts_on(candidates, np.array(staying), pods.node[staying]), NO_PODS

    def _is_late(self, example: Pod) -> bool:
        uid = example.metadata.uid
        if uid not in self._late:
            self._late[uid] = self._is_overdue(example)
        return self._late[uid]

    def _fits_on(self, ahead: PodInfo, candidates: Candidates, leaving: Rows) -> Mask:
        """On which candidates a pod fits once these have left, and the candidate's own victims: no other one's.

        Victims on other nodes than their candidate's count for all: they may stand in the way of this pod, too. Where
        a pod goes whose claims may stay in use, or come free for others, the pod may get its devices.
        """
        snapshot, nodes = self.state.snapshot, candidates.nodes
        leaving = rows_with(leaving, candidates.pods[~candidates.here() & (candidates.group == 0)])
        going = np.zeros(snapshot.pods.rows, np.bool_)
        going[candidates.pods] = True
        fits = fits_without(prefilter(snapshot, ahead, leaving), going, nodes)
        if needs_devices(snapshot, ahead):
            users = np.intersect1d(
                snapshot.pod_rows(self.state.index.keeping.known), np.append(candidates.pods, leaving)
            )
            unsure = np.isin(nodes, snapshot.pods.node[users])
            bare = prefilter(snapshot, without_devices(snapshot, ahead), leaving)
            fits[unsure] = fits_without(bare, going, nodes)[unsure]
        return fits


def waiting_text(pod: Pod) -> str:
    """A pod that waits, for people."""
    return f"{key_of(pod)} of priority {priority_of(pod)}, which waits,"


def blocked_text(blocking: Pod | None) -> str:
    """Who keeps the preemptor from the room, for people."""
    return f"it is kept for {waiting_text(blocking)} too" if blocking is not None else "it is kept for another pod"
