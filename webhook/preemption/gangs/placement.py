"""The waiting members of a gang on nodes, one by one (docs/semantics.md D12).

Every member is a preemptor: it goes where it costs least, with those before it placed and the victims
so far gone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from webhook.kube.objects.devices import ClaimConsumer
from webhook.kube.objects.pod import Pod
from webhook.policy.model.creation import INDEX_LABELS, at_creation
from webhook.preemption.filters.filtering import (
    Failures,
    PreFilterState,
    nodes_where_preemption_might_help,
    prefilter,
    run_filters,
)
from webhook.preemption.gangs.eviction_units import EvictionUnits, Unit, rows_of
from webhook.preemption.gangs.gang import Gang
from webhook.preemption.ranking import Ranking
from webhook.preemption.snapshot.columns import Rows, grown
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import PodInfo, claim_name, compile_pod, shape_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.eligible import Exclusion
from webhook.preemption.victims.selection import find_victims

Placed = tuple[Pod, int]
"""A member, and the row of the node that it goes to."""
Kind = TypeVar("Kind", bound=np.generic)
_FEW_MEMBERS, _FEW_NODES = 8, 4
_LOOKS = 3000
"""How often a placer looks for another node."""
_NO_POD = "a member of a gang"  # no pod has such a name
_SHARE = 4
"""Room is made for one of so many left at a time: with 4, for a quarter."""


class TrialPlacement:
    """A gang's waiting members on trial in a snapshot: each has a row, none a nomination."""

    def __init__(self, snapshot: Snapshot, members: Sequence[Pod]) -> None:
        self.snapshot, self._pods, self._members = snapshot, snapshot.pods, members
        self._are_known = [bool(self._pods.find(pod.metadata.namespace, pod.metadata.name)) for pod in members]

    def __enter__(self) -> Self:
        for pod in self._members:
            self.take_off(pod)
        return self

    def __exit__(self, *_: object) -> None:
        for pod, known in zip(self._members, self._are_known, strict=True):
            self.snapshot.release_devices(_of_trial(pod), pod.metadata.namespace)
            if known:
                self._pods.put(pod)
            else:
                self._pods.remove(pod.metadata.namespace, pod.metadata.name)

    def put_on(self, pod: Pod, node: int, devices: Collection[DeviceId] = ()) -> None:
        """Put the member on this node (row), with these devices."""
        self._put(pod, self.snapshot.nodes.names[node])
        if devices:
            nobody = ClaimConsumer(resource="pods", name=_NO_POD, uid=_NO_POD)
            self.snapshot.hold_devices(_of_trial(pod), pod.metadata.namespace, nobody, devices)

    def take_off(self, pod: Pod) -> None:
        """Let the member wait, without a nomination and devices."""
        self._put(pod, "")
        self.snapshot.release_devices(_of_trial(pod), pod.metadata.namespace)

    def padded(self, column: NDArray[Kind] | None) -> NDArray[Kind] | None:
        """A column by pod row from before the trial, with entries for the members."""
        return None if column is None else grown(column, max(len(column), self._pods.rows))

    def _put(self, pod: Pod, node: str) -> None:
        spec = replace(pod.spec, node_name=node, scheduling_gates=None)
        status = replace(pod.status, nominated_node_name="")
        self._pods.put(replace(pod, spec=spec, status=status))


class MemberShape(NamedTuple):
    """Members alike to the filters, and one of them compiled, at the gang's priority."""

    pods: tuple[Pod, ...]
    incoming: PodInfo


def shapes_of(gang: Gang, snapshot: Snapshot, *, by_labels: bool) -> list[MemberShape]:
    """The waiting members by what they ask for, in their order.

    With `by_labels` labels always tell them apart, else only if labels may bind some pod to others.
    Labels that number the members never do. Raises ClusterError for a member that cannot be read.
    """
    alike: dict[tuple[Hashable, ...], list[Pod]] = {}
    by_labels |= len(snapshot.pods.anti.used()) > 1
    for pod in gang.waiting:
        labels: set[str] = set()
        if by_labels or pod.spec.affinity is not None or pod.spec.topology_spread_constraints:
            labels = (pod.metadata.labels or {}).keys() - set(INDEX_LABELS)
        made = sorted((at_creation(pod.metadata).labels or {}).items()) if by_labels else []
        key = shape_of(pod, labels), *(pair for pair in made if pair[0] not in INDEX_LABELS)
        alike.setdefault(key, []).append(pod)
    return [MemberShape(tuple(pods), compile_pod(pods[0])._replace(priority=gang.priority)) for pods in alike.values()]


class VictimsSoFar:
    """The victims so far: `chosen` are the units, `rows` also those gone anyway."""

    def __init__(self, units: EvictionUnits, gone: Rows) -> None:
        self.rows, self._units = gone, units
        self._victims = units.victims._replace(code=units.victims.code.copy())
        self._victims.code[gone] = Exclusion.EXCLUDED
        self.chosen: dict[tuple[int, int], Unit] = {}
        """By first row and group: a pod its group can spare is a unit, too."""

    def make_room(self, failures: Failures, most: int) -> list[int]:
        """Take the cheapest victims on a share of `most` nodes, at least one; these rows."""
        victims, most = self._victims, max(1, most // _SHARE)
        candidates = find_victims(failures.state, victims, nodes_where_preemption_might_help(failures))
        order = Ranking(candidates, victims).first(len(candidates.nodes))
        for start in range(0, len(order), most):
            some = order[start : start + most]
            helped = [number for number in some if self._takes(candidates.victims_of(number))]
            if helped:
                return [int(node) for node in candidates.nodes[helped]]
        return []

    def _takes(self, victims: Rows) -> bool:
        """Let a candidate's victims go, unless strict budgets keep them now."""
        units, budgets = self._units, self._units.snapshot.budgets
        going = np.union1d(victims, rows_of(self.chosen.values()))
        keeps_budgets = units.keeps_budgets and len(budgets)
        if keeps_budgets and units.beyond_budget(going).any():
            return False
        self.chosen |= {(unit.rows[0], unit.group): unit for unit in units.among(victims)}
        self.rows = np.union1d(self.rows, victims)
        self._victims.code[victims] = Exclusion.EXCLUDED
        if keeps_budgets:  # no other pod of a strict budget that they use up may go
            evicts = units.victims.rules.evicts
            spent, _ = budgets.refused(self._victims.rows, strict=True, evicts=evicts, gone=going)
            self._victims.exclude_by_budget(spent)
        return True


class Placer:
    """Puts as many members on nodes as are needed, none on the nodes `left_out` (rows).

    Members that ask for devices get them in turn. A node gets no two shapes of these: the scheduler may
    give the one what is meant for the other. A node gets only one member if devices can be shared
    there, or if the member asks for volumes yet to be bound: nobody knows what the one before
    got.
    """

    def __init__(self, trial: TrialPlacement, shapes: Sequence[MemberShape], need: int, left_out: Rows) -> None:
        self.trial = trial
        self.shapes = shapes
        self.need = need
        self.left_out = left_out
        self.placed: list[Placed] = []
        self._with_devices: dict[int, bytes] = {}
        """What members with devices ask for, by node; empty if they may get anything."""
        self._looks = _LOOKS

    def look(self, shape: MemberShape, gone: Rows) -> Failures:
        """Where the shape's next member fits beside those placed, without the pods `gone` (rows)."""
        state = prefilter(self.trial.snapshot, shape.incoming, gone)
        occupied: list[int] = []
        if self._binds_volumes(shape.incoming.pod):
            occupied = [node for _, node in self.placed]
        elif state.devices is not None:
            asks = state.devices.asks
            occupied = [node for node, other in self._with_devices.items() if other != asks]
        return run_filters(state, np.append(self.left_out, occupied).astype(np.intp))

    def _binds_volumes(self, pod: Pod) -> bool:
        names = (claim_name(pod, volume) for volume in pod.spec.volumes or ())
        claims = (self.trial.snapshot.claims.get(f"{pod.metadata.namespace}/{name}") for name in names)
        return any(claim is not None and not claim.spec.volume_name for claim in claims)

    def put(self, pod: Pod, node: int, state: PreFilterState) -> None:
        """Put the member on the node, with the devices it gets in this state."""
        devices = None
        if state.devices is not None:
            devices = state.devices.allocation(node)
            known = devices is not None and not state.devices.shared(node)
            self._with_devices[node] = state.devices.asks if known else b""
        self.trial.put_on(pod, node, devices or ())
        self.placed.append((pod, node))

    def take_back(self) -> None:
        """Take the member off that was put on a node last."""
        pod, node = self.placed.pop()
        self.trial.take_off(pod)
        if all(other != node for _, other in self.placed):
            self._with_devices.pop(node, None)

    def clear(self) -> None:
        """Take everybody off again."""
        while self.placed:
            self.take_back()

    def place(self, gone: Rows) -> list[Placed] | None:
        """Place the members; None if they have no room. The trial is as before.

        First each in turn goes to the tightest node where it fits. If that places too few, other
        nodes are tried for a few members, with a bounded number of looks.
        """
        placed = self.in_turn(gone)
        if placed is not None or self.need > _FEW_MEMBERS:
            return placed
        waiting = [(shape, pod) for shape in self.shapes for pod in shape.pods]
        try:
            return list(self.placed) if self._try_nodes(waiting, gone) else None
        finally:
            self.clear()

    def in_turn(self, gone: Rows, evictions: VictimsSoFar | None = None) -> list[Placed] | None:
        """Place members in turn, on the tightest node or where room is made; None if too few fit.

        Members that only use up resources are not in each other's way on different nodes: one goes to
        each. The trial is as before.
        """
        need, waiting = self.need, sum(len(shape.pods) for shape in self.shapes)
        try:
            for shape in self.shapes:
                pods = list(shape.pods)
                while pods and len(self.placed) < need and waiting >= need:
                    failures = self.look(shape, gone if evictions is None else evictions.rows)
                    most = min(len(pods), need - len(self.placed)) if failures.state.is_local else 1
                    nodes: list[int] = by_tightness(failures)[:most].tolist()
                    if not nodes and evictions is not None:
                        nodes = evictions.make_room(failures, most)
                        if nodes and failures.state.devices is not None:
                            # The victims' devices are free now
                            failures = self.look(shape, evictions.rows)
                    for node in nodes:
                        self.put(pods.pop(0), node, failures.state)
                    if not nodes:
                        waiting -= len(pods)
                        break
            return list(self.placed) if len(self.placed) >= need else None
        finally:
            self.clear()

    def _try_nodes(self, waiting: list[tuple[MemberShape, Pod]], gone: Rows) -> bool:
        """Try nodes for the first that waits until the rest has room."""
        need = self.need - len(self.placed)
        if not need:
            return True
        if len(waiting) < need or self._looks <= 0:
            return False
        (shape, pod), rest = waiting[0], waiting[1:]
        self._looks -= 1
        failures = self.look(shape, gone)
        if failures.error:
            return False
        for node in by_tightness(failures)[:_FEW_NODES].tolist():
            self.put(pod, node, failures.state)
            if self._try_nodes(rest, gone):
                return True
            self.take_back()
        # Who is alike has no room either
        return self._try_nodes([entry for entry in rest if entry[0] is not shape], gone)


def by_tightness(failures: Failures) -> Rows:
    """The nodes (rows) that fit, first those with the least left, then by name."""
    state, nodes = failures.state, failures.fits
    left = np.zeros(len(nodes))
    for counter in state.counters:
        if counter.stage == "resources" and counter.name:
            free = counter.limit[nodes] - counter.beside[nodes]
            left += np.minimum(free / state.incoming.amounts[counter.name], 1e6)
    return nodes[np.lexsort((state.snapshot.nodes.alphabetical()[nodes], left))]


def _of_trial(pod: Pod) -> str:
    """What a member's devices are held for; no plan has such a name."""
    return f"trial of {pod.metadata.name}"
