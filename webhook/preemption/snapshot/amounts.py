"""What a pod asks for and a node offers, as integers: cpu in millicores, everything else in bytes or counts.

The sum over containers, init containers, sidecars, overhead and pod-level resources mirrors `PodRequests` of
`k8s.io/component-helpers/resource` 0.36, with and without the status of a pod that is resized in place. As there, the
quantities are added up as they are written, in nanos, and only the sum is rounded up to whole millicores or bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import Condition, Quantity
from webhook.kube.objects.pod import Container, Pod
from webhook.kube.pods import RESIZE_PENDING, is_deferred, resize_pending
from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos

_INFEASIBLE = "Infeasible"
CPU, MEMORY, EPHEMERAL_STORAGE = "cpu", "memory", "ephemeral-storage"
_ALWAYS = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_COUNTED = ("hugepages-", "attachable-volumes-")
"""What the scheduler counts, by how its name begins, beside cpu, memory, ephemeral storage and names with a slash."""

_MILLICORE = NANOS // 1000

Amounts = dict[str, int]
Nanos = dict[str, int]
"""Amounts in nanos, not rounded yet."""


class ClusterError(ValueError):
    """An object no decision can be made with: which one, which field, why."""


def int32(value: int, place: str) -> int:
    """The value of an int32. Raises ClusterError, which names the place, for any other."""
    if not -(2**31) <= value < 2**31:
        raise ClusterError(f"{place}: {value} is not within -2147483648 and 2147483647")
    return value


def requests(pod: Pod) -> Amounts:
    """What the pod asks for; resources the scheduler does not count are left out.

    Raises ClusterError for an amount that is negative or not a quantity.
    """
    try:
        return _rounded(_total(pod, {}, _of_pod(pod)))
    except QuantityError as error:
        raise ClusterError(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from error


def occupied(pod: Pod) -> Amounts:
    """What the pod takes from its node: what it asks for, or has while it is resized.

    Raises ClusterError for an amount that is negative or not a quantity.
    """
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return requests(pod)
    try:
        of_pod = _of_pod(pod)
        if of_pod and status.resources is not None:
            # Of the resources that the pod as a whole asks for, what it has and was allotted
            told = (_parse(status.resources.requests), _parse(status.allocated_resources))
            effective = _effective(of_pod, told, infeasible=resize_pending(pod) == _INFEASIBLE)
            of_pod = {name: effective.get(name, 0) for name in of_pod}
        return _rounded(_total(pod, _resized_containers(pod), of_pod))
    except QuantityError as error:
        raise ClusterError(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from error


def wished(pod: Pod) -> Amounts:
    """What a pod takes of its node's room beyond what it has while its resize is deferred.

    Raises ClusterError as `occupied` does.
    """
    if not is_deferred(pod):
        return {}
    no_wish = msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, conditions=[Condition(type=RESIZE_PENDING, reason=_INFEASIBLE)])
    )
    held = occupied(no_wish)
    return {name: amount - held.get(name, 0) for name, amount in occupied(pod).items() if amount > held.get(name, 0)}


def allocatable(node: Node) -> Amounts:
    """What the node offers, with `pods`. Raises ClusterError for an amount that is no quantity."""
    try:
        return _rounded(_parse(node.status.allocatable, and_pods=True))
    except QuantityError as error:
        raise ClusterError(f"node {node.metadata.name}: status.allocatable: {error}") from error


def _rounded(amounts: Nanos) -> Amounts:
    """Whole millicores, bytes and counts, rounded up, at most what an int64 holds."""
    return {
        name: min(INT64_MAX, -(-amount // (_MILLICORE if name == CPU else NANOS))) for name, amount in amounts.items()
    }


def _total(pod: Pod, resized: Mapping[str, Nanos], of_pod: Nanos) -> Nanos:
    """Sum up, with other amounts for the containers in `resized`; `of_pod` replaces the sums."""
    spec = pod.spec
    containers = spec.containers or ()
    total = _of_container(containers[0], resized) if containers else {}
    for container in containers[1:]:
        _add(total, _of_container(container, resized))
    # Init containers run one after the other, beside the sidecars that were started before them
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in spec.init_containers or ():
        mine = _of_container(container, resized)
        if container.restart_policy == "Always":
            _add(sidecars, mine)
            at_once = sidecars
        else:
            at_once = dict(mine)
            _add(at_once, sidecars)
        for name, amount in at_once.items():
            peak[name] = max(peak.get(name, 0), amount)
    if spec.init_containers:
        _add(total, sidecars)
        total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in total | peak}
    total.update(of_pod)
    if spec.overhead:
        _add(total, _parse(spec.overhead))
    return total


def _of_container(container: Container, resized: Mapping[str, Nanos]) -> Nanos:
    if resized and container.name in resized:
        return resized[container.name]
    return _parse(container.resources.requests) if container.resources and container.resources.requests else {}


def _of_pod(pod: Pod) -> Nanos:
    """Pod-level requests, of the resources that may be asked for there."""
    resources = pod.spec.resources
    if resources is None or not resources.requests:
        return {}
    asked = _parse(resources.requests)
    return {name: asked[name] for name in asked if name in (CPU, MEMORY) or name.startswith("hugepages-")}


def _resized_containers(pod: Pod) -> dict[str, Nanos]:
    """By name, what containers and sidecars take by their status; others are not resized."""
    sidecars = {container.name for container in pod.spec.init_containers or () if container.restart_policy == "Always"}
    statuses = [status for status in pod.status.init_container_statuses or () if status.name in sidecars]
    statuses += pod.status.container_statuses or ()
    asked = {
        container.name: _of_container(container, {})
        for container in [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    }
    infeasible = resize_pending(pod) == _INFEASIBLE
    return {
        status.name: _effective(
            asked.get(status.name, {}),
            (_parse(status.resources.requests if status.resources else None), _parse(status.allocated_resources)),
            infeasible=infeasible,
        )
        for status in statuses
        if status.resources
    }


def _effective(asked: Nanos, told: tuple[Nanos, Nanos], *, infeasible: bool) -> Nanos:
    """The most of what is asked for, had and allotted; an infeasible resize does not count."""
    effective = {} if infeasible else dict(asked)
    for amounts in told:
        for name, amount in amounts.items():
            effective[name] = max(effective.get(name, 0), amount)
    return effective


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _parse(quantities: Mapping[str, Quantity] | None, *, and_pods: bool = False) -> Nanos:
    amounts: Nanos = {}
    for name, quantity in (quantities or {}).items():
        if not (name in _ALWAYS or (and_pods and name == "pods") or name.startswith(_COUNTED) or "/" in name):
            continue
        if name.startswith("requests."):
            continue  # how quotas name a resource; no pod can ask for it
        amount = nanos(quantity)
        if amount < 0:
            raise QuantityError(f"{name} is {quantity}: an amount must not be negative")
        amounts[name] = amount
    return amounts
