"""Where a node's own properties let a pod run: node selectors and taints, over all nodes at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import NodeSelector, NodeSelectorTerm, Pod, Requirement, Taint, Toleration
from webhook.kube.selectors import node_matcher
from webhook.preemption.filters.counters import FilterCheck
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_info import PodInfo

__all__ = [
    "affinity_mask",
    "declaring_mask",
    "placement_checks",
    "required_features",
    "required_mask",
    "taint_mask",
    "tolerates",
]

Mask = NDArray[np.bool_]

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def placement_checks(nodes: Nodes, incoming: PodInfo, refusal: str) -> list[FilterCheck]:
    """What PreFilter finds out before any node is looked at, then what the filters say of the nodes themselves.

    PreFilter: a `refusal` of the pod's claims, or nodes that node affinity names. The filters, in this order:
    NodeUnschedulable, NodeName, TaintToleration, NodeAffinity.
    """
    spec = incoming.pod.spec
    checks = []
    names = _named_nodes(incoming.pod)
    refusal = (refusal if names is None or names else "pod affinity terms conflict") or incoming.beyond
    if refusal:
        checks.append(FilterCheck(refusal, False, "mask", np.ones(nodes.rows, np.bool_)))
    elif names is not None:
        reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
        checks.append(FilterCheck(reason, False, "mask", _elsewhere(nodes, names)))
    if nodes.unschedulable[: nodes.rows].any() and not tolerates(spec.tolerations, _UNSCHEDULABLE):
        checks.append(FilterCheck("node(s) were unschedulable", False, "mask", nodes.unschedulable[: nodes.rows]))
    if spec.node_name:
        reason = "node(s) didn't match the requested node name"
        checks.append(FilterCheck(reason, False, "mask", _elsewhere(nodes, (spec.node_name,))))
    checks.append(FilterCheck("node(s) had untolerated taint(s)", False, "mask", taint_mask(nodes, spec.tolerations)))
    if spec.node_selector or (spec.affinity and spec.affinity.node_affinity):
        excluded = ~required_mask(nodes, incoming.pod)
        checks.append(FilterCheck("node(s) didn't match Pod's node affinity/selector", False, "mask", excluded))
    return checks


def _elsewhere(nodes: Nodes, names: Iterable[str]) -> Mask:
    """All nodes but those of these names."""
    mask = np.ones(nodes.rows, np.bool_)
    mask[[row for name in names if (row := nodes.find(name)) is not None]] = False
    return mask


def required_mask(nodes: Nodes, pod: Pod) -> Mask:
    """Nodes that the pod's node selector and required node affinity select, by node row."""
    mask = np.ones(nodes.rows, np.bool_)
    for key, value in (pod.spec.node_selector or {}).items():
        mask &= nodes.has_label_in(key, (value,))
    return mask & affinity_mask(nodes, _required_affinity(pod))


def affinity_mask(nodes: Nodes, selector: NodeSelector | None, *, fields: bool = True) -> Mask:
    """Nodes that the selector selects, by node row; None selects all, one that cannot be parsed none.

    Without `fields` whatever `matchFields` ask for holds.
    """
    if selector is None:
        return np.ones(nodes.rows, np.bool_)
    mask = np.zeros(nodes.rows, np.bool_)
    for term in selector.node_selector_terms or ():
        mask |= _term_mask(nodes, term, fields=fields)
    return mask


def _named_nodes(pod: Pod) -> set[str] | None:
    """Nodes to which `matchFields` confines the pod before any filter runs; None if it does not.

    Mirrors the PreFilter of kube-scheduler's NodeAffinity: every alternative must name nodes.
    """
    selector = _required_affinity(pod)
    names: set[str] = set()
    for term in (selector.node_selector_terms or ()) if selector else ():
        named = [
            set(row.values or ())
            for row in term.match_fields or ()
            if row.key == "metadata.name" and row.operator == "In"
        ]
        if not named:
            return None
        names |= set.intersection(*named)
    return names if selector and selector.node_selector_terms else None


def taint_mask(nodes: Nodes, tolerations: list[Toleration] | None) -> Mask:
    """Nodes with a NoSchedule or NoExecute taint that is not tolerated, by node row."""
    untolerated = [
        any(taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint) for taint in taints or ())
        for taints in nodes.taint_sets.values
    ]
    selected: Mask = np.array(untolerated, np.bool_)[nodes.taints[: nodes.rows]]
    return selected


def required_features(pod: Pod) -> list[str]:
    """The features that a node must declare to run the pod (NodeDeclaredFeatures of 1.36), sorted."""
    spec = pod.spec
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    features = []
    if any(rule.action == "RestartAllContainers" for one in containers for rule in one.restart_policy_rules or ()):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return features


def declaring_mask(nodes: Nodes, features: Iterable[str]) -> Mask:
    """Nodes that declare all the features, by node row."""
    wanted = frozenset(features)
    return np.array([wanted <= declared for declared in nodes.declared], np.bool_)


def tolerates(tolerations: Iterable[Toleration] | None, taint: Taint) -> bool:
    """Whether one of the tolerations puts up with the taint."""
    return any(_matches(toleration, taint) for toleration in tolerations or ())


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _required_affinity(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required_during_scheduling_ignored_during_execution


def _term_mask(nodes: Nodes, term: NodeSelectorTerm, *, fields: bool) -> Mask:
    """One alternative: its requirements hold together; one that is empty or invalid selects nothing."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(nodes.rows, np.bool_)
    mask = np.ones(nodes.rows, np.bool_)
    for row in term.match_expressions or ():
        mask &= _requirement_mask(nodes, row)
    if fields:
        for row in term.match_fields or ():
            mask &= _field_mask(nodes, row)
    return mask if _is_valid(term) else np.zeros(nodes.rows, np.bool_)


def _is_valid(term: NodeSelectorTerm) -> bool:
    """A requirement that cannot be parsed spoils its whole term."""
    counts = {"In": (1, None), "NotIn": (1, None), "Exists": (0, 0), "DoesNotExist": (0, 0), "Gt": (1, 1), "Lt": (1, 1)}
    for row in term.match_expressions or ():
        least, most = counts.get(row.operator, (1, 0))
        given = len(row.values or ())
        if given < least or (most is not None and given > most):
            return False
    return True


def _requirement_mask(nodes: Nodes, row: Requirement) -> Mask:
    match row.operator:
        case "In":
            return nodes.has_label_in(row.key, row.values or ())
        case "NotIn":
            return ~nodes.has_label_in(row.key, row.values or ())
        case "Exists":
            return nodes.label(row.key) >= 0
        case "DoesNotExist":
            return nodes.label(row.key) < 0
    holds = node_matcher(NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[row])]))
    column = nodes.label(row.key)
    answers = np.zeros(nodes.label_count(row.key) + 1, np.bool_)
    for identity, value in nodes.label_values(row.key):
        answers[identity] = holds("", {row.key: value})
    selected: Mask = answers[column]
    return selected


def _field_mask(nodes: Nodes, row: Requirement) -> Mask:
    values = row.values or []
    if row.key != "metadata.name" or row.operator not in ("In", "NotIn") or len(values) != 1:
        return np.zeros(nodes.rows, np.bool_)
    mask = np.zeros(nodes.rows, np.bool_)
    found = nodes.find(values[0])
    if found is not None:
        mask[found] = True
    return mask if row.operator == "In" else ~mask
