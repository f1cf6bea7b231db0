"""What a device must satisfy beside others: what is left of its capacities, and attributes that are equal or different.

As Kubernetes' structured allocator has it (`consumable_capacity.go`); amounts are in nanos. Its distinct attributes are
remembered by request: of several devices of one request only the last one counts, and giving one back forgets them all
(docs/kubernetes-behaviour.md K46). So a device is had here exactly if kube-scheduler takes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.kube.objects.devices import Device, DeviceAttribute, DeviceCapacity, DeviceConstraint
from webhook.kube.objects.meta import Quantity
from webhook.kube.quantity import NANOS, QuantityError, nanos
from webhook.preemption.devices.device_selector import AttributeValue, value_of
from webhook.preemption.devices.pools import PublishedDevice
from webhook.preemption.devices.requests import Request

Amounts = Mapping[str, int]


def fits_capacity(device: Device, wanted: Amounts, taken: Amounts, allocating: Amounts) -> bool:
    """Whether the request fits beside what is consumed already and by this allocation so far.

    A request for a capacity that the device does not have never fits.
    """
    capacities = device.capacity or {}
    if any(name not in capacities for name in wanted):
        return False
    for name, capacity in capacities.items():
        try:
            amount = _amount(wanted.get(name), capacity)
            if _violates(amount, capacity):
                return False
            if taken.get(name, 0) + allocating.get(name, 0) + amount > nanos(capacity.value):
                return False
        except QuantityError:
            return False
    return True


def consumed(device: Device, wanted: Amounts) -> dict[str, int]:
    """What a share of the device takes of each of its capacities."""
    return {name: _amount(wanted.get(name), capacity) for name, capacity in (device.capacity or {}).items()}


def _amount(wanted: int | None, capacity: DeviceCapacity) -> int:
    """The amount, rounded up to what the policy allows; not asked for, its default or all."""
    policy = capacity.request_policy
    if wanted is None:
        return nanos(capacity.value if policy is None or policy.default is None else policy.default)
    if policy is None:
        return wanted
    if policy.valid_range is not None and policy.valid_range.min is not None:
        least = nanos(policy.valid_range.min)
        if wanted < least or policy.valid_range.step is None:
            return max(wanted, least)
        step, base = _units(policy.valid_range.step), -(-least // NANOS)
        steps = -(-(-(-wanted // NANOS) - base) // step)
        return (base + step * steps) * NANOS
    if policy.valid_values is not None:
        return next((value for quantity in policy.valid_values if wanted <= (value := nanos(quantity))), wanted)
    return wanted


def _violates(amount: int, capacity: DeviceCapacity) -> bool:
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and amount == nanos(policy.default)):
        return False
    if policy.valid_range is not None:
        valid = policy.valid_range
        if valid.max is not None and amount > nanos(valid.max):
            return True
        if valid.step is None:
            return False
        least = nanos(valid.min) if valid.min is not None else 0
        return bool((-(-amount // NANOS) - -(-least // NANOS)) % _units(valid.step))
    return bool(policy.valid_values) and all(amount != nanos(quantity) for quantity in policy.valid_values or ())


def _units(quantity: Quantity) -> int:
    """A step in whole units, at least one."""
    return max(1, -(-nanos(quantity) // NANOS))


class AttributeConstraint:
    """One constraint while a claim is being allocated, with no devices yet."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._attribute = compared_by(constraint)
        self._requests = frozenset(constraint.requests or ())
        self._distinct = constraint.match_attribute is None
        self._count = 0
        self._common: AttributeValue = ("", None)
        self._of_request: dict[str, AttributeValue] = {}

    def add(self, request: Request, device: PublishedDevice) -> bool:
        """Whether the device may join the others; it is then one of them."""
        if not self._applies(request):
            return True
        attribute = attribute_of(device.device, device.id.driver, self._attribute)
        if attribute is None:
            return False
        value = value_of(attribute)
        if self._count:
            if value[0] == "":
                return False
            if self._distinct and value in self._of_request.values():
                return False
            if not self._distinct and value != self._common:
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
        return not self._requests or not self._requests.isdisjoint((request.base_name, request.full_name))


def compared_by(constraint: DeviceConstraint) -> str:
    """The full name of the attribute that is to be equal, or different."""
    matched = constraint.match_attribute
    return (constraint.distinct_attribute or "") if matched is None else matched


def attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute of that full name; the driver's own may be published without their domain."""
    attributes = device.attributes or {}
    attribute = attributes.get(name)
    if attribute is not None:
        return attribute
    domain, slash, own = name.partition("/")
    return attributes.get(own) if slash and domain == driver else None
