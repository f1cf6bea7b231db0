"""Which candidates pods of higher priority would take: kube-scheduler places these first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A waiting pod of higher priority takes what is emptied as
soon as it fits there, whoever preempts for it. So the preemptor has to fit beside all of those that come when its
victims are gone. It has to fit in three states: with the pods there that leave the node anyway, without these, and with
the victims there that another plan has yet to ask. It does not fit beside a pod that takes its devices, its host port,
its claim that only one pod may use, or that anti-affinity keeps from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.devices import DeviceFilter, needs_devices, without_devices
from webhook.preemption.filters.filtering import prefilter, run_filters, without_pods
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod, for_any_node, node_of
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
"""Groups of pods ahead that are looked at."""

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class _Held(NamedTuple):
    """What is held on candidates for preemptors of lower priority, for which pods were evicted there, by candidate."""

    lowest: dict[int, Pod]
    """The least important of them."""
    needed: Ints
    devices: dict[int, list[DeviceId]]


class _Ahead(NamedTuple):
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
    Plans of its `own`, by id, ask their victims together.
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
    ) -> None:
        self._state, self._pod, self._is_overdue, self._held = state, pod, is_overdue, held
        self._leaving, self._own = leaving, own
        self._late: dict[str, bool] = {}
        """Whether a pod is overdue, by its uid."""
        self._fitting: dict[tuple[str, bytes, bytes], Mask] = {}
        """By a pod's uid, candidates with their victims, and those that leave: on which of them the pod fits then."""
        self.blocking: Pod | None = None
        """The first pod found that keeps the preemptor from a candidate."""

    @cached_property
    def _groups(self) -> list[WaitingGroup]:
        return list(self._state.waiting.ahead_of(self._pod, _GROUPS))

    @property
    def anybody(self) -> bool:
        """Whether pods of higher priority wait."""
        return bool(self._groups)

    def taken(self, victims: Rows) -> set[str]:
        """The nodes of these pods that are not left to the preemptor once all of them are gone.

        What is `held` does not count.
        """
        if not len(victims) or not self.anybody:
            return set()
        snapshot = self._state.snapshot
        rows = victims[np.argsort(snapshot.pods.node[victims], kind="stable")]
        nodes = snapshot.pods.node[rows].astype(np.intp)
        candidates = Candidates.on_nodes(snapshot, nodes, rows, np.zeros(len(rows), np.bool_))
        return set(candidates.names(np.flatnonzero(self._codes(candidates, {}))))

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that is left to the preemptor, else AHEAD."""
        return self._codes(candidates, self._held)

    def _codes(self, candidates: Candidates, held: Mapping[str, Sequence[Pod]]) -> NDArray[np.int8]:
        snapshot, incoming = self._state.snapshot, compile_pod(self._pod)
        codes, own = np.zeros(len(candidates.nodes), np.int8), needed_by(snapshot, incoming)
        if not (self.anybody or held) or not len(codes) or own is None:
            return codes
        kept = self._kept(candidates, held)
        beside = kept_for_equals(snapshot, candidates, incoming) + kept.needed + own[:, None]
        coming = self._coming(candidates, kept, self._groups)
        between = self._coming(candidates, kept, self._between(kept))
        needs = self._needs_of_devices(incoming, coming, kept)
        # 1. Where pods were evicted for one of lower priority, that one keeps its room and its devices.
        crowded = (free_without(snapshot, candidates) < beside).any(axis=0)
        for place, lowest in kept.lowest.items():
            here = np.arange(len(codes)) == place
            short = crowded
            if needs is not None and place in kept.devices:
                short = short | _DevicesAhead(candidates, self._leaving[:0], needs, kept.devices).lost(here)
            self._note_lost(codes, short & here, lowest)
        # 2. Pods of higher priority are placed first, whichever of them the scheduler tries first. Those between the
        #    preemptor and one of lower priority come after it, and leave that one its room.
        for made, gone in self._rooms(candidates):
            for order in (coming, coming[::-1]):
                room, devices = made.copy(), _DevicesAhead(candidates, gone, needs, kept.devices) if needs else None
                nominated = np.zeros_like(room)
                for ahead in order:
                    count = self._place(ahead, candidates, gone, room, devices)
                    nominated += ahead.need[:, None] * np.maximum(ahead.there - count, 0)
                    comes = np.maximum(count, ahead.there) > 0
                    short = (room - nominated < beside).any(axis=0)
                    short |= share_no_node(snapshot, incoming, ahead.group.example, candidates.nodes)
                    if devices is not None:
                        short |= devices.lost(comes & (codes == 0))
                    self._note_lost(codes, short & comes, ahead.group.example)
                room -= own[:, None]
                for ahead in between:
                    comes = self._place(ahead, candidates, gone, room, None) > 0
                    short = comes & (room - nominated < beside - own[:, None]).any(axis=0)
                    for place in np.flatnonzero(short).tolist():
                        self._note_lost(codes, np.arange(len(codes)) == place, kept.lowest[place])
        return codes

    def _kept(self, candidates: Candidates, held: Mapping[str, Sequence[Pod]]) -> _Held:
        snapshot = self._state.snapshot
        kept = _Held({}, np.zeros((1 + len(snapshot.nodes.resources), len(candidates.nodes)), np.int64), {})
        for place, name in enumerate(candidates.names(range(len(candidates.nodes)))) if held else ():
            for pod in held.get(name, ()):
                need = needed_by(snapshot, compile_pod(pod))
                if need is None or pod.metadata.uid == self._pod.metadata.uid:
                    continue
                kept.needed[:, place] += need
                kept.lowest[place] = min(kept.lowest.get(place, pod), pod, key=_priority_of)
                if devices := snapshot.device_claims.planned_for(pod.metadata.uid):
                    kept.devices.setdefault(place, []).extend(devices)
        return kept

    def _between(self, kept: _Held) -> list[WaitingGroup]:
        """The groups that come after the preemptor, and before one of those for which room is held."""
        if not kept.lowest:
            return []
        lowest = min(kept.lowest.values(), key=_priority_of)
        groups = self._state.waiting.ahead_of(lowest, _GROUPS)
        return [group for group in groups if group.priority <= _priority_of(self._pod)]

    def _coming(self, candidates: Candidates, kept: _Held, groups: Sequence[WaitingGroup]) -> list[_Ahead]:
        """The groups of which it is known what they need."""
        snapshot, coming = self._state.snapshot, []
        columns, own = columns_of(snapshot, candidates), _priority_of(self._pod)
        for group in groups:
            try:
                pod = compile_pod(for_any_node(group.example))
            except ClusterError:
                continue
            if pod.beyond or (need := needed_by(snapshot, pod)) is None:
                continue  # nobody can say where it fits, or no node has what it needs
            pods, size = group.pods.values(), len(candidates.nodes)
            there = pods_there(snapshot, columns, [pod.status.nominated_node_name for pod in pods], size)
            others = [pod for key, pod in group.pods.items() if key != key_of(self._pod)]
            if node_of(group.example):
                most = pods_there(snapshot, columns, map(node_of, others), size)
            else:
                most = np.full(size, len(others))
            if group.priority <= own:
                lower = [place for place, lowest in kept.lowest.items() if _priority_of(lowest) < group.priority]
                most = np.where(np.isin(np.arange(len(most)), lower), most, 0)
            coming.append(_Ahead(group, pod, need, there, most, self._fewest(group.example)))
        return coming

    def _fewest(self, pod: Pod) -> int:
        """How many members of its gang a pod is placed together with, itself included; 1 for other pods."""
        if not pod.spec.scheduling_group:
            return 1
        return form_gang(self._state.snapshot, self._state.waiting_members(group_of(pod))).missing

    def _rooms(self, candidates: Candidates) -> list[tuple[Ints, Rows]]:
        """What is free in each state that may come up, and the rows of the pods that have left besides the victims."""
        snapshot, free = self._state.snapshot, free_without(self._state.snapshot, candidates)
        columns, nobody, rooms = columns_of(snapshot, candidates), self._leaving[:0], []
        later = np.setdiff1d(self._leaving, candidates.pods)
        later = later[np.isin(snapshot.pods.node[later], candidates.nodes)]
        planned = self._merely_planned(candidates)
        for gone, sign in ((nobody, 0), (later, 1), (planned, -1)):
            if not len(gone) and sign:
                continue
            change = np.zeros_like(free)
            add_amounts(change, snapshot.pods.amounts, gone, columns[snapshot.pods.node[gone]])
            rooms.append((free + sign * change, gone if sign > 0 else nobody))
        return rooms

    def _merely_planned(self, candidates: Candidates) -> Rows:
        """Victims of the candidates that another plan has yet to ask: those may be the last to leave."""
        pods, state = self._state.snapshot.pods, self._state

        def stays(row: int) -> bool:
            key = f"{pods.namespaces[row]}/{pods.names[row]}"
            pod = state.pod_of(key, pods.uids[row])
            if pod is None or pod.metadata.deletion_timestamp:
                return False
            return bool(state.pending.leaves_for(key) - set(self._own))

        rows = candidates.pods[candidates.here() & np.isin(candidates.pods, self._leaving)]
        return rows[[stays(row) for row in rows.tolist()]] if len(rows) else rows

    def _needs_of_devices(self, incoming: PodInfo, coming: Sequence[_Ahead], kept: _Held) -> DeviceFilter | None:
        """What the preemptor needs of devices; None if nobody else takes or holds any."""
        snapshot = self._state.snapshot
        others = kept.devices or any(needs_devices(snapshot, ahead.pod) for ahead in coming)
        return prefilter(snapshot, incoming).devices if others and needs_devices(snapshot, incoming) else None

    def _place(
        self, ahead: _Ahead, candidates: Candidates, leaving: Rows, room: Ints, devices: _DevicesAhead | None
    ) -> Ints:
        """Let the pods of a group that come take the room, and devices: how many of them there are by candidate."""
        count = np.minimum(ahead.most, times_in(room, ahead.need))
        if not count.any():
            return count
        uid = ahead.group.example.metadata.uid
        key = uid, candidates.nodes.tobytes() + candidates.pods.tobytes(), leaving.tobytes()
        if key not in self._fitting:
            self._fitting[key] = self._fits_on(ahead.pod, candidates, leaving)
        count = np.where(self._fitting[key], count, 0)
        count = np.where(count < ahead.fewest, np.minimum(count, ahead.there), count)
        if count.any() and self._late.get(uid) is None:
            fits = run_filters(prefilter(self._state.snapshot, ahead.pod)).fits
            self._late[uid] = self._is_overdue(ahead.group.example, bool(len(fits)))
        if not count.any() or self._late[uid]:
            return np.zeros_like(count)
        if devices is not None and (needs := prefilter(self._state.snapshot, ahead.pod).devices) is not None:
            count = devices.place(ahead.group.pods.values(), needs, count)
        room -= ahead.need[:, None] * count
        return count

    def _fits_on(self, ahead: PodInfo, candidates: Candidates, leaving: Rows) -> Mask:
        """On which candidates a pod fits once these have left, and the candidate's own victims: no other one's.

        Victims on other nodes than their candidate's count for all: they may stand in the way of this pod, too.
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
        if needs_devices(snapshot, ahead) and (unsure := self._may_be_freed(candidates, gone)).any():
            bare = run_filters(prefilter(snapshot, without_devices(snapshot, ahead), gone)).code[nodes]
            fits[unsure] = bare[unsure] == 0
        return fits

    def _may_be_freed(self, candidates: Candidates, gone: Rows) -> Mask:
        """The candidates on which a pod goes whose claims may stay in use, or come free for others."""
        snapshot = self._state.snapshot
        rows = np.intersect1d(snapshot.pod_rows(self._state.claims.users), gone)
        return np.isin(candidates.nodes, snapshot.pods.node[rows])

    def _note_lost(self, codes: NDArray[np.int8], lost: Mask, to: Pod) -> None:
        """Mark the candidates that are lost to another pod."""
        if lost.any() and self.blocking is None:
            self.blocking = to
        codes[lost] = AHEAD


class _DevicesAhead:
    """The devices that are left on each candidate for a preemptor whose needs are `own`.

    Pods in front come first: the scheduler allocates theirs before. A device that several claims can share is not
    counted: a pod in front does not take all of it.

    Its victims there and the pods in the rows `gone` have left; `place` lets pods in front take theirs. By candidate,
    `held` are devices that are kept for others.
    """

    def __init__(
        self, candidates: Candidates, gone: Rows, own: DeviceFilter, held: Mapping[int, Collection[DeviceId]]
    ) -> None:
        uids, self._own, self._candidates = candidates.snapshot.pods.uids, own, candidates
        leaving = {uids[row] for row in gone.tolist()}
        self._gone = [
            leaving | {uids[row] for row in candidates.victims_of(number).tolist()}
            for number in range(len(candidates.nodes))
        ]
        self._taken: list[set[DeviceId]] = [set(held.get(number, ())) for number in range(len(candidates.nodes))]
        self._settled: list[set[str]] = [set() for _ in self._gone]
        """By candidate, the claims with a name that have been allocated for a pod in front: all others share them."""

    def place(self, pods: Collection[Pod], needs: DeviceFilter, count: Ints) -> Ints:
        """Let so many of these pods, which are alike, come to each candidate: how many of them get their devices."""
        example = next(iter(pods))
        names = [entry.get("resourceClaimName") for entry in example.spec.resource_claims or ()]
        named = {f"{example.metadata.namespace}/{name}" for name in names if name}
        came = np.zeros_like(count)
        for place in np.flatnonzero(count).tolist():
            node, taken, settled = int(self._candidates.nodes[place]), self._taken[place], self._settled[place]
            self._gone[place] |= {pod.metadata.uid for pod in pods}  # what plans hold for them, they take here
            for _ in range(int(count[place])):
                devices = needs.allocation(node, self._gone[place], taken, settled)
                if devices is None:
                    break
                taken |= set(devices)
                settled |= named
                came[place] += 1
                if not devices:
                    came[place] = count[place]
                    break
        return came

    def lost(self, among: Mask) -> Mask:
        """On which of the candidates `among` these the preemptor does not get its devices any more."""
        lost = np.zeros_like(among)
        for place in np.flatnonzero(among).tolist():
            if self._taken[place]:
                node, gone = int(self._candidates.nodes[place]), self._gone[place]
                lost[place] = self._own.allocation(node, gone, self._taken[place], self._settled[place]) is None
        return lost


def _priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def blocked_text(blocking: Pod | None) -> str:
    """Who keeps the preemptor from the room, for people."""
    if blocking is None:
        return "it is kept for another pod"
    return f"it is kept for {key_of(blocking)} of priority {blocking.spec.priority or 0}, which waits, too"
