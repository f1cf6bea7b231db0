"""Where a node's own properties let a pod run, over all nodes at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from webhook.kube.objects.meta import Requirement
from webhook.kube.objects.placement import NodeSelector, NodeSelectorTerm, Taint, Toleration
from webhook.kube.objects.pod import Pod
from webhook.kube.selectors import is_label_value, keep_off, node_matcher, tolerates
from webhook.preemption.snapshot.columns import Mask
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_info import PodInfo

WRONG_NAME = "node(s) didn't match the requested node name"
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def placement_masks(nodes: Nodes, incoming: PodInfo, refusal: str) -> list[tuple[str, Mask]]:
    """The nodes that fail, by reason: what PreFilter says, then the filters.

    PreFilter: a `refusal` of the pod's claims, or nodes that node affinity names. Filters:
    NodeUnschedulable, NodeName, TaintToleration, NodeAffinity.
    """
    pod = incoming.pod
    spec, names = pod.spec, _named_nodes(pod)
    masks = []
    if names is not None and not names:
        refusal = "pod affinity terms conflict"
    refusal = refusal or incoming.beyond
    if refusal:
        masks.append((refusal, np.full(nodes.rows, True)))
    elif names is not None:
        unnamed = elsewhere(nodes, names)
        masks.append(("node(s) didn't satisfy plugin(s) [NodeAffinity]", unnamed))
    unschedulable = nodes.unschedulable[: nodes.rows]
    if unschedulable.any() and not tolerates(spec.tolerations, _UNSCHEDULABLE):
        masks.append(("node(s) were unschedulable", unschedulable))
    if spec.node_name:
        masks.append((WRONG_NAME, elsewhere(nodes, (spec.node_name,))))
    tainted = taint_mask(nodes, spec.tolerations)
    masks.append(("node(s) had untolerated taint(s)", tainted))
    if spec.node_selector or (spec.affinity and spec.affinity.node_affinity):
        unselected = ~required_mask(nodes, pod)
        masks.append(("node(s) didn't match Pod's node affinity/selector", unselected))
    return masks


def elsewhere(nodes: Nodes, names: Iterable[str]) -> Mask:
    """All nodes but those with these names."""
    mask = np.full(nodes.rows, True)
    mask[nodes.rows_of(names)] = False
    return mask


def required_mask(nodes: Nodes, pod: Pod) -> Mask:
    """Nodes, by row, that the pod's node selector and required node affinity select."""
    mask = np.full(nodes.rows, True)
    for key, value in (pod.spec.node_selector or {}).items():
        mask &= nodes.has_label_in(key, (value,))
    return mask & affinity_mask(nodes, required_affinity(pod))


def affinity_mask(nodes: Nodes, selector: NodeSelector | None, *, fields: bool = True) -> Mask:
    """The selected nodes, by row: by None all, by what cannot be parsed none.

    Without `fields` every `matchFields` holds.
    """
    if selector is None:
        return np.full(nodes.rows, True)
    mask = np.full(nodes.rows, False)
    for term in selector.node_selector_terms or ():
        # An empty term selects nothing
        holds = np.full(nodes.rows, bool(term.match_expressions or term.match_fields))
        for row in term.match_expressions or ():
            holds &= _requirement_mask(nodes, row)
        for row in (term.match_fields or ()) if fields else ():
            names = row.values or []
            outside = elsewhere(nodes, names)
            known = row.key == "metadata.name" and row.operator in ("In", "NotIn")
            if not known or len(names) != 1:
                holds[:] = False
            else:
                holds &= outside if row.operator == "NotIn" else ~outside
        mask |= holds
    return mask


def _named_nodes(pod: Pod) -> set[str] | None:
    """Nodes to which `matchFields` confines the pod, if it does.

    As in the PreFilter of kube-scheduler's NodeAffinity every alternative must name nodes.
    """
    selector = required_affinity(pod)
    if selector is None or not selector.node_selector_terms:
        return None
    names = set[str]()
    for term in selector.node_selector_terms:
        fields = (row for row in term.match_fields or () if row.key == "metadata.name")
        named = [set(row.values or ()) for row in fields if row.operator == "In"]
        if not named:
            return None
        names |= set.intersection(*named)
    return names


def taint_mask(nodes: Nodes, tolerations: list[Toleration] | None) -> Mask:
    """Nodes, by row, with a NoSchedule or NoExecute taint not tolerated."""
    sets = nodes.taint_sets.values
    untolerated = np.array([keep_off(taints, tolerations) for taints in sets], np.bool_)
    return untolerated[nodes.taints[: nodes.rows]]


def declaring_mask(nodes: Nodes, features: Iterable[str]) -> Mask:
    """Nodes, by row, that declare all the features."""
    wanted = frozenset(features)
    return np.array([wanted <= declared for declared in nodes.declared], np.bool_)


def required_affinity(pod: Pod) -> NodeSelector | None:
    """The nodes that the pod's affinity requires; None without any."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required_during_scheduling_ignored_during_execution


def _requirement_mask(nodes: Nodes, row: Requirement) -> Mask:
    """Nodes, by row, that meet the requirement; one not parsed spoils its term."""
    key, values = row.key, row.values
    if row.operator in ("In", "NotIn") and values and all(map(is_label_value, values)):
        inside = nodes.has_label_in(key, values)
        return inside if row.operator == "In" else ~inside
    term = NodeSelectorTerm(match_expressions=[row])
    holds = node_matcher(NodeSelector(node_selector_terms=[term]))
    answers = [holds("", {key: value}) for value in nodes.values_of(key)]
    answers.append(holds("", {}))
    # -1, no value, reads the last one
    return np.array(answers, np.bool_)[nodes.label(key)]
