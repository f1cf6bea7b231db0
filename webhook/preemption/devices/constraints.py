"""What must hold between the devices of a claim: an attribute that is the same, or different, on all of them.

As Kubernetes' structured allocator has it. Its distinct attributes are remembered by request: of several devices of
one request only the last one counts, and giving one back forgets them all (docs/kubernetes-behaviour.md K46). So a
device is had here exactly if kube-scheduler takes it.
"""

from __future__ import annotations

from collections.abc import Collection

from webhook.kube.objects.devices import Device, DeviceAttribute, DeviceConstraint
from webhook.preemption.devices.pools import PublishedDevice
from webhook.preemption.devices.requests import Request

_Value = tuple[str, object]


class AttributeConstraint:
    """One constraint while a claim is being allocated."""

    def __init__(self, attribute: str, requests: Collection[str], *, distinct: bool) -> None:
        self._attribute = attribute
        self._requests = frozenset(requests)
        self._distinct = distinct
        self._count = 0
        self._common: _Value = ("", None)
        self._of_request: dict[str, _Value] = {}

    def add(self, request: Request, device: PublishedDevice) -> bool:
        """Whether the device may join the others; it is then one of them."""
        if not self._applies(request):
            return True
        attribute = attribute_of(device.device, device.id.driver, self._attribute)
        if attribute is None:
            return False
        value = _value(attribute)
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
        names = self._requests
        return (
            not names
            or request.base_name in names
            or bool(request.parent and f"{request.parent}/{request.name}" in names)
        )


def constraint_of(constraint: DeviceConstraint) -> AttributeConstraint:
    """The constraint, with no devices yet."""
    match = constraint.match_attribute
    return AttributeConstraint(
        match if match is not None else constraint.distinct_attribute or "",
        constraint.requests or (),
        distinct=match is None,
    )


def attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """The attribute of that full name; the driver's own may be published without their domain."""
    attributes = device.attributes or {}
    attribute = attributes.get(name)
    if attribute is not None:
        return attribute
    domain, slash, own = name.partition("/")
    return attributes.get(own) if slash and domain == driver else None


def _value(attribute: DeviceAttribute) -> _Value:
    """The value with its type; an empty type for one that is not known."""
    if attribute.text is not None:
        return "string", attribute.text
    if attribute.number is not None:
        return "int", attribute.number
    if attribute.flag is not None:
        return "bool", attribute.flag
    return ("version", attribute.version) if attribute.version is not None else ("", None)
