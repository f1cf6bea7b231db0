"""How many members of a group have room together if every other pod is gone (docs/semantics.md D12).

It errs towards room: what other pods or objects could change is not held against a member, such as pod affinity,
topology spread, volumes and claims of devices. So what has no room here never gets any on these nodes.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from webhook.inspection.cluster_findings import ClusterFinding, finding
from webhook.inspection.observed import Observed
from webhook.kube.instants import epoch_or
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass
from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.kube.objects.pod import Pod, PodStatus
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.selectors import label_matcher
from webhook.preemption.gangs.decision import decide_gang
from webhook.preemption.gangs.gang import Gang
from webhook.preemption.gangs.placement import shapes_of
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_NO_NODES = np.zeros(0, np.intp)


def is_ready(node: Node) -> bool:
    """Whether nothing says that the node is not ready."""
    return all(condition.status == "True" for condition in node.status.conditions or () if condition.type == "Ready")


def room_for(
    snapshot: Snapshot, members: Sequence[Pod], group: PodGroup | None, classes: Collection[DeviceClass]
) -> int:
    """How many of the members, bound ones included, have room together in an empty cluster, wherever they are now.

    Members that are alike are counted exactly, kinds of them each for itself. Resources that device classes provide
    count as there. Raises ClusterError for a member that cannot be read.
    """
    keys = group.topology_keys if group else ()
    provided = {device_class.spec.extended_resource_name for device_class in classes}
    gang = Gang(GroupKey("", "", ""), 1, 0, keys, tuple(map(_by_itself, members)), 0, _NO_NODES)
    most = 0
    for shape in shapes_of(gang, snapshot, by_labels=True):
        asked = compile_pod(shape.pods[0]).amounts
        if any(name in provided or name.startswith(_IMPLICIT) for name in asked):
            most += len(shape.pods)
            continue
        most += _most(snapshot, gang._replace(waiting=shape.pods))
    return most


def _most(snapshot: Snapshot, gang: Gang) -> int:
    """The largest number of these members that can be placed together."""

    def lack_room(members: int) -> bool:
        return not decide_gang(snapshot, gang._replace(minimum=members), kubernetes_rules(), 0.0).placements

    numbers = range(1, len(gang.waiting) + 1)
    return bisect_left(numbers, True, key=lack_room) if lack_room(len(numbers)) else len(numbers)


def _by_itself(pod: Pod) -> Pod:
    """The pod without a node, and without what depends on anything but nodes and pods like it."""
    spec, affinity = pod.spec, pod.spec.affinity
    if affinity is not None:
        apart = affinity.pod_anti_affinity
        terms = apart.required_during_scheduling_ignored_during_execution if apart else None
        kept = apart if terms and len(terms) == 1 else None  # of several it is not known whether the best was found
        affinity = msgspec.structs.replace(affinity, pod_affinity=None, pod_anti_affinity=kept)
    nothing = dict.fromkeys(
        ("preemption_policy", "scheduling_gates", "topology_spread_constraints", "volumes", "resource_claims")
    )
    spec = msgspec.structs.replace(spec, node_name="", affinity=affinity, priority=0, **nothing)
    return msgspec.structs.replace(pod, spec=spec, status=PodStatus())


_LONG = 600.0
"""Seconds that a controller may take to make the pods of a group."""


def too_small(observed: Observed) -> Iterator[ClusterFinding]:
    """Groups of which pods wait, and that have had fewer pods than their minimum for long."""
    for key, pods in observed.members.items():
        minimum, waiting = observed.minima[key], [pod for pod in pods if not pod.spec.node_name]
        made = (epoch_or(pod.metadata.creation_timestamp, observed.now) for pod in waiting)
        seconds = observed.now - min(made, default=observed.now)
        if len(pods) < minimum and seconds >= _LONG:
            told: dict[str, Any] = {"group": str(key), "minimum": minimum, "pods": pods}
            yield finding("groups-too-small.group", minutes=seconds / 60, waiting=waiting, **told)


def without_room(observed: Observed) -> Iterator[ClusterFinding]:
    """Groups whose minimum can never be met: their pods have no room together even if every other pod is gone."""
    waiting = {key: pods for key, pods in observed.members.items() if not all(pod.spec.node_name for pod in pods)}
    if not waiting:
        return
    snapshot, ready = Snapshot(), list(filter(is_ready, observed.nodes))
    for node in ready:
        with suppress(ClusterError):
            snapshot.put(NODES, node)
    for key, pods in waiting.items():
        minimum, group = observed.minima[key], observed.pod_groups.get(key)
        needed = min(minimum, len(pods))
        try:
            room = room_for(snapshot, pods, group, observed.device_classes)
        except ClusterError:
            continue  # kube-scheduler cannot read it either, and says so
        if room < needed:
            together = " in one domain of its topology" if group is not None and group.topology_keys else ""
            told: dict[str, Any] = {"group": str(key), "minimum": minimum, "pods": pods, "together": together}
            yield finding("groups-without-room.nodes", room=room, missing=needed - room, ready=ready, **told)


Json = Mapping[str, Any]


def by_class(observed: Observed) -> Iterator[ClusterFinding]:
    """Quotas by class that do not count a twin as the class whose pods it takes."""
    twins = {pair for policy in observed.policies.preemption for pair in policy.preemptors.twins.items()}
    for quota in observed.objects["resourcequotas"]:
        namespace, spec = quota["metadata"].get("namespace"), quota.get("spec") or {}
        rows = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
        rows += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
        # A quota counts the pods that are in all its scopes
        by_name = [row for row in rows if row.get("scopeName") == "PriorityClass"]
        for original, twin in sorted(twins) if namespace in observed.reach else ():
            if all(_names(row, original) == _names(row, twin) for row in by_name):
                continue
            counted = all(_names(row, original) for row in by_name)
            own, twins_own = ("counts", "does not count") if counted else ("does not count", "counts")
            key = f"{namespace}/{quota['metadata']['name']}"
            yield finding(
                "quotas-by-class.quota", quota=key, own=own, original=original, twins_own=twins_own, twin=twin
            )


def _names(row: Json, class_name: str) -> bool:
    """Whether pods of this class are in a scope by class; its operators are those of label selectors."""
    requirement = Requirement(key="class", operator=row.get("operator") or "", values=row.get("values"))
    matches = label_matcher(LabelSelector(match_expressions=[requirement]))
    return matches({"class": class_name} if class_name else {})
