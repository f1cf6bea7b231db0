"""Consumable capacity: how much of a device's capacities a request consumes, and whether it still fits.

Mirrors `consumable_capacity.go` of Kubernetes' structured allocator. Amounts are in nanos.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.kube.objects.devices import Device, DeviceCapacity
from webhook.kube.objects.meta import Quantity
from webhook.kube.quantity import NANOS, QuantityError, nanos

Amounts = Mapping[str, int]


def fits_capacity(device: Device, wanted: Amounts, taken: Amounts, allocating: Amounts) -> bool:
    """Whether the request fits beside what is consumed already and what this allocation consumes so far.

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
    """The amount rounded up to what the capacity's policy allows; without a request its default, else all of it."""
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
