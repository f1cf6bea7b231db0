"""The preemptor, compiled once a decision: what it asks for and which terms of its own bind it."""

from __future__ import annotations

from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.preemption.snapshot.amounts import requests
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.terms import (
    HostPorts,
    SpreadConstraint,
    Term,
    affinity_terms,
    host_ports,
    spread_constraints,
)

__all__ = ["PodInfo", "compile_pod"]


class PodInfo(NamedTuple):
    """A pending pod as the filters see it; `amounts` are millicores, bytes and counts, zero ones left out.

    `beyond` says what the pod asks for that no filter here knows, so that nobody is evicted for it; mostly empty.
    """

    pod: Pod
    namespace: str
    name: str
    labels: dict[str, str]
    priority: int
    amounts: dict[str, int]
    ports: HostPorts
    affinity: list[Term]
    anti_affinity: list[Term]
    spread: list[SpreadConstraint]
    beyond: str


def compile_pod(pod: Pod) -> PodInfo:
    """Compile the preemptor. Raises ClusterError for amounts and selectors that cannot be read."""
    meta = pod.metadata
    return PodInfo(
        pod=pod,
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels or {},
        priority=priority_of(pod),
        amounts={name: amount for name, amount in requests(pod).items() if amount > 0},
        ports=host_ports(pod),
        affinity=affinity_terms(pod, anti=False),
        anti_affinity=affinity_terms(pod, anti=True),
        spread=spread_constraints(pod),
        beyond=_beyond(pod),
    )


def _beyond(pod: Pod) -> str:
    if pod.spec.resource_claims:
        return "it asks for devices by spec.resourceClaims, and where they can be had is not known here"
    if pod.spec.scheduling_group:
        return "it is placed together with the pods of its spec.schedulingGroup, and here pods are placed one by one"
    return ""
