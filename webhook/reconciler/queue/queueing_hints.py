"""Which change could help a preemptor that found no room (docs/semantics.md F3), by kind of object. Pure."""

from __future__ import annotations

from typing import Any

from webhook.kube.informer import Change
from webhook.kube.objects import Node, Pod, PodDisruptionBudget
from webhook.reconciler.state.preemptors import is_over

__all__ = ["budget_helps", "frees_room", "makes_company", "node_helps", "pod_changed", "relevant_difference"]


def frees_room(change: Change[Pod]) -> bool:
    """Whether a pod's change leaves more room, or more pods that may be asked to leave."""
    old, new = change.old, change.new
    if old is None:
        return False
    if new is None or is_over(new):
        return bool(old.spec.node_name or old.status.nominated_node_name) and not is_over(old)
    if old.status.nominated_node_name != new.status.nominated_node_name and old.status.nominated_node_name:
        return True
    if not new.spec.node_name:
        return False
    return (
        bool(new.metadata.deletion_timestamp) != bool(old.metadata.deletion_timestamp)
        or old.metadata.annotations != new.metadata.annotations
        or old.metadata.labels != new.metadata.labels
        or old.status.start_time != new.status.start_time
        or old.spec.containers != new.spec.containers
        or old.status.container_statuses != new.status.container_statuses
    )


def makes_company(change: Change[Pod]) -> bool:
    """Whether a pod came to a node, which can only help a preemptor with pod affinity."""
    new = change.new
    if new is None or not new.spec.node_name:
        return False
    return change.old is None or not change.old.spec.node_name


def pod_changed(change: Change[Pod]) -> bool:
    """Whether a pending pod asks for something else than before."""
    old, new = change.old, change.new
    return old is not None and new is not None and (old.spec != new.spec or old.metadata.labels != new.metadata.labels)


def node_helps(change: Change[Node]) -> bool:
    """Whether a node came or changed in what the filters look at; a heartbeat is no such change."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is not None
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
        or old.status.declared_features != new.status.declared_features
    )


def budget_helps(change: Change[PodDisruptionBudget]) -> bool:
    """Whether a budget is gone, covers other pods, was counted again, or has more disruptions left."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is None
    return (
        new.status.disruptions_allowed > old.status.disruptions_allowed
        or old.spec.selector != new.spec.selector
        or old.status.disrupted_pods != new.status.disrupted_pods
        or old.status.observed_generation != new.status.observed_generation
    )


def relevant_difference(change: Change[Any]) -> bool:
    """Whether an object of a minor kind (class, namespace, volume) differs in anything that is read of it."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    same_meta = old.metadata.labels == new.metadata.labels and old.metadata.annotations == new.metadata.annotations
    return not same_meta or any(
        getattr(old, name) != getattr(new, name) for name in new.__struct_fields__ if name != "metadata"
    )
