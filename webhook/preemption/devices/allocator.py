"""Whether claims can be allocated together on a node: as Kubernetes' structured allocator.

The search goes depth first: claims, requests and devices are tried in a fixed order, and the
first complete allocation is taken. What kube-scheduler's search misses is missed here, too:
pods would go for it in vain (docs/kubernetes-behaviour.md K45 to K48).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from webhook.preemption.devices.constraints import AttributeConstraint, consumed, fits_capacity
from webhook.preemption.devices.pools import CounterName, NodePlace, Pool, PublishedDevice
from webhook.preemption.devices.requests import ERROR, ClaimDemand, DemandError, Request
from webhook.preemption.snapshot.claim_index import ClaimIndex
from webhook.preemption.snapshot.device_index import DeviceId, DeviceShape

MOST_RESULTS = 32
"""Devices that one claim can hold (`AllocationResultsMaxSize`)."""
DEEPEST = 400
"""How deep a search goes, in devices and requests of a pod."""


class TakenDevices:
    """The devices of all claims but the `freed` ones (keys), and those `beside`."""

    def __init__(
        self, claims: ClaimIndex | None, freed: frozenset[str] = frozenset(), beside: Collection[DeviceId] = ()
    ) -> None:
        self._holders = claims.holders if claims else {}
        self._shares = claims.shares if claims else {}
        self.freed, self._beside = freed, beside

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim has the device for itself."""
        keys = self._holders.get(device)
        return (keys is not None and not keys <= self.freed) or device in self._beside

    def consumption(self, device: DeviceId) -> Counter[str] | None:
        """What shares consume of the device's capacities, in nanos; None if no share says."""
        total: Counter[str] | None = None
        for key, shares in self._shares.get(device, {}).items():
            for share in shares if key not in self.freed else ():
                if share is not None:
                    total = total or Counter()
                    total.update(share)
        return total

    def in_use(self, device: DeviceId) -> bool:
        """Whether a claim has the device, or a share of it."""
        shares = self._shares.get(device, {})
        return self.holds(device) or not shares.keys() <= self.freed


class OutOfStepsError(Exception):
    """The search is out of steps."""


class Steps:
    """How many devices may still be tried, by one search and in all."""

    def __init__(self, of_search: int, in_all: int) -> None:
        self._of_search, self._left = of_search, in_all

    def begin(self) -> None:
        """Begin another search."""
        self._end = max(0, self._left - self._of_search)

    def take(self) -> None:
        """Count one. Raises OutOfStepsError."""
        if self._left == self._end:
            raise OutOfStepsError
        self._left -= 1


class Allocation(NamedTuple):
    """A device that a request of a claim would get."""

    claim: str
    request: str
    device: DeviceId


class _TooManyError(Exception):
    """The claim would hold too many devices."""


_Place = tuple[int, int, int]
"""The numbers of a claim, of its request, and of an alternative."""
_Undo = Callable[[], None]


def allocate(
    place: NodePlace, pools: Sequence[Pool], claims: Sequence[ClaimDemand], allocated: TakenDevices, steps: Steps
) -> list[Allocation] | None:
    """The claims' devices, None if they cannot be had together.

    The node reaches the pools, in the order of the search. Raises DemandError
    and OutOfStepsError.
    """
    if not claims:
        return []
    steps.begin()
    return _Search(place, pools, claims, allocated, steps).run()


@dataclass(eq=False)
class _Search:
    """One search; `devices` are those of usable pools in their order."""

    node: NodePlace
    pools: Sequence[Pool]
    claims: Sequence[ClaimDemand]
    allocated: TakenDevices
    steps: Steps

    def __post_init__(self) -> None:
        self.devices = [device for pool in self.pools for device in pool.devices]
        self.all: dict[_Place, list[PublishedDevice]] = {}
        self.constraints: list[list[AttributeConstraint]] = []
        self.taken: dict[DeviceId, set[int]] = defaultdict(set)
        self.consumed: dict[DeviceId, Counter[str]] = defaultdict(Counter)
        # By the pool's name: of equal names the first pool asked counts (K45)
        self.counters: dict[str, Counter[CounterName]] = defaultdict(Counter)
        self.available: dict[str, Counter[CounterName]] = {}
        self.results: list[list[Allocation]] = [[] for _ in self.claims]

    def run(self) -> list[Allocation] | None:
        for number, claim in enumerate(self.claims):
            least = 0
            for place, alternatives in enumerate(claim.requests):
                tried = enumerate(alternatives)
                least += min(self._count((number, place, sub), request) for sub, request in tried)
            if least > MOST_RESULTS:
                excess = f"{least} exceeds the claim limit of {MOST_RESULTS}"
                raise DemandError(f"claim {claim.key}: number of requested devices {excess}")
            self.constraints.append([*map(AttributeConstraint, claim.constraints)])
        if self._is_short():
            return None
        try:
            done = self._request(0, 0, 0)
        except _TooManyError:
            done = False
        return [*chain(*self.results)] if done else None

    def _is_short(self) -> bool:
        """Whether a request wants more devices than match and are free.

        Not told if one wants all, or an expression fails: these may end in an error.
        """
        shapes = np.array([device.shape for device in self.devices], np.intp)
        requests = [*chain(*(claim.requests for claim in self.claims))]
        for request in chain(*requests):
            if request.mode == "All" or (request.selects[shapes] == ERROR).any():
                return False
        held = [self.allocated.holds(device.id) for device in self.devices]
        free = ~np.array(held, np.bool_)
        for request, *others in requests:
            if others or request.admin:
                continue
            matching = free & (request.selects[shapes] != 0) & request.tolerated[shapes]
            if np.count_nonzero(matching) < request.number:
                return True
        return False

    def _count(self, place: _Place, request: Request) -> int:
        """How many devices the request wants: for all, those that match."""
        if request.mode != "All":
            return request.number
        matching = self.all[place] = []
        for pool in self.pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                trouble = f"resource pool {pool.name} is currently {state}"
                raise DemandError(f"{request.where}: asks for all devices, but {trouble}")
            matching += [device for device in pool.devices if self._is_meant(request, device)]
        return len(matching)

    def _request(self, claim: int, number: int, depth: int) -> bool:
        """Allocate this request of the claim, and all after it."""
        if depth > DEEPEST:
            raise OutOfStepsError
        requests = self.claims[claim].requests
        if number >= len(requests):
            try:
                return claim + 1 >= len(self.claims) or self._request(claim + 1, 0, depth + 1)
            except _TooManyError:
                return False
        too_many = True
        for sub in range(len(requests[number])):
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
        """Allocate what the request lacks beside `had` devices, from `start` on."""
        if depth > DEEPEST:
            raise OutOfStepsError
        claim, number, sub = place
        request = self.claims[claim].requests[number][sub]
        wants = self.all.get(place)
        if wants == []:
            return False  # at least one device is needed
        count = request.number if wants is None else len(wants)
        if had >= count:
            return self._request(claim, number + 1, depth + 1)
        if len(self.results[claim]) + count - had > MOST_RESULTS:
            raise _TooManyError
        tried = self.devices[start:] if wants is None else wants[had : had + 1]
        for at, device in enumerate(tried, start + 1):
            self.steps.take()
            if wants is None:
                taken = self._is_taken(request, device.id, claim)
                if taken or not self._is_meant(request, device):
                    continue
            undo = self._take(claim, request, device, must=wants is not None)
            if undo is None:
                continue
            done = False
            try:
                done = self._next(place, had + 1, at, depth + 1)
            finally:
                if not done:
                    undo()
            if done:
                return True
        return False

    def _is_taken(self, request: Request, device: DeviceId, claim: int) -> bool:
        if request.admin:
            return claim in self.taken.get(device, ())
        return self.allocated.holds(device) or bool(self.taken.get(device))

    def _is_meant(self, request: Request, device: PublishedDevice) -> bool:
        """Whether the request may have the device and fits. Raises DemandError."""
        answer = int(request.selects[device.shape])
        if answer == ERROR:
            raise request.error(DeviceShape(device.id.driver, device.device))
        reachable = answer and device.reachable(self.node)
        return bool(reachable) and self._fits(request, device)

    def _fits(self, request: Request, device: PublishedDevice) -> bool:
        if not (device.device.capacity or request.capacity):
            return True
        taken = self.allocated.consumption(device.id)
        own = self.consumed.get(device.id)
        return fits_capacity(device.device, request.capacity, taken or {}, own or {})

    def _take(self, claim: int, request: Request, device: PublishedDevice, *, must: bool) -> _Undo | None:
        """Take the device, and tell how to give it back; None if not had."""
        id_ = device.id
        several = device.device.allow_multiple_allocations
        if not (several and request.admin) and self._is_taken(request, id_, claim):
            return None
        counted = bool(device.device.consumes_counters)
        shared = several and (self.allocated.consumption(id_) is not None or id_ in self.consumed)
        if counted and not shared and not self._take_counters(device):
            return None
        # As there: refused from here on, the device keeps what was counted for it
        tolerated = request.tolerated[device.shape]
        if not (tolerated and self._satisfies(request, device, claim, must=must)):
            return None
        if not several:
            self.taken[id_].add(claim)
        if not self._fits(request, device):
            return None
        amounts = consumed(device.device, request.capacity) if several else {}
        if several:
            self.consumed[id_].update(amounts)
        self.results[claim].append(Allocation(request.claim, request.full_name, id_))

        def undo() -> None:
            for constraint in self.constraints[claim]:
                constraint.remove(request)
            self.taken[id_].discard(claim)
            if amounts:
                self.consumed[id_].subtract(amounts)
                if not any(self.consumed[id_].values()):
                    del self.consumed[id_]
            if not several and counted:
                self.counters[id_.pool].subtract(device.consumption)
            self.results[claim].pop()

        return undo

    def _satisfies(self, request: Request, device: PublishedDevice, claim: int, *, must: bool) -> bool:
        """Add the device to all constraints, or to none: DemandError if it `must` be."""
        constraints = self.constraints[claim]
        for number, constraint in enumerate(constraints):
            if constraint.add(request, device):
                continue
            if must:
                reason = "because a claim constraint would not be satisfied"
                raise DemandError(f"{request.where}: cannot add device {device.id} {reason}")
            for added in constraints[:number]:
                added.remove(request)
            return False
        return True

    def _take_counters(self, device: PublishedDevice) -> bool:
        """Consume the device's counters if there is enough of each."""
        name, own = device.id.pool, device.consumption
        if name not in self.available:
            pool = next(pool for pool in self.pools if pool.id == device.id[:2])
            self.available[name] = self._left(pool)
        consumption = self.counters[name]
        consumption.update(own)
        available = self.available[name].items()
        if all(amount >= consumption[counter] for counter, amount in available):
            return True
        consumption.subtract(own)
        return False

    def _left(self, pool: Pool) -> Counter[CounterName]:
        """What devices in use leave of the pool's counters, maybe below 0."""
        left = Counter(pool.counters)
        for device in (*pool.devices, *pool.others):
            if device.device.consumes_counters and self.allocated.in_use(device.id):
                left.subtract(device.consumption)
        return left
