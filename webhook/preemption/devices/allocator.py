"""Whether claims can be allocated together on one node: the depth-first search of Kubernetes' structured allocator.

One claim after the other, one request after the other, one device after the other is tried in a fixed order, and the
first complete allocation is taken. What kube-scheduler's search does not find is not found here either: evicting pods
for it would be in vain (docs/kubernetes-behaviour.md K45 to K48).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from webhook.preemption.devices.constraints import AttributeConstraint, consumed, fits_capacity
from webhook.preemption.devices.pools import NodePlace, Pool, PublishedDevice, consumption_of
from webhook.preemption.devices.requests import ERROR, ClaimDemand, DemandError, Request
from webhook.preemption.snapshot.claim_index import ClaimIndex
from webhook.preemption.snapshot.device_index import DeviceId, DeviceShape

K = TypeVar("K")
MOST_RESULTS = 32
"""Devices that one claim can hold (`AllocationResultsMaxSize`)."""
DEEPEST = 400
"""Devices and requests of one pod that are searched for at most, one inside the other."""


class TakenDevices:
    """The allocations of all claims but those that are `freed`, by their keys; and the devices `beside` these."""

    def __init__(
        self, claims: ClaimIndex | None, freed: frozenset[str] = frozenset(), beside: Collection[DeviceId] = ()
    ) -> None:
        self._holders, self._shares = ({}, {}) if claims is None else (claims.holders, claims.shares)
        self._freed = freed
        self._beside = beside

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim has the device for itself."""
        keys = self._holders.get(device)
        return (keys is not None and not keys <= self._freed) or device in self._beside

    def consumption(self, device: DeviceId) -> Mapping[str, int] | None:
        """What shares of the device consume of its capacities, in nanos; None if no share says."""
        total: dict[str, int] | None = None
        for key, shares in self._shares.get(device, {}).items():
            for share in shares if key not in self._freed else ():
                if share is not None:
                    total = total or {}
                    _add(total, share, 1)
        return total

    def in_use(self, device: DeviceId) -> bool:
        """Whether a claim has the device, or a share of it."""
        return self.holds(device) or any(key not in self._freed for key in self._shares.get(device, ()))


class OutOfStepsError(Exception):
    """The search took more steps than it is given."""


class Steps:
    """How many devices may still be tried: by one search, and in all."""

    def __init__(self, of_search: int, in_all: int) -> None:
        self._of_search, self._here, self._left = of_search, of_search, in_all

    def begin(self) -> None:
        """Another search begins."""
        self._here = self._of_search

    def take(self) -> None:
        """Count one. Raises OutOfStepsError."""
        if not (self._here and self._left):
            raise OutOfStepsError
        self._here -= 1
        self._left -= 1


class Allocation(NamedTuple):
    """A device that a request of a claim would get."""

    claim: str
    request: str
    device: DeviceId


class _TooManyError(Exception):
    """The claim would hold more devices than it can."""


_Place = tuple[int, int, int]
"""A claim, a request of it, and an alternative of that."""
_Undo = Callable[[], None]


def allocate(
    place: NodePlace, pools: Sequence[Pool], claims: Sequence[ClaimDemand], allocated: TakenDevices, steps: Steps
) -> list[Allocation] | None:
    """The claims' devices, None if not to be had together. Raises DemandError and OutOfStepsError.

    The pools, in the order in which devices are tried, are those that can be reached from the node at this place.
    """
    steps.begin()
    return _Search(place, pools, claims, allocated, steps).run()


class _Search:
    """One search; `_devices` are those of usable pools in their order."""

    def __init__(
        self,
        node: NodePlace,
        pools: Sequence[Pool],
        claims: Sequence[ClaimDemand],
        allocated: TakenDevices,
        steps: Steps,
    ) -> None:
        self._node, self._pools = node, pools
        self._claims, self._allocated, self._steps = claims, allocated, steps
        self._devices = [device for pool in self._pools for device in pool.devices]
        self._pool_of = {device.id: pool for pool in self._pools for device in pool.devices}
        self._all: dict[_Place, list[PublishedDevice]] = {}
        self._constraints: list[list[AttributeConstraint]] = []
        self._taken: dict[DeviceId, set[int]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        # As there, by the pool's name: of pools of that name the one that is asked first tells what there is (K45)
        self._counters: dict[str, dict[tuple[str, str], int]] = {}
        self._available: dict[str, dict[tuple[str, str], int]] = {}
        self._results: list[list[Allocation]] = [[] for _ in claims]

    def run(self) -> list[Allocation] | None:
        for number, claim in enumerate(self._claims):
            least = 0
            for place, alternatives in enumerate(claim.requests):
                counts = [self._count((number, place, sub), request) for sub, request in enumerate(alternatives)]
                least += min(counts)
            if least > MOST_RESULTS:
                raise DemandError(
                    f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
                )
            self._constraints.append([AttributeConstraint(constraint) for constraint in claim.constraints])
        if self._is_short():
            return None
        try:
            done = not self._claims or self._request(0, 0, 0)
        except _TooManyError:
            done = False
        return [allocation for results in self._results for allocation in results] if done else None

    def _is_short(self) -> bool:
        """Whether a request wants more devices than match and are free: no set has to be tried.

        Who asks for all devices, or with an expression that fails on one of them, may end in an error: not known here.
        """
        shapes = np.array([device.shape for device in self._devices], np.intp)
        requests = [alternatives for claim in self._claims for alternatives in claim.requests]
        for request in (request for alternatives in requests for request in alternatives):
            if request.mode == "All" or (request.selects[shapes] == ERROR).any():
                return False
        free = np.array([not self._allocated.holds(device.id) for device in self._devices], np.bool_)
        return any(
            np.count_nonzero(free & (request.selects[shapes] != 0) & request.tolerated[shapes]) < request.number
            for request, *others in requests
            if not others and not request.admin
        )

    def _count(self, place: _Place, request: Request) -> int:
        """How many devices the request wants; all of those that match, once they are known."""
        if request.mode != "All":
            return request.number
        matching = self._all[place] = []
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                raise DemandError(
                    f"claim {request.claim}, request {request.name}: asks for all devices, but resource pool"
                    f" {pool.name} is currently {state}"
                )
            matching += [device for device in pool.devices if self._is_meant(request, device)]
        return len(matching)

    def _request(self, claim: int, number: int, depth: int) -> bool:
        """Allocate this request of the claim and all that comes after it, other claims included."""
        if depth > DEEPEST:
            raise OutOfStepsError
        requests = self._claims[claim].requests
        if number >= len(requests):
            try:
                return claim + 1 >= len(self._claims) or self._request(claim + 1, 0, depth + 1)
            except _TooManyError:
                return False
        alternatives = requests[number]
        if not alternatives[0].parent:
            return self._next((claim, number, 0), 0, 0, depth)
        too_many = True
        for sub in range(len(alternatives)):
            try:
                if self._next((claim, number, sub), 0, 0, depth):
                    return True
            except _TooManyError:
                continue
            too_many = False
        if too_many:
            raise _TooManyError
        return False

    def _next(self, place: _Place, had: int, start: int, depth: int) -> bool:
        """Allocate what the request lacks beside `had` devices; those before `start` were tried."""
        if depth > DEEPEST:
            raise OutOfStepsError
        claim, number, sub = place
        request = self._claims[claim].requests[number][sub]
        wants = self._all.get(place)
        if wants is not None and not wants:
            return False  # at least one device is needed
        count = request.number if wants is None else len(wants)
        if had >= count:
            return self._request(claim, number + 1, depth + 1)
        if len(self._results[claim]) + count - had > MOST_RESULTS:
            raise _TooManyError
        tried = self._devices[start:] if wants is None else wants[had : had + 1]
        for at, device in enumerate(tried, start + 1):
            self._steps.take()
            if wants is None and (self._is_taken(request, device.id, claim) or not self._is_meant(request, device)):
                continue
            undo = self._take(place, request, device, must=wants is not None)
            done = False
            try:
                done = undo is not None and self._next(place, had + 1, at, depth + 1)
            finally:
                if undo is not None and not done:
                    undo()
            if done:
                return True
        return False

    def _is_taken(self, request: Request, device: DeviceId, claim: int) -> bool:
        if request.admin:
            return claim in self._taken.get(device, ())
        return self._allocated.holds(device) or bool(self._taken.get(device))

    def _is_meant(self, request: Request, device: PublishedDevice) -> bool:
        """Whether the request may have the device, and its capacity is enough. Raises DemandError."""
        answer = int(request.selects[device.shape])
        if answer == ERROR:
            raise request.error(DeviceShape(device.id.driver, device.device))
        return bool(answer) and device.reachable(self._node) and self._fits(request, device)

    def _fits(self, request: Request, device: PublishedDevice) -> bool:
        if not (device.device.capacity or request.capacity):
            return True
        taken = self._allocated.consumption(device.id) or {}
        return fits_capacity(device.device, request.capacity, taken, self._consumed.get(device.id, {}))

    def _take(self, place: _Place, request: Request, device: PublishedDevice, *, must: bool) -> _Undo | None:
        """Take the device for the request; returns how to give it back, None if it is not had."""
        claim, id_ = place[0], device.id
        several = device.device.allow_multiple_allocations
        if not (several and request.admin) and self._is_taken(request, id_, claim):
            return None
        counted = bool(device.device.consumes_counters)
        shared = several and (self._allocated.consumption(id_) is not None or id_ in self._consumed)
        if counted and not shared and not self._take_counters(device):
            return None
        # As there, what was counted stays counted if the device is refused from here on
        if not request.tolerated[device.shape]:
            return None
        if not self._satisfies_constraints(request, device, claim, must=must):
            return None
        if not several:
            self._taken.setdefault(id_, set()).add(claim)
        if not self._fits(request, device):
            return None
        amounts = consumed(device.device, request.capacity) if several else {}
        if several:
            _add(self._consumed.setdefault(id_, {}), amounts, 1)
        self._results[claim].append(Allocation(request.claim, request.full_name, id_))

        def undo() -> None:
            for constraint in self._constraints[claim]:
                constraint.remove(request)
            self._taken.get(id_, set()).discard(claim)
            if amounts:
                _add(self._consumed.setdefault(id_, {}), amounts, -1)
                if not any(self._consumed[id_].values()):
                    del self._consumed[id_]
            if not several and counted:
                _add(self._counters[id_.pool], consumption_of(device.device), -1)
            self._results[claim].pop()

        return undo

    def _satisfies_constraints(self, request: Request, device: PublishedDevice, claim: int, *, must: bool) -> bool:
        """Add the device to all constraints of the claim, or none: DemandError if it `must` be."""
        constraints = self._constraints[claim]
        for number, constraint in enumerate(constraints):
            if constraint.add(request, device):
                continue
            if must:
                raise DemandError(
                    f"claim {request.claim}, request {request.name}: cannot add device {device.id} because a claim"
                    " constraint would not be satisfied"
                )
            for added in constraints[:number]:
                added.remove(request)
            return False
        return True

    def _take_counters(self, device: PublishedDevice) -> bool:
        """Consume the device's counters if there is enough of each."""
        name, pool = device.id.pool, self._pool_of[device.id]
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = self._left(pool)
        consumption, own = self._counters.setdefault(name, {}), consumption_of(device.device)
        _add(consumption, own, 1)
        if all(amount >= consumption.get(counter, 0) for counter, amount in available.items()):
            return True
        _add(consumption, own, -1)
        return False

    def _left(self, pool: Pool) -> dict[tuple[str, str], int]:
        """What the devices in use leave of the pool's counters; it may be negative."""
        left = {
            (name, counter): amount for name, counters in pool.counters.items() for counter, amount in counters.items()
        }
        for device in (*pool.devices, *pool.others):
            if device.device.consumes_counters and self._allocated.in_use(device.id):
                _add(left, consumption_of(device.device), -1)
        return left


def _add(total: dict[K, int], amounts: Mapping[K, int], sign: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
