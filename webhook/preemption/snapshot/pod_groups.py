"""Which pods belong together, and the PodGroups that say more about it (docs/semantics.md D10).

A group is known by who defines it, its namespace and its name. Its members are the pods on nodes that name it, by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod, PodGroup

__all__ = ["GROUP_SOURCES", "NO_GROUP", "GroupKey", "PodGroups", "group_of"]


class GroupKey(NamedTuple):
    """A group of pods: `source` is the row of `GROUP_SOURCES` by which its members name it."""

    source: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.source} {self.namespace}/{self.name}"


NO_GROUP = GroupKey("", "", "")


class GroupSource(NamedTuple):
    """One way in which pods name their group: `name` says which, empty for none."""

    title: str
    name: Callable[[Pod], str]


POD_GROUP = "PodGroup"


def _label(key: str) -> Callable[[Pod], str]:
    return lambda pod: (pod.metadata.labels or {}).get(key, "")


def _annotation(key: str) -> Callable[[Pod], str]:
    return lambda pod: (pod.metadata.annotations or {}).get(key, "")


def _scheduling_group(pod: Pod) -> str:
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return name if isinstance(name, str) else ""


def _leader_worker_set(pod: Pod) -> str:
    """One replica of a LeaderWorkerSet is a group."""
    labels = pod.metadata.labels or {}
    name, index = labels.get("leaderworkerset.sigs.k8s.io/name"), labels.get("leaderworkerset.sigs.k8s.io/group-index")
    return f"{name}-{index}" if name and index else ""


def _indexed_job(pod: Pod) -> str:
    """The Job of a pod that is one of a fixed number."""
    labels = pod.metadata.labels or {}
    indexed = "batch.kubernetes.io/job-completion-index" in labels
    return labels.get("batch.kubernetes.io/job-name", "") if indexed else ""


GROUP_SOURCES = (
    GroupSource(POD_GROUP, _scheduling_group),
    GroupSource("coscheduling PodGroup", _label("scheduling.x-k8s.io/pod-group")),
    GroupSource("Volcano PodGroup", _annotation("scheduling.k8s.io/group-name")),
    GroupSource("Kueue pod group", _label("kueue.x-k8s.io/pod-group-name")),
    GroupSource("LeaderWorkerSet replica", _leader_worker_set),
    GroupSource("JobSet", _label("jobset.sigs.k8s.io/jobset-name")),
    GroupSource("indexed Job", _indexed_job),
)
"""Who defines groups, the first that applies counts."""


def group_of(pod: Pod) -> GroupKey:
    """The group that a pod says it belongs to; NO_GROUP for none."""
    if pod.spec.scheduling_group is None and not pod.metadata.labels and not pod.metadata.annotations:
        return NO_GROUP
    for source in GROUP_SOURCES:
        if name := source.name(pod):
            return GroupKey(source.title, pod.metadata.namespace, name)
    return NO_GROUP


class PodGroups:
    """PodGroups by `namespace/name`, and the members of each group by its id; `version` counts changes of PodGroups."""

    def __init__(self) -> None:
        self.objects: dict[str, PodGroup] = {}
        self.version = 0
        self._members: dict[int, set[int]] = {}
        self._group_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def put(self, group: PodGroup) -> None:
        """Add or update a PodGroup."""
        self.version += 1
        self.objects[f"{group.metadata.namespace}/{group.metadata.name}"] = group

    def remove(self, key: str) -> None:
        """Forget a PodGroup."""
        self.version += 1
        self.objects.pop(key, None)

    def object_of(self, key: GroupKey) -> PodGroup | None:
        """The PodGroup of a group, None if it is of another kind or not known."""
        return self.objects.get(f"{key.namespace}/{key.name}") if key.source == POD_GROUP else None

    def move(self, row: int, group: int) -> None:
        """The pod in this row is a member of the group (id) from now on, of none if that is 0."""
        before = self._group_of.get(row, 0)
        if before == group:
            return
        if before:
            members = self._members[before]
            members.discard(row)
            if not members:
                del self._members[before]
            del self._group_of[row]
        if group:
            self._members.setdefault(group, set()).add(row)
            self._group_of[row] = group

    def members(self, group: int) -> NDArray[np.intp]:
        """The rows of the members on nodes, ascending."""
        return np.array(sorted(self._members.get(group, ())), np.intp)
