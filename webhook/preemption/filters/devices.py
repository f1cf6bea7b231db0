"""Where the pod's claims can be allocated, by each set of freed claims.

Nodes in the same state are asked about once (`devices.node_states`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from webhook.preemption.devices.allocator import Allocation, OutOfStepsError, Steps, TakenDevices, allocate
from webhook.preemption.devices.node_states import NodeStates, pools_of
from webhook.preemption.devices.pod_claims import PodNeeds, extended_claim
from webhook.preemption.devices.requests import ClaimDemand, DemandError
from webhook.preemption.snapshot.columns import Bits, Ints8, Mask, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.snapshot import Snapshot

MOST_STEPS = 20_000
"""Devices that one search on a node tries at most."""
MOST_STEPS_IN_ALL = 500_000
"""The same for all searches of a decision."""


class DeviceOutcome(IntEnum):
    """What the search on a node comes to."""

    FITS = 0
    TAKEN = 1
    INVALID = 2
    ELSEWHERE = 3
    STALE = 4
    NOT_SEARCHED = 5


REASONS = {
    DeviceOutcome.TAKEN: ("cannot allocate all claims", True),
    DeviceOutcome.INVALID: ("invalid resource pools were encountered", True),
    DeviceOutcome.ELSEWHERE: ("resourceclaim not available on the node", False),
    DeviceOutcome.STALE: ("cannot schedule extended resource claim", False),
    DeviceOutcome.NOT_SEARCHED: (f"its devices were not found within {MOST_STEPS} steps", False),
}
"""kube-scheduler's words, but for the last, and whether the removal of pods can cure it."""
Found = DeviceOutcome | DemandError
"""What a search comes to. An error ends the attempt if it is met on a node as it is."""


class DeviceFilter:
    """What the preemptor needs of devices, on the `searched` nodes."""

    def __init__(self, snapshot: Snapshot, incoming: PodInfo, needs: PodNeeds, without: Rows) -> None:
        pod, rows = incoming.pod, snapshot.nodes.rows
        self._snapshot, self._needs = snapshot, needs
        # What is held for itself, and for plans of lower priority, is not in its way
        holds = snapshot.device_claims.yielding_to(pod.metadata.uid, incoming.priority)
        holders = [row for _, row in holds if row]
        self._without = np.append(without, holders).astype(np.intp)
        uids = snapshot.pods.uids
        self._gone = {uid for uid, _ in holds}
        self._gone.update(uids[row] for row in self._without.tolist())
        self._steps = Steps(MOST_STEPS, MOST_STEPS_IN_ALL)
        self._known: dict[tuple[object, ...], Found] = {}
        """By node and freed claims, by the state of a node, and by what a search sees of it."""
        self.delegated = {name: nodes_served(snapshot, name) for name in needs.extended}
        """By extended resource, the nodes where devices serve it."""
        set_of = np.zeros(rows, np.intp)
        for mask in self.delegated.values():
            _, set_of = np.unique(2 * set_of + mask, return_inverse=True)
        self._set_of = set_of
        """By node, which set of these resources devices serve there."""
        self._made: list[ClaimDemand | None] = []
        self._bound = needs.stale or any(need.is_allocated for need in needs.claims)
        self.searched = np.full(rows, False)
        _, examples = np.unique(set_of, return_index=True)
        for number, node in enumerate(examples.tolist()):
            resources = [name for name, mask in self.delegated.items() if mask[node]]
            made = extended_claim(snapshot, pod, resources) if resources else None
            self._made.append(made)
            if self._bound or any(claim.requests for claim in self._claims_for(number)):
                self.searched |= set_of == number
        specs = [need.claim.spec for need in needs.claims]
        amounts = [(name, incoming.amounts[name]) for name in needs.extended]
        self.asks = msgspec.json.encode((specs, amounts))
        """What is asked for, whatever the claims are called."""

    def judge(self, among: Mask) -> Ints8:
        """The outcome on these nodes as things are. Raises DemandError."""
        outcomes = np.zeros(len(among), np.int8)
        searched = among & self.searched
        told = np.flatnonzero(searched & self.states.told)
        untold = np.flatnonzero(searched & ~self.states.told)
        seen = [self.outcome(row, ()) for row in untold.tolist()]
        seen += self.outcomes(told, self.states.taken[told])
        for row, outcome in zip(np.append(untold, told).tolist(), seen, strict=True):
            if isinstance(outcome, DemandError):
                raise outcome
            outcomes[row] = outcome
        return outcomes

    @cached_property
    def states(self) -> NodeStates:
        """The searched nodes by what a search depends on; none if claims are allocated already."""
        gone = np.full(len(self._snapshot.pods.node), False)
        gone[self._without] = True
        groups = []
        for number in range(0 if self._bound else len(self._made)):
            nodes = np.flatnonzero((self._set_of == number) & self.searched)
            groups.append((self._claims_for(number), nodes))
        return NodeStates(self._snapshot, groups, gone)

    def outcomes(self, nodes: Rows, taken: Bits) -> list[Found]:
        """The outcomes in these states of nodes."""
        known, states = self._known, self.states
        keys = list(zip(states.kind[nodes].tolist(), taken.tolist(), strict=True))
        for node, key in zip(nodes.tolist(), keys, strict=True):
            if key in known:
                continue
            canonical = states.canonical(*key)
            if canonical not in known:
                places = enumerate(pools_of(self._snapshot, node).devices)
                held = {device.id for place, device in places if key[1] >> place & 1}
                known[canonical] = self._search(node, TakenDevices(None, beside=held))
            known[key] = known[canonical]
        return [known[key] for key in keys]

    def outcome(self, node: int, gone: Iterable[int]) -> Found:
        """The outcome on the node without the pods in the rows `gone`."""
        uids, claims = self._snapshot.pods.uids, self._snapshot.device_claims
        freed = claims.freed_without(self._gone.union(uids[row] for row in gone))
        key = (node, freed)
        if key not in self._known:
            self._known[key] = self._search(node, TakenDevices(claims, freed))
        return self._known[key]

    def allocation(
        self,
        node: int,
        gone: Collection[str] = (),
        beside: Collection[DeviceId] = (),
        settled: Collection[str] = (),
    ) -> list[DeviceId] | None:
        """The devices the pod would get there, without shared ones; None if it fails.

        The pods with the uids `gone` have left. Others have the devices `beside`. The claims
        `settled`, by `namespace/name`, have theirs.
        """
        claims = self._snapshot.device_claims
        freed = claims.freed_without(self._gone.union(gone))
        try:
            had = self._allocate(node, TakenDevices(claims, freed, beside), settled)
        except (DemandError, OutOfStepsError):
            return None
        if had is None:
            return None
        return sorted({allocation.device for allocation in had} - self.shared(node))

    def shared(self, node: int) -> set[DeviceId]:
        """The node's devices that several claims can have."""
        devices = pools_of(self._snapshot, node).devices
        return {device.id for device in devices if device.device.allow_multiple_allocations}

    def _allocate(self, node: int, taken: TakenDevices, settled: Collection[str] = ()) -> list[Allocation] | None:
        """What the search gives the pod. Raises DemandError and OutOfStepsError."""
        seen, made = pools_of(self._snapshot, node), self._made[self._set_of[node]]
        wanted = []
        for need in self._needs.claims:
            if need.is_allocated and need.key not in taken.freed:
                continue
            if need.demand is None:
                raise DemandError(f"claim {need.key} could not be allocated again")
            if need.key not in settled:
                wanted.append(need.demand)
        if made:
            wanted.append(made)
        return allocate(seen.place, seen.pools, wanted, taken, self._steps)

    def rooms(self, nodes: Rows, gone: Rows) -> list[_DeviceRoom]:
        """The free devices on these nodes while pods come back."""
        return [_DeviceRoom(self, nodes, gone)]

    @cached_property
    def uses_claim(self) -> Mask:
        """Which pods, by row, use a claim: their removal may free devices."""
        mask: Mask = self.states.of_pod != 0
        pods = self._snapshot.pods
        untold = np.flatnonzero(self.searched & ~self.states.told)
        rows = pods.slots_of(untold)
        for row in rows[rows > 0].tolist():
            mask[row] = self._snapshot.device_claims.uses(pods.uids[row])
        return mask

    def _search(self, node: int, taken: TakenDevices) -> Found:
        if self._needs.stale:
            return DeviceOutcome.STALE
        try:
            had = self._allocate(node, taken)
        except OutOfStepsError:
            return DeviceOutcome.NOT_SEARCHED
        except DemandError as error:
            return error
        seen = pools_of(self._snapshot, node)
        if had is None:
            invalid = any(pool.invalid for pool in seen.pools)
            return DeviceOutcome.INVALID if invalid else DeviceOutcome.TAKEN
        for need in self._needs.claims:
            if need.key not in taken.freed and not need.is_available(seen.place):
                return DeviceOutcome.ELSEWHERE
        return DeviceOutcome.FITS

    def _claims_for(self, number: int) -> list[ClaimDemand]:
        """The claims to allocate where devices serve this set of extended resources."""
        demands = [need.demand for need in self._needs.claims]
        demands.append(self._made[number])
        return [demand for demand in demands if demand is not None]


class _DeviceRoom:
    """The free devices on some nodes.

    Where `DeviceFilter.states` tells, the taken devices are bits; elsewhere `_gone` has the
    pods that are gone. `_known` says where the claims can be had now.
    """

    def __init__(self, devices: DeviceFilter, nodes: Rows, gone: Rows) -> None:
        self._devices, self._nodes = devices, nodes
        searched = devices.searched[nodes]
        self._known = ~searched
        self._told = searched & devices.states.told[nodes]
        self._users = gone * devices.uses_claim[gone]
        all_users = np.concatenate(self._users)
        self._taken = devices.states.taken[nodes] & ~self._held_by(all_users)
        self._gone: dict[int, set[int]] = {}
        for place in np.flatnonzero(searched & ~self._told).tolist():
            self._gone[place] = set(all_users[:, place].tolist()) - {0}

    def fits_beside(self, step: int | None, fits: Mask) -> None:
        self._more = self._users[:0, 0] if step is None else self._users[:, step]
        asked = fits & (self._more.any(axis=0) | ~self._known)
        devices = self._devices
        told = np.flatnonzero(asked & self._told)
        if len(told):
            taken = self._taken[told] | self._held_by(self._more[:, told])
            outcomes = devices.outcomes(self._nodes[told], taken)
            fits[told] = [outcome is DeviceOutcome.FITS for outcome in outcomes]
        for place in np.flatnonzero(asked).tolist():
            if place not in self._gone:
                continue
            gone = self._gone[place].difference(self._more[:, place].tolist())
            outcome = devices.outcome(int(self._nodes[place]), gone)
            fits[place] = outcome is DeviceOutcome.FITS

    def put_back(self, stays: Mask) -> None:
        self._known |= stays
        self._taken[stays] |= self._held_by(self._more[:, stays])
        for place, gone in self._gone.items():
            if stays[place]:
                gone.difference_update(self._more[:, place].tolist())

    def _held_by(self, rows: Rows) -> Bits:
        held: Bits = np.bitwise_or.reduce(self._devices.states.of_pod[rows], axis=0)
        return held


def needs_devices(snapshot: Snapshot, incoming: PodInfo) -> bool:
    """Whether the pod asks for devices: claims, or a class's resource."""
    if incoming.pod.spec.resource_claims:
        return True
    served = snapshot.devices.class_of_resource
    return not served.keys().isdisjoint(incoming.amounts)


def without_devices(snapshot: Snapshot, incoming: PodInfo) -> PodInfo:
    """The pod as if it asked for no devices."""
    served = snapshot.devices.class_of_resource
    asked = incoming.amounts.items()
    amounts = {name: amount for name, amount in asked if name not in served}
    spec = replace(incoming.pod.spec, resource_claims=None)
    pod = replace(incoming.pod, spec=spec)
    return incoming._replace(pod=pod, amounts=amounts)


def nodes_served(snapshot: Snapshot, resource: str) -> Mask:
    """The nodes where devices serve an extended resource: none is allocatable there."""
    nodes = snapshot.nodes
    row = nodes.resources.get(resource)
    if row is None:
        return np.full(nodes.rows, True)
    served: Mask = nodes.allocatable[row, : nodes.rows] == 0
    return served
