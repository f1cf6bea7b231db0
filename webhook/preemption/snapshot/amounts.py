"""What a pod asks for and a node offers: cpu in millicores, the rest in bytes or counts.

The sum is that of `PodRequests` of `k8s.io/component-helpers/resource` 0.36, with and without the
status of a pod resized in place: quantities are added in nanos, only the sum is rounded up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import Quantity, key_of
from webhook.kube.objects.pod import Container, ContainerStatus, Pod, PodStatus
from webhook.kube.pods import is_deferred, resize_pending
from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos

CPU, MEMORY, EPHEMERAL_STORAGE = "cpu", "memory", "ephemeral-storage"
_ALWAYS = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_COUNTED = ("hugepages-", "attachable-volumes-")
"""How other names without a slash begin that the scheduler counts."""
_MILLICORE = NANOS // 1000

Amounts = dict[str, int]
Nanos = dict[str, int]
"""Amounts in nanos, not rounded yet."""


class ClusterError(ValueError):
    """An object no decision can be made with: which one, which field, why."""


def int32(value: int, place: str) -> int:
    """The value of an int32. Raises ClusterError, with the place, for any other."""
    if not -(2**31) <= value < 2**31:
        raise ClusterError(f"{place}: {value} is not within -2147483648 and 2147483647")
    return value


def requests(pod: Pod) -> Amounts:
    """What the pod asks for, without resources that the scheduler does not count.

    Raises ClusterError for an amount that is negative or not a quantity.
    """
    try:
        return _rounded(_total(pod, {}, _of_pod(pod)))
    except QuantityError as error:
        raise ClusterError(f"pod {key_of(pod)}: {error}") from error


def occupied(pod: Pod, *, wish: bool = True) -> Amounts:
    """What the pod takes from its node: what it asks for, or has while it is resized.

    Without its `wish` only what it has. Raises ClusterError as `requests`.
    """
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return requests(pod)
    wish = wish and resize_pending(pod) != "Infeasible"
    try:
        of_pod = _of_pod(pod)
        if of_pod and status.resources is not None:
            # Only of the resources that the pod as a whole asks for
            effective = _effective(of_pod if wish else {}, status)
            of_pod = {name: effective.get(name, 0) for name in of_pod}
        return _rounded(_total(pod, _resized_containers(pod, wish=wish), of_pod))
    except QuantityError as error:
        raise ClusterError(f"pod {key_of(pod)}: {error}") from error


def wished(pod: Pod) -> Amounts:
    """What a pod takes of its node beyond what it has, while its resize is deferred.

    Raises ClusterError as `requests`.
    """
    if not is_deferred(pod):
        return {}
    held = occupied(pod, wish=False)
    more = {name: amount - held.get(name, 0) for name, amount in occupied(pod).items()}
    return {name: amount for name, amount in more.items() if amount > 0}


def allocatable(node: Node) -> Amounts:
    """What the node offers, with `pods`. Raises ClusterError for what is no quantity."""
    try:
        return _rounded(_parse(node.status.allocatable, (*_ALWAYS, "pods")))
    except QuantityError as error:
        raise ClusterError(f"node {node.metadata.name}: status.allocatable: {error}") from error


def _rounded(amounts: Nanos) -> Amounts:
    """Whole millicores, bytes and counts, rounded up, at most an int64."""
    rounded = {}
    for name, amount in amounts.items():
        unit = _MILLICORE if name == CPU else NANOS
        rounded[name] = min(INT64_MAX, -(-amount // unit))
    return rounded


def _total(pod: Pod, resized: Mapping[str, Nanos], of_pod: Nanos) -> Nanos:
    """Sum up, with other amounts for containers in `resized`; `of_pod` replaces the sums."""
    spec = pod.spec
    total: Nanos = {}
    for container in spec.containers or ():
        _add(total, _of_container(container, resized))
    # Init containers run in turn, beside the sidecars that started before
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in spec.init_containers or ():
        at_once = dict(sidecars)
        _add(at_once, _of_container(container, resized))
        _raise_to(peak, at_once)
        if container.restart_policy == "Always":
            sidecars = at_once
    if spec.init_containers:
        _add(total, sidecars)
        _raise_to(total, peak)
    total.update(of_pod)
    if spec.overhead:
        _add(total, _parse(spec.overhead))
    return total


def _of_container(container: Container, resized: Mapping[str, Nanos]) -> Nanos:
    if container.name in resized:
        return resized[container.name]
    return _parse(container.resources.requests) if container.resources else {}


def _of_pod(pod: Pod) -> Nanos:
    """Pod-level requests, of the resources that may be asked for there."""
    resources = pod.spec.resources
    if resources is None:
        return {}
    asked = _parse(resources.requests)
    return {name: asked[name] for name in asked if name in (CPU, MEMORY) or name.startswith("hugepages-")}


def _resized_containers(pod: Pod, *, wish: bool) -> dict[str, Nanos]:
    """By name, what containers and sidecars take by status; others are not resized."""
    init = pod.spec.init_containers or ()
    asked: dict[str, Nanos] = {}
    if wish:
        for container in (*init, *(pod.spec.containers or ())):
            asked[container.name] = _of_container(container, {})
    sidecars = {container.name for container in init if container.restart_policy == "Always"}
    of_init = pod.status.init_container_statuses or ()
    statuses = [status for status in of_init if status.name in sidecars]
    statuses += pod.status.container_statuses or ()
    resized = [status for status in statuses if status.resources]
    return {status.name: _effective(asked.get(status.name, {}), status) for status in resized}


def _effective(asked: Nanos, status: ContainerStatus | PodStatus) -> Nanos:
    """The most asked for, had or allotted."""
    effective = dict(asked)
    if status.resources is not None:
        _raise_to(effective, _parse(status.resources.requests))
    _raise_to(effective, _parse(status.allocated_resources))
    return effective


def _add(total: Nanos, more: Nanos) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Nanos, least: Nanos) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


def _parse(quantities: Mapping[str, Quantity] | None, always: Collection[str] = _ALWAYS) -> Nanos:
    amounts: Nanos = {}
    for name, quantity in (quantities or {}).items():
        if not (name in always or name.startswith(_COUNTED) or "/" in name):
            continue
        if name.startswith("requests."):
            continue  # how quotas name a resource; no pod can ask for it
        amount = nanos(quantity)
        if amount < 0:
            raise QuantityError(f"{name} is {quantity}: an amount must not be negative")
        amounts[name] = amount
    return amounts
