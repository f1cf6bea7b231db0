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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.devices import needs_devices, without_devices
from webhook.preemption.filters.filtering import prefilter, run_filters, without_pods
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod, for_any_node, node_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.selection import fits_without
from webhook.reconciler.evaluate.room import (
    add_amounts,
    columns_of,
    free_without,
    kept_for_equals,
    needed_by,
    pods_there,
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

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Ahead(NamedTuple):
    """A group of pods that may come, and what each of them takes."""

    group: WaitingGroup
    pod: PodInfo
    need: Ints
    there: Ints
    """By candidate, how many of them are nominated there."""
    most: Ints
    """By candidate, how many of them may come."""
    fewest: int
    """How many of them have to come together: the others that a gang still needs, else one."""


class PodsAhead:
    """Says of each candidate whether it is left to the preemptor (`CandidateFilter`).

    `is_overdue` is told whether a pod fits somewhere, and says whether its scheduler does not want to place it. `held`
    are preemptors of lower priority, by node, for which pods were evicted there: they get the room made for them.
    `leaving` are the rows of the pods that leave anyway: how long they take is not known, at most their grace period.
    Plans of its `own`, by id, ask their victims together. Pods `together` with it need room beside it.
    """

    def __init__(
        self,
        state: State,
        pod: Pod,
        is_overdue: Callable[[Pod, bool], bool],
        held: Mapping[str, Sequence[Pod]],
        leaving: Rows,
        *,
        own: Collection[str] = (),
        together: Sequence[Pod] = (),
    ) -> None:
        self._pods = (pod, *together)
        self._state, self._pod, self._is_overdue, self._held = state, pod, is_overdue, held
        self._leaving, self._own = leaving, own
        self._late: dict[str, bool] = {}
        """Whether a pod is overdue, by its uid."""
        self._fitting: dict[tuple[str, bytes, bytes], Mask] = {}
        """By a pod's uid, candidates with their victims, and those that leave: on which of them the pod fits then."""
        self.blocking: Pod | None = None
        """The first pod found that keeps the preemptor from a candidate."""

    @cached_property
    def anybody(self) -> bool:
        """Whether pods of higher priority wait."""
        return any(self._state.waiting.ahead_of(self._pod, 1))

    def taken(self, victims: Rows, *, held: bool = False) -> set[str]:
        """The nodes of these pods that are not left to the preemptor once all of them are gone.

        What is `held` does not count unless it is to.
        """
        if not len(victims) or not (held or self.anybody):
            return set()
        snapshot = self._state.snapshot
        rows = victims[np.argsort(snapshot.pods.node[victims], kind="stable")]
        nodes = snapshot.pods.node[rows].astype(np.intp)
        candidates = Candidates.on_nodes(snapshot, nodes, rows, np.zeros(len(rows), np.bool_))
        codes = self._codes(candidates, self._held if held else {})
        return set(candidates.names(np.flatnonzero(codes)))

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that is left to the preemptor, else AHEAD."""
        return self._codes(candidates, self._held)

    def _codes(self, candidates: Candidates, held: Mapping[str, Sequence[Pod]]) -> NDArray[np.int8]:
        snapshot, codes = self._state.snapshot, np.zeros(len(candidates.nodes), np.int8)
        if not (self.anybody or held) or not len(codes):
            return codes
        compiled = [compile_pod(pod) for pod in self._pods]
        needs = [need for pod in compiled if (need := needed_by(snapshot, pod)) is not None]
        if len(needs) < len(compiled):
            return codes
        own: Ints = np.sum(needs, axis=0)
        # 1. Where pods were evicted for one of lower priority, that one keeps its room.
        lowest, kept = self._kept(candidates, held)
        beside = kept_for_equals(snapshot, candidates, compiled[0]) + kept + own[:, None]
        crowded = (free_without(snapshot, candidates) < beside).any(axis=0)
        self._note_lost(codes, crowded & np.isin(np.arange(len(codes)), list(lowest)), lowest)
        # 2. Pods of higher priority are placed first, whichever of them the scheduler tries first. Those between the
        #    preemptor and one of lower priority come after it, and leave that one its room.
        coming = list(self.coming(candidates, lowest))
        for free, gone in self._rooms(candidates):
            for order in (coming, coming[::-1]):
                room, nominated = free.copy(), np.zeros_like(free)
                for ahead in order:
                    example, is_first = ahead.group.example, ahead.group.priority > priority_of(self._pod)
                    count = self.count(ahead, candidates, gone, room if is_first else room - own[:, None])
                    room -= ahead.need[:, None] * count
                    if is_first:
                        nominated += ahead.need[:, None] * np.maximum(ahead.there - count, 0)
                    short, comes = (room - nominated < beside).any(axis=0), count > 0
                    if is_first:
                        comes |= ahead.there > 0
                        for own_pod in compiled:
                            short |= share_no_node(snapshot, own_pod, example, candidates.nodes)
                    self._note_lost(
                        codes, short & comes, dict.fromkeys(range(len(codes)), example) if is_first else lowest
                    )
        return codes

    def _note_lost(self, codes: NDArray[np.int8], lost: Mask, to: Mapping[int, Pod]) -> None:
        """Mark the candidates that are lost to another pod, given by candidate."""
        if lost.any() and self.blocking is None:
            self.blocking = to[int(np.argmax(lost))]
        codes[lost] = AHEAD

    def _kept(self, candidates: Candidates, held: Mapping[str, Sequence[Pod]]) -> tuple[dict[int, Pod], Ints]:
        """By candidate the least important pod for which room is held there, and what all of those need."""
        snapshot, lowest = self._state.snapshot, dict[int, Pod]()
        kept = np.zeros((1 + len(snapshot.nodes.resources), len(candidates.nodes)), np.int64)
        for place, name in enumerate(candidates.names(range(len(candidates.nodes)))) if held else ():
            for pod in held.get(name, ()):
                need = needed_by(snapshot, compile_pod(pod))
                if need is not None and pod.metadata.uid != self._pod.metadata.uid:
                    kept[:, place] += need
                    lowest[place] = min(lowest.get(place, pod), pod, key=priority_of)
        return lowest, kept

    def coming(self, candidates: Candidates, lowest: Mapping[int, Pod]) -> Iterator[Ahead]:
        """The groups that come before the preemptor, or before one for which room is held, the most important first."""
        snapshot, size, own = self._state.snapshot, len(candidates.nodes), priority_of(self._pod)
        columns, last = columns_of(snapshot, candidates), min([self._pod, *lowest.values()], key=priority_of)
        for group in self._state.waiting.ahead_of(last, _GROUPS):
            try:
                pod = compile_pod(for_any_node(group.example))
            except ClusterError:
                continue
            if pod.beyond or (need := needed_by(snapshot, pod)) is None:
                continue  # nobody can say where it fits, or no node has what it needs
            others = [pod for key, pod in group.pods.items() if key != key_of(self._pod)]
            most = np.full(size, len(others))
            if node_of(group.example):
                most = pods_there(snapshot, columns, map(node_of, others), size)
            if group.priority <= own:
                lower = [place for place, pod in lowest.items() if priority_of(pod) < group.priority]
                most = np.where(np.isin(np.arange(size), lower), most, 0)
            nominations = (pod.status.nominated_node_name for pod in group.pods.values())
            there, fewest = pods_there(snapshot, columns, nominations, size), 1
            if group.example.spec.scheduling_group:
                fewest = form_gang(snapshot, self._state.waiting_members(group_of(group.example))).missing
            yield Ahead(group, pod, need, there, most, fewest)

    def _rooms(self, candidates: Candidates) -> Iterator[tuple[Ints, Rows]]:
        """What is free in each state that may come up, and the rows of the pods that have left besides the victims."""
        snapshot, free = self._state.snapshot, free_without(self._state.snapshot, candidates)
        columns, nobody = columns_of(snapshot, candidates), self._leaving[:0]
        later = np.setdiff1d(self._leaving, candidates.pods)
        later = later[np.isin(snapshot.pods.node[later], candidates.nodes)]
        yield free, nobody
        for rows, sign, gone in ((later, 1, later), (self._merely_planned(candidates), -1, nobody)):
            if len(rows):
                change = np.zeros_like(free)
                add_amounts(change, snapshot.pods.amounts, rows, columns[snapshot.pods.node[rows]])
                yield free + sign * change, gone

    def _merely_planned(self, candidates: Candidates) -> Rows:
        """Victims of the candidates that another plan has yet to ask: those may be the last to leave."""
        pods, state = self._state.snapshot.pods, self._state
        rows = candidates.pods[candidates.here() & np.isin(candidates.pods, self._leaving)]
        keys = [f"{pods.namespaces[row]}/{pods.names[row]}" for row in rows.tolist()]
        return rows[[not state.pending.leaves_for(key) <= set(self._own) for key in keys]] if keys else rows

    def count(self, ahead: Ahead, candidates: Candidates, gone: Rows, room: Ints) -> Ints:
        """How many pods of a group come, by candidate, if so much is free there."""
        count = np.minimum(ahead.most, times_in(room, ahead.need))
        if not count.any():
            return count
        key = ahead.group.example.metadata.uid, candidates.nodes.tobytes() + candidates.pods.tobytes(), gone.tobytes()
        if key not in self._fitting:
            self._fitting[key] = self._fits_on(ahead.pod, candidates, gone)
        count = np.where(self._fitting[key], count, 0)
        count = np.where(count < ahead.fewest, np.minimum(count, ahead.there), count)
        return np.zeros_like(count) if count.any() and self._is_late(ahead.group.example, ahead.pod) else count

    def _is_late(self, example: Pod, pod: PodInfo) -> bool:
        if (uid := example.metadata.uid) not in self._late:
            fits = run_filters(prefilter(self._state.snapshot, pod)).fits
            self._late[uid] = self._is_overdue(example, bool(len(fits)))
        return self._late[uid]

    def _fits_on(self, ahead: PodInfo, candidates: Candidates, leaving: Rows) -> Mask:
        """On which candidates a pod fits once these have left, and the candidate's own victims: no other one's.

        Victims on other nodes than their candidate's count for all: they may stand in the way of this pod, too. Where
        a pod goes whose claims may stay in use, or come free for others, the pod may get its devices.
        """
        leaving = rows_with(leaving, candidates.pods[~candidates.here()])
        snapshot, nodes, state = self._state.snapshot, candidates.nodes, prefilter(self._state.snapshot, ahead, leaving)
        if state.devices is None and not state.is_local:
            going = np.zeros(snapshot.pods.rows, np.bool_)
            going[candidates.pods] = True
            return fits_without(state, going, nodes)
        gone = np.concatenate((candidates.pods, leaving))
        all_gone = without_pods(state, candidates.pods) if state.is_local else prefilter(snapshot, ahead, gone)
        fits: Mask = run_filters(all_gone).code[nodes] == 0
        if needs_devices(snapshot, ahead):
            users = np.intersect1d(snapshot.pod_rows(self._state.claims.users), gone)
            unsure = np.isin(nodes, snapshot.pods.node[users])
            bare = run_filters(prefilter(snapshot, without_devices(snapshot, ahead), gone)).code[nodes]
            fits[unsure] = bare[unsure] == 0
        return fits


def waiting_text(pod: Pod) -> str:
    """A pod that waits, for people."""
    return f"{key_of(pod)} of priority {priority_of(pod)}, which waits,"


def blocked_text(blocking: Pod | None) -> str:
    """Who keeps the preemptor from the room, for people."""
    return f"it is kept for {waiting_text(blocking)} too" if blocking is not None else "it is kept for another pod"
