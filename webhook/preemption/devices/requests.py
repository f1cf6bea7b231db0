"""What claims ask for, compiled: which shapes of devices satisfy each request."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.devices import (
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
)
from webhook.kube.objects.meta import key_of
from webhook.kube.quantity import QuantityError, nanos
from webhook.kube.selectors import keep_off
from webhook.policy.cel.program import CelError, CelRuntimeError
from webhook.preemption.devices.device_selector import SelectorProgram, device_selector, facts_of
from webhook.preemption.snapshot.columns import Ints8, Mask
from webhook.preemption.snapshot.device_index import DeviceShape
from webhook.preemption.snapshot.snapshot import Snapshot

MATCHES, ERROR = 1, 2
"""What a request says of a shape; 0 is no."""
Selectors = tuple[tuple[str, SelectorProgram], ...]
"""Selectors, each with the words for where it stands."""


class ClaimRefusal(Exception):  # noqa: N818  # not an error of this program but Kubernetes' answer
    """No node will do, and why, in kube-scheduler's words."""


class DemandError(Exception):
    """The attempt ends with an error on any node, in kube-scheduler's words."""


class NotModelledError(Exception):
    """What is not known here: nothing is decided."""


class Request(NamedTuple):
    """A request, or one alternative of it. `selects` and `tolerated` are by the id of a shape.

    An alternative has the name of its request as `parent`. `number` is how many devices it
    wants, unless it wants all. `capacity` is in nanos.
    """

    claim: str
    name: str
    parent: str
    mode: str
    number: int
    admin: bool
    selects: Ints8
    tolerated: Mask
    capacity: dict[str, int]
    selectors: Selectors

    @property
    def base_name(self) -> str:
        """The request's name, of an alternative its parent's."""
        return self.parent or self.name

    @property
    def where(self) -> str:
        """Which request it is, for errors."""
        return f"claim {self.claim}, request {self.name}"

    @property
    def full_name(self) -> str:
        """`name`, or `parent/name`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def error(self, shape: DeviceShape) -> DemandError:
        """The error of the selectors on such a device."""
        for where, program in self.selectors:
            try:
                program.matches(facts_of(shape))
            except CelRuntimeError as error:
                return DemandError(f"{where}: CEL runtime error: {error}")
        return DemandError(f"claim {self.claim}: CEL runtime error")


class ClaimDemand(NamedTuple):
    """What a claim wants: an alternative of each request, and constraints on their devices."""

    key: str
    requests: tuple[tuple[Request, ...], ...]
    constraints: tuple[DeviceConstraint, ...]


def compile_claim(snapshot: Snapshot, claim: ResourceClaim) -> ClaimDemand:
    """Compile an unallocated claim. Raises ClaimRefusal, DemandError and NotModelledError."""
    devices, key = claim.spec.devices, key_of(claim)
    requests = []
    for request in devices.requests or ():
        alternatives = request.first_available or ()
        if request.exactly is not None:
            alternatives = [request.exactly]
        if not alternatives:
            place = f"resource claim {key}, request {request.name}"
            raise ClaimRefusal(f"{place}: unknown request type")
        compiled = (_compile(snapshot, key, request, exact) for exact in alternatives)
        requests.append(tuple(compiled))
    constraints = tuple(devices.constraints or ())
    for number, constraint in enumerate(constraints):
        attributes = (constraint.match_attribute, constraint.distinct_attribute)
        if attributes == (None, None):
            place = f"constraint #{number} of claim {key}"
            raise NotModelledError(f"{place} is of a kind that is not known here")
    return ClaimDemand(key, tuple(requests), constraints)


def _compile(snapshot: Snapshot, claim: str, request: DeviceRequest, exact: ExactDeviceRequest) -> Request:
    parent = "" if request.exactly is not None else request.name
    name = exact.name if parent else request.name
    place = f"{parent}/{name}" if parent else name
    if not exact.device_class_name:
        raise DemandError(f"request {place}: unsupported request type")
    device_class = snapshot.devices.classes.get(exact.device_class_name)
    if device_class is None:
        raise ClaimRefusal(f"request {place}: device class {exact.device_class_name} does not exist")
    mode, whole = exact.allocation_mode, f"request {place} of claim {claim}"
    if mode not in ("ExactCount", "All"):
        raise NotModelledError(f"{whole} has a mode not known here: {mode}")
    capacity = exact.capacity.requests if exact.capacity else None
    try:
        wanted = {resource: nanos(amount) for resource, amount in (capacity or {}).items()}
    except QuantityError as error:
        raise NotModelledError(f"{whole}: {error}") from error
    shapes = snapshot.devices.shapes
    selectors = _selectors(claim, place, device_class, exact.selectors)
    texts = tuple(program.text for _, program in selectors)
    tolerations = tuple((t.key, t.operator, t.value, t.effect) for t in exact.tolerations or ())
    selects = snapshot.table(("devices", texts), shapes, np.int8, partial(_judge, selectors))
    tolerated = snapshot.table(
        ("device taints", tolerations),
        shapes,
        np.bool_,
        lambda shape: not keep_off(shape.device.taints, exact.tolerations),
    )
    return Request(
        claim=claim,
        name=name,
        parent=parent,
        mode=mode,
        number=exact.count,
        admin=bool(exact.admin_access),
        selects=selects,
        tolerated=tolerated,
        capacity=wanted,
        selectors=selectors,
    )


def _selectors(claim: str, place: str, device_class: DeviceClass, own: list[DeviceSelector] | None) -> Selectors:
    """The compiled selectors of class and request."""
    compiled = []
    of_class = (f"class {device_class.metadata.name}", device_class.spec.selectors)
    for whose, selectors in (of_class, (f"claim {claim}", own)):
        for number, selector in enumerate(selectors or ()):
            where = f"{whose}: selector #{number}"
            asked = f"{where} (request {place})"
            if selector.cel is None:
                raise NotModelledError(f"{asked} is of a kind that is not known here")
            try:
                program = device_selector(selector.cel.expression)
            except CelError as error:
                raise NotModelledError(f"{asked} cannot be evaluated here: {error}") from error
            compiled.append((where, program))
    return tuple(compiled)


def _judge(selectors: Selectors, shape: DeviceShape) -> int:
    if not selectors:
        return MATCHES
    try:
        facts = facts_of(shape)
        return MATCHES if all(program.matches(facts) for _, program in selectors) else 0
    except CelRuntimeError:
        return ERROR
