"""Which changes of the cluster could help a pod that did not fit (kube-scheduler's queueing hints)."""

from __future__ import annotations

from collections.abc import Callable

from webhook.clusters.scheduling.queue import Entry
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.pod_info import claims_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot

Helps = Callable[[Entry], bool]


def after_node_change(snapshot: Snapshot, change: Change[Node]) -> Helps | None:
    """A node that came or changed helps pods with room on it; a status that says nothing new helps nobody."""
    old, new = change.old, change.new
    if new is None:
        return None
    if old is not None and _node_facts(old) == _node_facts(new):
        return None
    return _room_on(snapshot, change.key)


def after_pod_change(snapshot: Snapshot, change: Change[Pod]) -> Helps | None:
    """What another pod's change helps: its leaving, its coming, and its letting go of a nomination."""
    old, new = change.old, change.new
    if old is not None and old.spec.node_name and not is_terminal(old) and (new is None or is_terminal(new)):
        anti, claims = bool(old.spec.affinity and old.spec.affinity.pod_anti_affinity), _named_claims(old)
        has_room = _room_on(snapshot, old.spec.node_name)
        return lambda entry: (
            anti or entry.relative or bool(claims & _named_claims(entry.incoming.pod)) or has_room(entry)
        )
    if old is not None and _reserved(old) and _reserved(old) != (_reserved(new) if new else ""):
        priority = priority_of(old)
        return lambda entry: entry.incoming.priority <= priority
    if new is not None and new.spec.node_name and (old is None or _placement(old) != _placement(new)):
        return lambda entry: entry.relative
    return None


def after_volume_change(entry: Entry) -> bool:
    """A volume, claim or storage class helps pods that have claims."""
    return claims_of(entry.incoming.pod) is not None


def _named_claims(pod: Pod) -> frozenset[str]:
    claims = claims_of(pod)
    return claims.named if claims else frozenset()


def is_reshaped(old: Pod, new: Pod) -> bool:
    """Whether a pod's own change could make it fit; its status cannot (docs/kubernetes-behaviour.md K14)."""
    return old.spec != new.spec or old.metadata.labels != new.metadata.labels


def _room_on(snapshot: Snapshot, node: str) -> Helps:
    """Whether a node has room for a pod, worked out once for pods that ask for the same."""
    nodes = snapshot.nodes
    known: dict[tuple[tuple[str, int], ...], bool] = {}

    def has_room(entry: Entry) -> bool:
        """Whether the node has what the pod asks for, reservations and placement aside."""
        fits = known.get(entry.shape)
        if fits is None:
            row = nodes.find(node)
            fits = row is not None and bool(nodes.pod_count[row] < nodes.pod_limit[row])
            for name, amount in entry.shape if fits else ():
                resource = nodes.resources.get(name)
                if resource is None or nodes.allocatable[resource, row] - nodes.used[resource, row] < amount:
                    fits = False
            known[entry.shape] = fits
        return fits

    return has_room


def _reserved(pod: Pod) -> str:
    """The node an unbound pod is nominated to."""
    return "" if pod.spec.node_name else pod.status.nominated_node_name


def _placement(pod: Pod) -> tuple[str, dict[str, str] | None]:
    return pod.spec.node_name, pod.metadata.labels


def _node_facts(node: Node) -> tuple[object, ...]:
    return node.spec, node.status.allocatable, node.metadata.labels
