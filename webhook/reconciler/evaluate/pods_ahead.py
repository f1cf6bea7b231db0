"""Which candidates pods of higher priority would take: kube-scheduler places these first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A waiting pod of higher priority takes what is emptied as
soon as it fits there, whoever preempts for it. So the preemptor has to fit beside all of those when its victims are
gone, and also when the pods are gone that leave the node anyway. It has to fit whether those that are nominated
elsewhere come or not. The same holds of devices, if both ask for them, of host ports,
of claims that only one pod may use, and of anti-affinity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.devices import DeviceFilter, needs_devices, without_devices
from webhook.preemption.filters.filtering import Failures, prefilter, run_filters, without_pods
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.selection import fits_without
from webhook.reconciler.evaluate.candidate_room import (
    add_amounts,
    columns_of,
    free_without,
    kept_for_equals,
    needed_by,
    nominated_there,
    not_nominated_elsewhere,
    share_no_node,
    times_in,
    without_room_of,
)
from webhook.reconciler.evaluate.devices_ahead import DevicesAhead
from webhook.reconciler.evaluate.gangs_ahead import come_together
from webhook.reconciler.state.state import State
from webhook.reconciler.state.waiting_pods import WaitingGroup

AHEAD = 9
"""The code of candidates that pods of higher priority would take."""
_GROUPS = 100
"""Groups of pods ahead that are looked at."""

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class _HeldRoom(NamedTuple):
    """The room that was made on candidates for preemptors of lower priority.

    By candidate, `pods` are these, the least important first, and a column of `needed` is what they need.
    """

    pods: dict[int, list[Pod]]
    needed: Ints


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
        self._known: dict[str, Failures] = {}
        """What the filters say of a pod, by its uid, as things are."""
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
        codes = np.zeros(len(candidates.nodes), np.int8)
        groups = self._groups
        if not (groups or held) or not len(candidates.nodes):
            return codes
        snapshot, incoming = self._state.snapshot, compile_pod(self._pod)
        own = needed_by(snapshot, incoming)
        if own is None:
            return codes
        beside = kept_for_equals(snapshot, candidates, incoming)
        # 1. Where pods were evicted for one of lower priority, that one keeps its room and its devices.
        room = self._held_room(candidates, held)
        beside += room.needed
        if room.pods:
            free = free_without(snapshot, candidates)
            self._note_kept(codes, room, np.any(free - beside < own[:, None], axis=0))
            self._note_kept(codes, room, self._lost_to_others(room, candidates))
        devices = self._devices_held(room)
        needs = self._needs_of_devices(incoming, groups, any_held=bool(devices))
        if needs is not None and devices:
            nobody = np.zeros(0, np.intp)
            self._note_kept(codes, room, DevicesAhead(candidates, nobody, needs, devices).lost(codes == 0))
        # 2. Pods of higher priority are placed first.
        for example, lost in self._shortages(
            candidates, groups, own[:, None], beside, incoming=incoming, needs=needs, held_devices=devices
        ):
            self._note_lost(codes, lost, example)
        return codes

    def _shortages(
        self,
        candidates: Candidates,
        groups: Sequence[WaitingGroup],
        own: Ints,
        beside: Ints,
        *,
        incoming: PodInfo | None = None,
        needs: DeviceFilter | None = None,
        held_devices: Mapping[int, Sequence[DeviceId]] = MappingProxyType({}),
    ) -> Iterator[tuple[Pod, Mask]]:
        """Place the groups in every room that may come up. Yields who comes, and which candidates then lack `own`.

        What is kept for others is `beside`; both are by candidate. `incoming` needs it, and `needs` of devices.
        """
        snapshot, free = self._state.snapshot, free_without(self._state.snapshot, candidates)
        later, columns = self._leaving_beside(candidates), columns_of(snapshot, candidates)
        everybody = [(group, np.full(len(candidates.nodes), len(group.pods))) for group in groups]
        without_nominated = [
            (group, not_nominated_elsewhere(snapshot, columns, group, most)) for group, most in everybody
        ]
        nominated = any((some < most).any() for (_, most), (_, some) in zip(everybody, without_nominated, strict=True))
        rooms = [(free, later[:0]), (free, later)] if len(later) else [(free, later)]
        if len(stays := self._merely_planned(candidates)):
            rooms.append((without_room_of(snapshot, free, stays, columns), later[:0]))
        lost = np.zeros(len(candidates.nodes), np.bool_)
        for made, gone in rooms:
            for coming in (everybody, without_nominated) if nominated else (everybody,):
                room = made.copy()
                add_amounts(room, snapshot.pods.amounts, gone, columns[snapshot.pods.node[gone]])
                left = DevicesAhead(candidates, gone, needs, held_devices) if needs else None
                for example, count, rest in self._placed(coming, candidates, gone, room, left):
                    short = ~(rest - beside >= own).all(axis=0) | self._apart(example, incoming, candidates)
                    if left is not None:
                        short |= left.lost((count > 0) & ~lost)
                    short &= count > 0
                    lost |= short
                    yield example, short

    def _apart(self, ahead: Pod, incoming: PodInfo | None, candidates: Candidates) -> Mask:
        """On which candidates the two would not be together: by a host port or anti-affinity."""
        nobody = np.zeros(len(candidates.nodes), np.bool_)
        return nobody if incoming is None else share_no_node(self._state.snapshot, incoming, ahead, candidates.nodes)

    def _held_room(self, candidates: Candidates, held: Mapping[str, Sequence[Pod]]) -> _HeldRoom:
        snapshot = self._state.snapshot
        needed = np.zeros((1 + len(snapshot.nodes.resources.names), len(candidates.nodes)), np.int64)
        pods: dict[int, list[Pod]] = {}
        for place, name in enumerate(candidates.names(range(len(candidates.nodes)))) if held else ():
            for pod in held.get(name, ()):
                need = needed_by(snapshot, compile_pod(pod))
                if need is not None and pod.metadata.uid != self._pod.metadata.uid:
                    needed[:, place] += need
                    pods.setdefault(place, []).append(pod)
        return _HeldRoom({place: sorted(some, key=_priority_of) for place, some in pods.items()}, needed)

    def _devices_held(self, room: _HeldRoom) -> dict[int, list[DeviceId]]:
        """The devices that plans hold for these pods, by candidate."""
        planned = self._state.snapshot.device_claims.planned_for
        devices = {
            place: [device for pod in pods for device in planned(pod.metadata.uid)] for place, pods in room.pods.items()
        }
        return {place: some for place, some in devices.items() if some}

    def _lost_to_others(self, room: _HeldRoom, candidates: Candidates) -> Mask:
        """Where pods for which others have gone lose their room once the victims are gone, and have it as things are.

        Waiting pods of a priority between theirs and the preemptor's would take it.
        """
        lost = np.zeros(len(candidates.nodes), np.bool_)
        lowest = {place: pods[0] for place, pods in room.pods.items()}
        if not lowest:
            return lost
        groups = list(self._state.waiting.ahead_of(min(lowest.values(), key=_priority_of), _GROUPS))
        between = [group for group in groups if group.priority <= _priority_of(self._pod)]
        if not any(group.pods.keys() - {key_of(self._pod)} for group in between):
            return lost
        here = np.isin(np.arange(len(lost)), list(lowest))
        priority = np.array([_priority_of(lowest[place]) for place in sorted(lowest)])
        there, own = candidates.only(here), room.needed[:, here]

        def short(of: Candidates) -> Mask:
            lack = np.zeros(len(priority), np.bool_)
            for ahead, lacking in self._shortages(of, groups, own, np.zeros_like(own)):
                lack |= lacking & (priority < _priority_of(ahead))
            return lack

        if (then := short(there)).any():
            lost[here] = then & ~short(there.without_victims())
        return lost

    def _merely_planned(self, candidates: Candidates) -> Rows:
        """Victims of the candidates that do not leave yet and that other plans count on, too: those may be first."""
        rows = candidates.pods[np.isin(candidates.pods, self._leaving)]
        uids, pods = self._state.snapshot.pods.uids, self._state.pods
        keys = [f"{self._state.snapshot.pods.namespaces[row]}/{self._state.snapshot.pods.names[row]}" for row in rows]
        known = [pods.get(key) for key in keys]
        stays = [
            pod is not None
            and pod.metadata.uid == uids[row]
            and not pod.metadata.deletion_timestamp
            and not self._state.expectations.leaves_for(key).issubset(self._own)
            for key, pod, row in zip(keys, known, rows.tolist(), strict=True)
        ]
        planned: Rows = rows[np.array(stays, np.bool_)] if len(rows) else rows
        return planned

    def _leaving_beside(self, candidates: Candidates) -> Rows:
        """The pods that leave the candidates anyway, beside their victims."""
        rows = np.setdiff1d(self._leaving, candidates.pods)
        beside: Rows = rows[np.isin(self._state.snapshot.pods.node[rows], candidates.nodes)]
        return beside

    def _needs_of_devices(
        self, incoming: PodInfo, groups: Sequence[WaitingGroup], *, any_held: bool
    ) -> DeviceFilter | None:
        """What the preemptor needs of devices; None if it needs none, and if none are held and no pod in front does."""
        snapshot = self._state.snapshot
        others = any_held or any(_asks_for_devices(snapshot, group) for group in groups)
        return prefilter(snapshot, incoming).devices if others and needs_devices(snapshot, incoming) else None

    def _placed(
        self,
        coming: Sequence[tuple[WaitingGroup, Ints]],
        candidates: Candidates,
        leaving: Rows,
        room: Ints,
        left: DevicesAhead | None,
    ) -> Iterator[tuple[Pod, Ints, Ints]]:
        """Place so many of each group in the room there is once these pods have left, too.

        Yields who takes room, how many, and what they leave. It does so for each group by itself, since the scheduler
        may have put off the others, and for all in their order. Nominated pods that find no room any more still keep
        what they need from pods of lower priority.
        """
        snapshot, full = self._state.snapshot, room.copy()
        columns, kept = columns_of(snapshot, candidates), np.zeros_like(room)
        for group, everybody in coming:
            try:
                ahead = compile_pod(group.example)
            except ClusterError:
                continue
            need = needed_by(snapshot, ahead)
            if ahead.beyond or need is None:
                continue  # what it needs is not known, so nobody can say where it fits, or no node has it
            alone = self._count_that_come(
                group.example, ahead, candidates, leaving, np.minimum(everybody, times_in(full, need))
            )
            if group.example.spec.scheduling_group and alone.any():
                alone = self._placed_together(group, ahead, candidates, alone, everybody)
            count = np.minimum(alone, times_in(room, need))
            if left is not None and count.any() and (needs := prefilter(snapshot, ahead).devices) is not None:
                count = left.place(group.pods.values(), needs, count)
            elif len(coming) > 1:
                yield group.example, alone, full - need[:, None] * alone
            room -= need[:, None] * count
            unplaced = np.maximum(nominated_there(snapshot, columns, group, len(count)) - count, 0)
            kept += need[:, None] * unplaced
            yield group.example, count + unplaced, room - kept

    def _placed_together(
        self, group: WaitingGroup, ahead: PodInfo, candidates: Candidates, here: Ints, alike: Ints
    ) -> Ints:
        """How many of these members of a gang come, of those with room `here`; nominated members come in any case."""
        snapshot, pod = self._state.snapshot, group.example
        gang, need = form_gang(snapshot, self._state.members.of(group_of(pod))), needed_by(snapshot, ahead)
        if gang.missing == 1 or need is None:
            return here
        fits = self._failures(pod, ahead).fits
        come = come_together(snapshot, gang, candidates, need=need, fits=fits, here=here, alike=alike)
        nominated = nominated_there(snapshot, columns_of(snapshot, candidates), group, len(here))
        return np.where(come, here, np.minimum(here, nominated))

    def _note_lost(self, codes: NDArray[np.int8], lost: Mask, to: Pod) -> None:
        """Mark the candidates that are lost to another pod."""
        if lost.any() and self.blocking is None:
            self.blocking = to
        codes[lost] = AHEAD

    def _note_kept(self, codes: NDArray[np.int8], room: _HeldRoom, kept: Mask) -> None:
        """Mark the candidates that are kept for the pods for which others have gone there."""
        for place in np.flatnonzero(kept).tolist():
            if place in room.pods:
                self._note_lost(codes, np.arange(len(codes)) == place, room.pods[place][0])

    def _count_that_come(self, pod: Pod, ahead: PodInfo, candidates: Candidates, leaving: Rows, count: Ints) -> Ints:
        """How many pods like this one would come to each candidate, of the so many for which there is room."""
        if not count.any():
            return count
        key = pod.metadata.uid, candidates.nodes.tobytes() + candidates.pods.tobytes(), leaving.tobytes()
        if key not in self._fitting:
            self._fitting[key] = self._fits_on(ahead, candidates, leaving)
        count = np.where(self._fitting[key], count, 0)
        if not count.any():
            return count
        fits = bool(len(self._failures(pod, ahead).fits))
        return np.zeros_like(count) if self._is_overdue(pod, fits) else count

    def _fits_on(self, ahead: PodInfo, candidates: Candidates, leaving: Rows) -> Mask:
        """On which candidates a pod fits once these have left, and the candidate's own victims: no other one's."""
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

    def _failures(self, pod: Pod, ahead: PodInfo) -> Failures:
        """Where this pod fits now; the same is asked for each room and each order of those who come."""
        if pod.metadata.uid not in self._known:
            self._known[pod.metadata.uid] = run_filters(prefilter(self._state.snapshot, ahead))
        return self._known[pod.metadata.uid]

    def _may_be_freed(self, candidates: Candidates, gone: Rows) -> Mask:
        """The candidates on which a pod goes whose claims may stay in use, or come free for others."""
        snapshot = self._state.snapshot
        rows = np.intersect1d(snapshot.pod_rows(self._state.named_claims.users), gone)
        return np.isin(candidates.nodes, snapshot.pods.node[rows])


def _asks_for_devices(snapshot: Snapshot, group: WaitingGroup) -> bool:
    try:
        return needs_devices(snapshot, compile_pod(group.example))
    except ClusterError:
        return False


def _priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def blocked_text(blocking: Pod | None) -> str:
    """Who keeps the preemptor from the room, for people."""
    if blocking is None:
        return "it is kept for another pod"
    return f"it is kept for {key_of(blocking)} of priority {blocking.spec.priority or 0}, which waits, too"
