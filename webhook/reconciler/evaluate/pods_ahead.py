"""Which candidates pods of higher priority would take: kube-scheduler places these first (docs/semantics.md D11).

A nomination keeps room from pods of equal and lower priority. A pod of higher priority that waits, whoever preempts
for it or nobody, takes what is emptied as soon as it fits there. So the preemptor has to fit beside all of those, when
its victims are gone, and also when the pods are gone that leave the node anyway; and whether those that are nominated
elsewhere come or not. The same holds of devices, if both ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod, key_of
from webhook.preemption.filters.counters import UNBOUNDED
from webhook.preemption.filters.devices import DeviceFilter, needs_devices, nodes_served, without_devices
from webhook.preemption.filters.filtering import prefilter, run_filters
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import PodInfo, compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evaluate.devices_ahead import DevicesAhead
from webhook.reconciler.state.state import State
from webhook.reconciler.state.waiting_pods import WaitingGroup

__all__ = ["AHEAD", "PodsAhead", "Unplaced", "blocked_text"]

AHEAD = 9
"""The code of candidates that pods of higher priority would take."""
PATIENCE = 60.0
"""Seconds for which the scheduler may leave a pod pending that fits; then it does not want to place it."""
_GROUPS = 100
"""Groups of pods ahead that are looked at."""

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Unplaced:
    """Since when pods fit somewhere and are not placed by their scheduler, by `namespace/name`."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def overdue(self, pod: Pod, *, fits: bool, chance: Callable[[float, float], float], now: float) -> bool:
        """Whether the scheduler, which had its chance, leaves a pod pending that fits."""
        key = pod.metadata.uid
        if not fits:
            self._since.pop(key, None)
            return False
        if len(self._since) > 10 * _GROUPS:
            self._since.clear()
        return chance(self._since.setdefault(key, now), PATIENCE) + PATIENCE <= now


class PodsAhead:
    """Says of each candidate whether it is left to the preemptor (`CandidateFilter`).

    `is_overdue` says of a pod that fits somewhere or not whether its scheduler does not want to place it. `held` are
    preemptors of lower priority, by node, for which pods were evicted there: they get the room that was made for them.
    `leaving` are the rows of the pods that leave anyway: how long they take is not known, at most their grace period.
    """

    def __init__(
        self,
        state: State,
        pod: Pod,
        is_overdue: Callable[[Pod, bool], bool],
        held: Mapping[str, Sequence[Pod]],
        leaving: Rows,
    ) -> None:
        self._state, self._pod, self._is_overdue, self._held = state, pod, is_overdue, held
        self._leaving = leaving
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
        """The nodes of these pods that are not left to the preemptor once they are gone, those of a node together.

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
        own = _needs(snapshot, incoming)
        if own is None:
            return codes
        free, beside = _free_without(snapshot, candidates), _kept_for_equals(snapshot, candidates, incoming)
        held_devices: dict[int, list[DeviceId]] = {}
        for place, name in enumerate(candidates.names(range(len(candidates.nodes)))) if held else ():
            for pod in held.get(name, ()):
                need = _needs(snapshot, compile_pod(pod))
                if need is not None and pod.metadata.uid != self._pod.metadata.uid:
                    here = np.arange(len(codes)) == place
                    beside[:, place] += need
                    short = ~(free - beside >= own[:, None]).all(axis=0)
                    self._note_lost(codes, here & (short | self._lets_others_before(pod, candidates.only(here))), pod)
                    if devices := snapshot.device_claims.planned_for(pod.metadata.uid):
                        held_devices.setdefault(place, []).extend(devices)
        later, columns = self._leaving_beside(candidates), _columns(snapshot, candidates)
        everybody = [(group, np.full(len(codes), len(group.pods))) for group in groups]
        without_nominated = [
            (group, _not_nominated_elsewhere(snapshot, columns, group, most)) for group, most in everybody
        ]
        needs = self._needs_of_devices(incoming, groups, any_held=bool(held_devices))
        if needs is not None and held_devices:
            lost = DevicesAhead(candidates, later[:0], needs, held_devices).lost(codes == 0)
            for place, name in enumerate(candidates.names(np.flatnonzero(lost))):
                self._note_lost(codes, lost & (np.cumsum(lost) == place + 1), held[name][0])
        nominated = any((some < most).any() for (_, most), (_, some) in zip(everybody, without_nominated, strict=True))
        rooms = [(free, later[:0]), (free, later)] if len(later) else [(free, later)]
        if len(stays := self._merely_planned(candidates)):
            rooms.append((self._without_room_of(free, stays, columns), later[:0]))
        for made, gone in rooms:
            for coming in (everybody, without_nominated) if nominated else (everybody,):
                room = made.copy()
                _add(room, snapshot.pods.amounts, gone, columns[snapshot.pods.node[gone]])
                left = DevicesAhead(candidates, gone, needs, held_devices) if needs else None
                for example, count, rest in self._placed(coming, candidates, gone, room, left):
                    short = ~(rest - beside >= own[:, None]).all(axis=0)
                    if left is not None:
                        short |= left.lost((count > 0) & (codes == 0))
                    self._note_lost(codes, short & (count > 0), example)
        return codes

    def _lets_others_before(self, pod: Pod, candidate: Candidates) -> bool:
        """Whether evicting there takes room from a pod for which others have gone, and which has it as it is now.

        With the preemptor, those get room there that wait in front of that pod, and behind the preemptor.
        """
        in_front_of_it = PodsAhead(self._state, pod, self._is_overdue, {}, self._leaving)
        return bool(in_front_of_it(candidate).any() and not in_front_of_it(candidate.without_victims()).any())

    def _merely_planned(self, candidates: Candidates) -> Rows:
        """Victims of the candidates that other plans count on and that do not leave yet: theirs may come first."""
        rows = candidates.pods[np.isin(candidates.pods, self._leaving)]
        uids, pods = self._state.snapshot.pods.uids, self._state.pods
        keys = [f"{self._state.snapshot.pods.namespaces[row]}/{self._state.snapshot.pods.names[row]}" for row in rows]
        known = [pods.get(key) for key in keys]
        stays = [
            pod is not None and pod.metadata.uid == uids[row] and not pod.metadata.deletion_timestamp
            for pod, row in zip(known, rows.tolist(), strict=True)
        ]
        planned: Rows = rows[np.array(stays, np.bool_)] if len(rows) else rows
        return planned

    def _without_room_of(self, free: Ints, rows: Rows, columns: NDArray[np.intp]) -> Ints:
        """What is free as long as the pods in these rows stay."""
        pods, kept = self._state.snapshot.pods, np.zeros_like(free)
        _add(kept, pods.amounts, rows, columns[pods.node[rows]])
        return free - kept

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

        Yields who takes room, how many, and what they leave: of each group by itself, since the scheduler may have put
        off the others, and of all in their order. Those that are nominated there and find no room any more keep what
        they need from pods of lower priority all the same.
        """
        snapshot, gone, full = self._state.snapshot, np.concatenate((candidates.pods, leaving)), room.copy()
        columns, kept = _columns(snapshot, candidates), np.zeros_like(room)
        for group, most in coming:
            try:
                ahead = compile_pod(group.example)
            except ClusterError:
                continue
            need = _needs(snapshot, ahead)
            if ahead.beyond or group.example.spec.scheduling_group or need is None:
                continue  # what it needs is not known, so nobody can say where it fits, or no node has it
            alone = self._count_that_come(group.example, ahead, candidates, gone, np.minimum(most, _times(full, need)))
            count = np.minimum(alone, _times(room, need))
            if left is not None and count.any() and (needs := prefilter(snapshot, ahead).devices) is not None:
                count = left.place(group.pods.values(), needs, count)
            elif len(coming) > 1:
                yield group.example, alone, full - need[:, None] * alone
            room -= need[:, None] * count
            unplaced = np.maximum(_nominated_there(snapshot, columns, group, len(count)) - count, 0)
            kept += need[:, None] * unplaced
            yield group.example, count + unplaced, room - kept

    def _note_lost(self, codes: NDArray[np.int8], lost: Mask, to: Pod) -> None:
        """Mark the candidates that are lost to another pod."""
        if lost.any() and self.blocking is None:
            self.blocking = to
        codes[lost] = AHEAD

    def _count_that_come(self, pod: Pod, ahead: PodInfo, candidates: Candidates, gone: Rows, count: Ints) -> Ints:
        """How many pods like this one would come to each candidate, of the so many for which there is room."""
        snapshot = self._state.snapshot
        if not count.any():
            return count
        code = run_filters(prefilter(snapshot, ahead, gone)).code[candidates.nodes]
        if needs_devices(snapshot, ahead) and (unsure := self._may_be_freed(candidates, gone)).any():
            bare = run_filters(prefilter(snapshot, without_devices(snapshot, ahead), gone)).code[candidates.nodes]
            code = np.where(unsure, bare, code)
        count = np.where(code == 0, count, 0)
        if not count.any():
            return count
        fits = bool(len(run_filters(prefilter(snapshot, ahead)).fits))
        return np.zeros_like(count) if self._is_overdue(pod, fits) else count

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


def _nominated_there(snapshot: Snapshot, columns: NDArray[np.intp], group: WaitingGroup, size: int) -> Ints:
    """How many pods of a group are nominated to each candidate."""
    count = np.zeros(size, np.int64)
    for pod in group.pods.values():
        if pod.status.nominated_node_name:
            row = snapshot.nodes.find(pod.status.nominated_node_name)
            if row is not None and columns[row] >= 0:
                count[columns[row]] += 1
    return count


def _not_nominated_elsewhere(snapshot: Snapshot, columns: NDArray[np.intp], group: WaitingGroup, most: Ints) -> Ints:
    """How many pods of a group come to each candidate if those that are nominated go where they are nominated."""
    nominated = sum(1 for pod in group.pods.values() if pod.status.nominated_node_name)
    return most - nominated + _nominated_there(snapshot, columns, group, len(most))


def _needs(snapshot: Snapshot, incoming: PodInfo) -> Ints | None:
    """What a pod uses up: one pod, then its amount of each resource; None if no node has one of them.

    Where devices serve a resource no node need have it.
    """
    index = snapshot.nodes.resources.index
    amounts = {
        name: amount
        for name, amount in incoming.amounts.items()
        if name in index or name not in snapshot.devices.class_of_resource
    }
    if not index.keys() >= amounts.keys():
        return None
    need = np.zeros(1 + len(index), np.int64)
    need[0] = 1
    for name, amount in amounts.items():
        need[1 + index[name]] = amount
    return need


def _free_without(snapshot: Snapshot, candidates: Candidates) -> Ints:
    """What is free on the candidates once their victims are gone, as `_needs` counts it."""
    nodes, rows = snapshot.nodes, candidates.nodes
    free = np.zeros((1 + len(nodes.resources.names), len(rows)), np.int64)
    free[0] = nodes.pod_limit[rows] - nodes.pod_count[rows]
    free[1 : 1 + len(nodes.used)] = nodes.allocatable[:, rows] - nodes.used[:, rows]
    for name in snapshot.devices.class_of_resource.keys() & nodes.resources.index.keys():
        free[1 + nodes.resources.index[name], nodes_served(snapshot, name)[rows]] = UNBOUNDED
    _add(free, snapshot.pods.amounts, candidates.pods, np.repeat(np.arange(len(rows)), candidates.sizes))
    return free


def _kept_for_equals(snapshot: Snapshot, candidates: Candidates, incoming: PodInfo) -> Ints:
    """What pods of the preemptor's own priority hold that are nominated to the candidates, as `_needs` counts it."""
    pods = snapshot.pods
    place = _columns(snapshot, candidates)
    nominees = pods.nominees()
    equal = nominees[(pods.priority[nominees] == incoming.priority) & (place[pods.nominated[nominees]] >= 0)]
    equal = equal[equal != pods.find(incoming.namespace, incoming.name)]
    kept = np.zeros((1 + len(snapshot.nodes.resources.names), len(candidates.nodes)), np.int64)
    _add(kept, pods.amounts, equal, place[pods.nominated[equal]])
    return kept


def _columns(snapshot: Snapshot, candidates: Candidates) -> NDArray[np.intp]:
    """Node's row to its column among the candidates, -1 for others."""
    place = np.full(snapshot.nodes.rows, -1, np.intp)
    place[candidates.nodes] = np.arange(len(candidates.nodes))
    return place


def _add(total: Ints, amounts: Ints, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
    """Add what these pods use to the columns of their nodes."""
    np.add.at(total[0], columns, 1)
    for resource in range(len(amounts)):
        np.add.at(total[1 + resource], columns, amounts[resource, rows])


def _times(free: Ints, need: Ints) -> Ints:
    """How many times something fits into what is free, by candidate."""
    wanted = need > 0
    times: Ints = (free[wanted] // need[wanted][:, None]).min(axis=0)
    return np.maximum(times, 0)


def blocked_text(blocking: Pod | None) -> str:
    """Who keeps the preemptor from the room, for people."""
    if blocking is None:
        return "it is kept for another pod"
    return f"it is kept for {key_of(blocking)} of priority {blocking.spec.priority or 0}, which waits, too"
