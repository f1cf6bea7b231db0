"""What a pod needs of devices: its claims, and the claim for its extended resources.

As PreFilter and Filter of kube-scheduler's `dynamicresources` plugin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from webhook.kube.objects.devices import DeviceRequest, ExactDeviceRequest, ResourceClaim
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.kube.quantity import units
from webhook.kube.selectors import node_matcher
from webhook.preemption.devices.pools import NodePlace
from webhook.preemption.devices.requests import ClaimDemand, ClaimRefusal, DemandError, NotModelledError, compile_claim
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.snapshot import Snapshot

MOST_CONSUMERS = 256
EXTENDED_CLAIM = "<extended-resources>"
"""The name of a claim to be made."""


class ClaimNeed(NamedTuple):
    """A claim of the pod. An allocated one has a `demand` only if it can be freed."""

    claim: ResourceClaim
    key: str
    demand: ClaimDemand | None

    @property
    def is_allocated(self) -> bool:
        """Whether it has its devices."""
        return self.claim.status.allocation is not None

    def is_available(self, node: NodePlace) -> bool:
        """Whether the node can use its devices."""
        allocation = self.claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            return True
        return node_matcher(allocation.node_selector)(node.name, node.labels)


class PodNeeds(NamedTuple):
    """The pod's claims in order, and extended resources that classes serve, sorted.

    It is `stale` if a failed attempt left the claim for its extended resources.
    """

    claims: tuple[ClaimNeed, ...]
    extended: list[str]
    stale: bool


def needs_of(snapshot: Snapshot, incoming: PodInfo) -> PodNeeds | None:
    """What the pod needs, if any. Raises ClaimRefusal, DemandError and NotModelledError."""
    pod, uid = incoming.pod, incoming.pod.metadata.uid
    served = snapshot.devices.classes and snapshot.devices.class_of_resource
    extended = sorted(incoming.amounts.keys() & served.keys())
    if not (pod.spec.resource_claims or extended):
        return None
    needs = []
    for claim in _claims(snapshot, pod):
        if claim.status.allocation is None:
            demand: ClaimDemand | None = compile_claim(snapshot, claim)
        else:
            consumers = [consumer.uid for consumer in claim.status.reserved_for or ()]
            if len(consumers) >= MOST_CONSUMERS and uid not in consumers:
                raise ClaimRefusal("resourceclaim in use")
            _check_binding(claim)
            demand = _again(snapshot, claim)
        needs.append(ClaimNeed(claim, key_of(claim), demand))
    stale = bool(extended) and uid in snapshot.device_claims.extended
    return PodNeeds(tuple(needs), extended, stale)


def extended_claim(snapshot: Snapshot, pod: Pod, resources: Collection[str]) -> ClaimDemand:
    """The claim for these extended resources of the pod (`createRequestsAndMappings`)."""
    classes = snapshot.devices.class_of_resource
    requests = []
    for resource in resources:
        class_name = classes[resource].metadata.name
        requests += _requests_for(pod, resource, class_name)
    meta = ObjectMeta(namespace=pod.metadata.namespace, name=EXTENDED_CLAIM)
    claim = ResourceClaim(metadata=meta)
    claim.spec.devices.requests = sorted(requests, key=lambda request: request.name)
    return compile_claim(snapshot, claim)


def _again(snapshot: Snapshot, claim: ResourceClaim) -> ClaimDemand | None:
    """What an allocated claim wants once freed; None if unused or refused."""
    try:
        return compile_claim(snapshot, claim) if claim.status.reserved_for else None
    except (ClaimRefusal, DemandError, NotModelledError):
        return None


def _claims(snapshot: Snapshot, pod: Pod) -> list[ResourceClaim]:
    """The claims that the pod names and those made for it, in its order.

    Raises ClaimRefusal for a missing one, NotModelledError for one given in an unknown way.
    """
    meta, statuses = pod.metadata, pod.status.resource_claim_statuses or ()
    made = {str(status.get("name")): status.get("resourceClaimName") for status in statuses}
    claims = []
    for entry in pod.spec.resource_claims or ():
        own = str(entry.get("name"))
        name = entry.get("resourceClaimName")
        template = name is None
        if template:
            if entry.get("resourceClaimTemplateName") is None:
                unknown = f"its claim {own} is given in a way that is not known here"
                raise NotModelledError(unknown)
            if own not in made:
                raise ClaimRefusal(f'pod "{key_of(pod)}": ResourceClaim not created yet')
            name = made[own]
            if name is None:
                continue  # intentionally none
        claim = snapshot.device_claims.claims.get(f"{meta.namespace}/{name}")
        if claim is None:
            raise ClaimRefusal(f'could not find ResourceClaim "{meta.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimRefusal(f'resourceclaim "{name}" is being deleted')
        owner = controller_of(claim.metadata)
        if template and (owner is None or owner.uid != meta.uid):
            whose = f"{key_of(claim)} was not created for Pod {key_of(pod)}"
            raise ClaimRefusal(f"ResourceClaim {whose} (Pod is not owner)")
        claims.append(claim)
    return claims


def _check_binding(claim: ResourceClaim) -> None:
    """Raise NotModelledError for devices not ready: nobody knows for how long."""
    allocation = claim.status.allocation
    for result in (allocation.devices.results if allocation else None) or ():
        if not result.binding_conditions:
            continue
        own, true = (result.driver, result.pool, result.device), set[str]()
        for status in claim.status.devices or ():
            if (status.driver, status.pool, status.device) != own:
                continue
            conditions = status.conditions or ()
            true.update(some.type for some in conditions if some.status == "True")
        if not set(result.binding_conditions) <= true:
            what = f"the binding conditions of {'/'.join(own)}"
            raise NotModelledError(f"its claim {key_of(claim)} waits for {what}")


def _requests_for(pod: Pod, resource: str, class_name: str) -> list[DeviceRequest]:
    """What lasting containers ask of a resource, and the largest rest of others."""
    init = pod.spec.init_containers or []
    containers = [*init, *(pod.spec.containers or ())]
    needs = [some.resources for some in containers]
    asked = [(some.requests if some else None) or {} for some in needs]
    counts = [units(amounts.get(resource, 0)) for amounts in asked]
    passing, lasting = list[tuple[int, int]](), dict[int, int]()
    for number, container in enumerate(containers):
        if number >= len(init) or container.restart_policy == "Always":
            lasting[number] = counts[number]
    for number in range(len(init)):
        if number not in lasting:  # it can use what the later ones have
            later = sum(count for at, count in lasting.items() if at >= number)
            passing.append((counts[number] - later, -number))
    count, largest = max(passing, default=(0, 0))
    return [
        DeviceRequest(
            name=f"container-{number}-request-{sorted(asked[number]).index(resource)}",
            exactly=ExactDeviceRequest(device_class_name=class_name, count=count),
        )
        for number, count in ((-largest, count), *lasting.items())
        if count > 0
    ]
