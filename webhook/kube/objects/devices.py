"""Devices of `resource.k8s.io/v1`: slices, claims and classes, without what only a driver reads (`config`)."""

import msgspec

from webhook.kube.objects.meta import Condition, KubeObject, KubeStruct, Quantity
from webhook.kube.objects.placement import NodeSelector, Taint, Toleration
from webhook.kube.objects.pod import ResourceRequirements


class DeviceAttribute(KubeStruct):
    """One value; all are None for a type that is not known here, such as a list."""

    text: str | None = msgspec.field(name="string", default=None)
    number: int | None = msgspec.field(name="int", default=None)
    flag: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class CapacityRange(KubeStruct):
    """From where to where, and in which steps, capacity is consumed."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(KubeStruct):
    """How much of a capacity a request consumes."""

    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(KubeStruct):
    """How much a device has of something."""

    value: Quantity = "0"
    request_policy: CapacityPolicy | None = None


class CounterValue(KubeStruct):
    """How much there is of a counter, or how much of it a device consumes."""

    value: Quantity = "0"


class CounterSet(KubeStruct):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: dict[str, CounterValue] | None = None


class CounterConsumption(KubeStruct):
    """What a device consumes of a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, CounterValue] | None = None


class Device(KubeStruct):
    """One device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: list[Taint] | None = None
    binding_conditions: list[str] | None = None
    allow_multiple_allocations: bool = False


class ResourcePool(KubeStruct):
    """The pool that a slice belongs to; only the slices of its newest generation count."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(KubeStruct):
    """Devices of one driver and pool, and the nodes from which they can be reached."""

    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(KubeObject):
    """A part of a pool of devices."""

    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class CELSelector(KubeStruct):
    """An expression over `device`."""

    expression: str = ""


class DeviceSelector(KubeStruct):
    """Which devices are meant; `cel` is None for a kind of selector that is not known here."""

    cel: CELSelector | None = None


class DeviceClassSpec(KubeStruct):
    """The devices of a class, and the extended resource that they serve."""

    selectors: list[DeviceSelector] | None = None
    extended_resource_name: str | None = None


class DeviceClass(KubeObject):
    """A class of devices."""

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class ExactDeviceRequest(KubeStruct):
    """Devices of one class; `name` is that of an alternative in `firstAvailable`, else empty."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None
    capacity: ResourceRequirements | None = None


class DeviceRequest(KubeStruct):
    """What one request of a claim asks for: exactly this, or the first of these that can be had."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[ExactDeviceRequest] | None = None


class DeviceConstraint(KubeStruct):
    """What must hold between the devices of these requests; of all requests if none is named."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(KubeStruct):
    """The requests of a claim."""

    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None


class ResourceClaimSpec(KubeStruct):
    """What a claim asks for."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestResult(KubeStruct):
    """A device that was allocated for a request; with a `share_id` only a share of it."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    binding_conditions: list[str] | None = None


class DeviceAllocation(KubeStruct):
    """The devices that were allocated for a claim."""

    results: list[DeviceRequestResult] | None = None


class AllocationResult(KubeStruct):
    """What a claim got, and the nodes on which it can be used."""

    devices: DeviceAllocation = msgspec.field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None


class ClaimConsumer(KubeStruct):
    """Who may use a claim now: a pod if `resource` is `pods` and `api_group` is empty."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(KubeStruct):
    """What a driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] | None = None


class ResourceClaimStatus(KubeStruct):
    """What a claim got, and who uses it."""

    allocation: AllocationResult | None = None
    reserved_for: list[ClaimConsumer] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(KubeObject):
    """A claim on devices."""

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
