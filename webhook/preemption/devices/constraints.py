"""What a device must satisfy beside others: capacities, and equal or different attributes.

As in Kubernetes' structured allocator (`consumable_capacity.go`), which remembers distinct
attributes by request: of several devices of one request only the last counts, and giving one
back forgets them all (docs/kubernetes-behaviour.md K46). Amounts are in nanos.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.kube.objects.devices import Device, DeviceAttribute, DeviceCapacity, DeviceConstraint
from webhook.kube.quantity import NANOS, QuantityError, nanos, units
from webhook.preemption.devices.device_selector import AttributeValue, value_of
from webhook.preemption.devices.pools import PublishedDevice
from webhook.preemption.devices.requests import Request

Amounts = Mapping[str, int]


def fits_capacity(device: Device, wanted: Amounts, taken: Amounts, allocating: Amounts) -> bool:
    """Whether the request fits beside what is `taken`, also by this allocation so far.

    A request for a capacity that the device lacks never fits.
    """
    capacities = device.capacity or {}
    if any(name not in capacities for name in wanted):
        return False
    for name, capacity in capacities.items():
        try:
            amount = _amount(wanted.get(name), capacity)
            used = taken.get(name, 0) + allocating.get(name, 0)
            if _violates(amount, capacity) or used + amount > nanos(capacity.value):
                return False
        except QuantityError:
            return False
    return True


def consumed(device: Device, wanted: Amounts) -> dict[str, int]:
    """What a share of the device takes of each of its capacities."""
    capacities = (device.capacity or {}).items()
    return {name: _amount(wanted.get(name), capacity) for name, capacity in capacities}


def _amount(wanted: int | None, capacity: DeviceCapacity) -> int:
    """The amount, rounded up to what the policy allows; without one, the default or all."""
    policy = capacity.request_policy
    if policy is None:
        return nanos(capacity.value) if wanted is None else wanted
    if wanted is None:
        return nanos(capacity.value if policy.default is None else policy.default)
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        least = nanos(valid.min)
        if wanted < least or valid.step is None:
            return max(wanted, least)
        step, base = max(1, units(valid.step)), units(valid.min)
        steps = -((base - _whole(wanted)) // step)
        return (base + step * steps) * NANOS
    allowed = map(nanos, policy.valid_values or ())
    return next((value for value in allowed if wanted <= value), wanted)


def _violates(amount: int, capacity: DeviceCapacity) -> bool:
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and amount == nanos(policy.default)):
        return False
    valid = policy.valid_range
    if valid is None:
        values = policy.valid_values
        return bool(values) and amount not in map(nanos, values or ())
    if valid.max is not None and amount > nanos(valid.max):
        return True
    if valid.step is None:
        return False
    least = units(valid.min) if valid.min is not None else 0
    return (_whole(amount) - least) % max(1, units(valid.step)) != 0


def _whole(amount: int) -> int:
    """Nanos in whole units, rounded up."""
    return -(-amount // NANOS)


class AttributeConstraint:
    """One constraint while a claim is allocated."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._attribute = compared_by(constraint)
        self._requests = frozenset(constraint.requests or ())
        self._distinct = constraint.match_attribute is None
        self._count = 0
        self._common: AttributeValue = ("", None)
        self._of_request: dict[str, AttributeValue] = {}

    def add(self, request: Request, device: PublishedDevice) -> bool:
        """Whether the device may join the others, and did."""
        if not self._applies(request):
            return True
        attribute = attribute_of(device.device, device.id.driver, self._attribute)
        if attribute is None:
            return False
        value = value_of(attribute)
        if self._count:
            same = value == self._common
            if self._distinct:
                same = value in self._of_request.values()
            if not value[0] or same is self._distinct:
                return False
        else:
            self._common = value
        self._of_request[request.base_name] = value
        self._count += 1
        return True

    def remove(self, request: Request) -> None:
        """Take a device of the request out again."""
        if self._applies(request):
            self._of_request.pop(request.base_name, None)
            self._count -= 1

    def _applies(self, request: Request) -> bool:
        names = (request.base_name, request.full_name)
        return not self._requests or not self._requests.isdisjoint(names)


def compared_by(constraint: DeviceConstraint) -> str:
    """The full name of the attribute to be equal or different."""
    return constraint.match_attribute or constraint.distinct_attribute or ""


def attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute of this full name; the driver's own may lack their domain."""
    attributes = device.attributes or {}
    own = name.removeprefix(f"{driver}/")
    return attributes.get(name) or attributes.get(own)
