"""What a pod asks for and a node offers, as integers: cpu in millicores, everything else in bytes or counts.

The sum over containers, init containers, sidecars, overhead and pod-level resources mirrors `PodRequests` of
`k8s.io/component-helpers/resource`.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.kube.objects import Container, Node, Pod, PodSpec, Quantity
from webhook.kube.quantity import QuantityError, millis, units

__all__ = ["CPU", "EPHEMERAL_STORAGE", "LARGEST", "MEMORY", "ClusterError", "allocatable", "requests"]

CPU, MEMORY, EPHEMERAL_STORAGE = "cpu", "memory", "ephemeral-storage"
LARGEST = 2**54
"""Amounts are capped here, so that no sum over a node's pods leaves an int64."""

Amounts = dict[str, int]


class ClusterError(ValueError):
    """An object no decision can be made with: which one, which field, why."""


def requests(pod: Pod) -> Amounts:
    """What the pod takes from its node; resources the scheduler does not count are left out.

    Raises ClusterError for an amount that is negative or not a quantity.
    """
    spec = pod.spec
    try:
        return _of_spec(spec)
    except QuantityError as error:
        raise ClusterError(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from error


def allocatable(node: Node) -> Amounts:
    """What the node offers, `pods` among it. Raises ClusterError for an amount that is not a quantity."""
    try:
        return _parse(node.status.allocatable, and_pods=True)
    except QuantityError as error:
        raise ClusterError(f"node {node.metadata.name}: status.allocatable: {error}") from error


def _of_spec(spec: PodSpec) -> Amounts:
    containers = spec.containers or ()
    total = _of_container(containers[0]) if containers else {}
    for container in containers[1:]:
        _add(total, _of_container(container))
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers)
    if spec.resources and spec.resources.requests:
        for name, amount in _parse(spec.resources.requests).items():
            if name in (CPU, MEMORY) or name.startswith("hugepages-"):
                total[name] = amount
    if spec.overhead:
        _add(total, _parse(spec.overhead))
    return total


def _with_init_containers(running: Amounts, init_containers: list[Container]) -> Amounts:
    """Init containers run one after the other beside the sidecars started before them."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in init_containers:
        mine = _of_container(container)
        if container.restart_policy == "Always":
            _add(sidecars, mine)
            at_once = sidecars
        else:
            at_once = dict(mine)
            _add(at_once, sidecars)
        for name, amount in at_once.items():
            peak[name] = max(peak.get(name, 0), amount)
    total = dict(running)
    _add(total, sidecars)
    return {name: max(total.get(name, 0), peak.get(name, 0)) for name in total | peak}


def _of_container(container: Container) -> Amounts:
    return _parse(container.resources.requests) if container.resources and container.resources.requests else {}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = min(LARGEST, total.get(name, 0) + amount)


def _parse(quantities: Mapping[str, Quantity] | None, *, and_pods: bool = False) -> Amounts:
    amounts: Amounts = {}
    for name, quantity in (quantities or {}).items():
        if name == CPU:
            amount = millis(quantity)
        elif name in (MEMORY, EPHEMERAL_STORAGE) or _is_scalar(name) or (and_pods and name == "pods"):
            amount = units(quantity)
        else:
            continue
        if amount < 0:
            raise QuantityError(f"{name} is {quantity}: an amount must not be negative")
        amounts[name] = min(LARGEST, amount)
    return amounts


def _is_scalar(name: str) -> bool:
    """Whether the scheduler counts the resource beside cpu, memory and ephemeral storage."""
    return name.startswith(("hugepages-", "attachable-volumes-")) or "/" in name
