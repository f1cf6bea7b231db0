"""A pod compiled: what it asks for, its ports, terms, spread constraints and claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.kube.objects.meta import LabelSelector, Requirement, key_of
from webhook.kube.objects.placement import (
    Affinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from webhook.kube.objects.pod import Pod, Volume
from webhook.kube.pods import is_deferred
from webhook.kube.selectors import Labels, Matcher, SelectorError, label_matcher
from webhook.preemption.snapshot.amounts import ClusterError, int32, requests
from webhook.preemption.snapshot.pod_view import Identity, priority_of

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # the address as Kubernetes writes it; nothing binds to it here


class HostPort(NamedTuple):
    """A port of the node that a pod takes."""

    protocol: str
    port: int
    address: str


HostPorts = tuple[HostPort, ...]


class PodClaims(NamedTuple):
    """`namespace/name` of claims a pod names, and of those made for ephemeral volumes."""

    named: frozenset[str]
    made: frozenset[str]


NO_CLAIMS = PodClaims(frozenset(), frozenset())
AntiAffinity = tuple[str, tuple[PodAffinityTerm, ...]]
"""A pod's namespace and its required terms."""
NO_ANTI_AFFINITY = ("", b""), ("", ())


class Term:
    """A compiled (anti-)affinity term: which pods it selects, and the topology.

    Terms of equal `key` select the same pods while no namespace changes. A term of the
    incoming pod selects every namespace if its namespaceSelector selects one without labels, as
    NotIn and DoesNotExist do: kube-scheduler 1.36 drops it from a copy, and asks it again
    about no labels (`mergeAffinityTermNamespacesIfNotEmpty`).

    `matchLabelKeys` and `mismatchLabelKeys` are not read, nor by kube-scheduler: the API server
    merged them into the selector when the pod was made.
    """

    def __init__(self, term: PodAffinityTerm, own_namespace: str, *, incoming: bool) -> None:
        self.topology_key = term.topology_key
        self.key = (own_namespace, msgspec.json.encode(term))
        self._selector = label_matcher(term.label_selector)
        unsaid = () if term.namespace_selector else (own_namespace,)
        self._namespaces = frozenset(term.namespaces or unsaid)
        self._namespace_selector = label_matcher(term.namespace_selector)
        self._everywhere = incoming and self._namespace_selector({})

    def selects(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether the term selects such a pod."""
        if self._everywhere or namespace in self._namespaces or self._namespace_selector(namespace_labels):
            return self._selector(labels)
        return False


class SpreadConstraint(NamedTuple):
    """A topology spread constraint; `matches` and `counts_nothing` tell which pods count.

    Constraints of equal `key` match the same labels.
    """

    namespace: str
    topology_key: str
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    matches: Matcher
    counts_nothing: bool
    key: bytes

    def selects(self, identity: Identity) -> bool:
        """Whether the constraint counts such pods."""
        return identity.namespace == self.namespace and self.matches(identity.labels)


def host_ports(pod: Pod) -> HostPorts:
    """The node's ports of containers and sidecars, sorted, each once."""
    init = pod.spec.init_containers or ()
    sidecars = [container for container in init if container.restart_policy == "Always"]
    ports = {
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or _ANY_ADDRESS)
        for container in (*(pod.spec.containers or ()), *sidecars)
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(sorted(ports))


def conflicts(wanted: HostPort, taken: HostPort) -> bool:
    """Whether both cannot be had on one node; 0.0.0.0 takes every address."""
    if (wanted.protocol, wanted.port) != (taken.protocol, taken.port):
        return False
    return _ANY_ADDRESS in (wanted.address, taken.address) or wanted.address == taken.address


def claim_name(pod: Pod, volume: Volume) -> str | None:
    """The name of the claim that a volume names, or that is made for it; else None."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def claims_of(pod: Pod) -> PodClaims | None:
    """The pod's claims, None if it has none."""
    named: set[str] = set()
    made: set[str] = set()
    for volume in pod.spec.volumes or ():
        name = claim_name(pod, volume)
        if name is not None:
            claims = made if volume.persistent_volume_claim is None else named
            claims.add(f"{pod.metadata.namespace}/{name}")
    return PodClaims(frozenset(named), frozenset(made)) if named or made else None


def shape_of(pod: Pod, labels: Collection[str], claim_shape: Callable[[str], object] = str) -> bytes:
    """What filters read of a waiting pod: those of equal text go to the same nodes.

    It has the labels of the keys `labels`, and what `claim_shape` says of each claim,
    `namespace/name`. Other volumes, such as each pod's token, bind to nothing. A pod that is
    made for one node (`node_of`) goes to it if those made for others go to theirs.
    """
    meta, claims = pod.metadata, claims_of(pod) or NO_CLAIMS
    encode = partial(msgspec.json.encode, order="deterministic")
    shapes = [sorted(encode(claim_shape(claim)) for claim in some) for some in claims]
    spec = for_any_node(pod).spec
    spec = replace(spec, volumes=None, service_account_name="")
    own = (meta.labels or {}).items()
    read = {key: value for key, value in own if key in labels}
    return encode((meta.namespace, shapes, read, spec, bool(node_of(pod))))


def node_of(pod: Pod) -> str:
    """The one node a pod is made for, as a DaemonSet's pods are; else empty."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    match required.node_selector_terms if required else None:
        case [NodeSelectorTerm(match_expressions=None, match_fields=[Requirement("metadata.name", "In", [node])])]:
            return node
    return ""


def for_any_node(pod: Pod) -> Pod:
    """The pod, without the one node that it is made for."""
    spec = pod.spec
    if spec.affinity is None or not node_of(pod):
        return pod
    return replace(pod, spec=replace(spec, affinity=replace(spec.affinity, node_affinity=None)))


def label_keys_read(pod: Pod) -> set[str]:
    """The label keys that the pod's required affinity and spread constraints read."""
    affinity = pod.spec.affinity or Affinity()
    spread = pod.spec.topology_spread_constraints or ()
    keys = {key for constraint in spread for key in constraint.match_label_keys or ()}
    terms = _required(affinity.pod_affinity) + _required(affinity.pod_anti_affinity)
    for reader in (*terms, *spread):
        selector = reader.label_selector or LabelSelector()
        rows = selector.match_expressions or ()
        keys.update(selector.match_labels or (), (row.key for row in rows))
    return keys


def anti_affinity_of(pod: Pod) -> tuple[tuple[str, bytes], AntiAffinity]:
    """The pod's required anti-affinity, as key and value to intern."""
    affinity = pod.spec.affinity
    terms = tuple(_required(affinity.pod_anti_affinity)) if affinity else ()
    if not terms:
        return NO_ANTI_AFFINITY
    namespace = pod.metadata.namespace
    return (namespace, msgspec.json.encode(terms)), (namespace, terms)


def affinity_terms(pod: Pod, *, anti: bool) -> list[Term]:
    """The incoming pod's required terms. Raises ClusterError for a wrong selector."""
    affinity = pod.spec.affinity or Affinity()
    try:
        terms = _required(affinity.pod_anti_affinity if anti else affinity.pod_affinity)
        return [Term(term, pod.metadata.namespace, incoming=True) for term in terms]
    except SelectorError as error:
        field = "podAntiAffinity" if anti else "podAffinity"
        raise ClusterError(f"pod {key_of(pod)}: spec.affinity.{field}: {error}") from error


def compile_terms(namespace: str, terms: tuple[PodAffinityTerm, ...]) -> list[Term]:
    """An existing pod's terms; as in kube-scheduler, none if one is unreadable."""
    try:
        return [Term(term, namespace, incoming=False) for term in terms]
    except SelectorError:
        return []


def spread_constraints(pod: Pod) -> list[SpreadConstraint]:
    """The incoming pod's hard constraints. Raises ClusterError for what cannot be read."""
    constraints = pod.spec.topology_spread_constraints or ()
    hard = [constraint for constraint in constraints if constraint.when_unsatisfiable == "DoNotSchedule"]
    place = f"pod {key_of(pod)}: spec.topologySpreadConstraints"
    for constraint in hard:
        int32(constraint.max_skew, f"{place}: maxSkew")
        int32(constraint.min_domains or 1, f"{place}: minDomains")
    try:
        return [compile_spread(pod, constraint) for constraint in hard]
    except SelectorError as error:
        raise ClusterError(f"{place}: {error}") from error


def compile_spread(pod: Pod, constraint: TopologySpreadConstraint) -> SpreadConstraint:
    """One constraint, with the pod's labels of now for `matchLabelKeys`. Raises SelectorError.

    Unlike those of (anti-)affinity, kube-scheduler merges them, too, after the API server.
    """
    selector, labels = constraint.label_selector, pod.metadata.labels or {}
    if selector is not None and constraint.match_label_keys:
        rows = list(selector.match_expressions or ())
        keys = (key for key in constraint.match_label_keys if key in labels)
        rows += [Requirement(key=key, operator="In", values=[labels[key]]) for key in keys]
        selector = LabelSelector(match_labels=selector.match_labels, match_expressions=rows)
    empty = selector is not None and not selector.match_labels and not selector.match_expressions
    return SpreadConstraint(
        namespace=pod.metadata.namespace,
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        honor_affinity=constraint.node_affinity_policy in (None, "Honor"),
        honor_taints=constraint.node_taints_policy == "Honor",
        matches=label_matcher(selector),
        counts_nothing=empty,
        key=msgspec.json.encode(selector),
    )


def _required(affinity: PodAffinity | None) -> list[PodAffinityTerm]:
    return (affinity.required_during_scheduling_ignored_during_execution or []) if affinity else []


def required_features(pod: Pod) -> list[str]:
    """Features that the pod's node must declare (NodeDeclaredFeatures of 1.36), sorted."""
    spec, features = pod.spec, []
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return features


class PodInfo(NamedTuple):
    """A pending pod as the filters see it, kube-scheduler's `PodInfo`.

    `amounts` are millicores, bytes and counts above zero. A node must declare the `features`.
    `beyond` says what the pod asks for that no filter knows: nobody is evicted for it.
    """

    pod: Pod
    namespace: str
    name: str
    labels: dict[str, str]
    priority: int
    amounts: dict[str, int]
    ports: HostPorts = ()
    affinity: Sequence[Term] = ()
    anti_affinity: Sequence[Term] = ()
    spread: Sequence[SpreadConstraint] = ()
    features: Sequence[str] = ()
    beyond: str = ""
    grows: bool = False
    """Whether it is bound and wants to grow there: only resources matter."""


def compile_pod(pod: Pod) -> PodInfo:
    """Compile the preemptor. Raises ClusterError for what cannot be read."""
    meta = pod.metadata
    amounts = {name: amount for name, amount in requests(pod).items() if amount > 0}
    info = PodInfo(pod, meta.namespace, meta.name, meta.labels or {}, priority_of(pod), amounts)
    if is_deferred(pod):
        return info._replace(grows=True)
    return info._replace(
        ports=host_ports(pod),
        affinity=affinity_terms(pod, anti=False),
        anti_affinity=affinity_terms(pod, anti=True),
        spread=spread_constraints(pod),
        features=required_features(pod),
    )
