"""Which pods belong together, and the PodGroups that say more about it (docs/semantics.md D10).

What a pod says of its group is read as it was when the pod was made (`webhook.policy.model.creation`).

A group is known by who defines it, its namespace and its name. Its members are the pods on nodes that name it, by row.
What a group with a minimum has above it are its members of the highest indices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.model.creation import GROUP_ANNOTATIONS, INDEX_LABELS, at_creation
from webhook.preemption.snapshot.amounts import int32
from webhook.preemption.snapshot.columns import Interner, Ints, Rows, grown, take_out

_LONGEST_NAME = 253
"""Characters that Kubernetes' names have at most: more say nothing, and anybody can write them as an annotation."""


class GroupKey(NamedTuple):
    """A group of pods: `source` is the row of `GROUP_SOURCES` by which its members name it."""

    source: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.source} {self.namespace}/{self.name[:_LONGEST_NAME]}" if self.source else ""


NO_GROUP = GroupKey("", "", "")


class GroupSource(NamedTuple):
    """One way in which pods name their group: by the label `key`, or as `name` says; empty for none.

    Without the key a pod names none; it is empty if the group is named elsewhere.
    """

    title: str
    key: str
    name: Callable[[Pod], str] | None = None


_VOLCANO_NAME, _KUEUE_COUNT, _KUEUE_GROWS = GROUP_ANNOTATIONS
POD_GROUP = "PodGroup"
COSCHEDULING = "coscheduling PodGroup"
VOLCANO = "Volcano PodGroup"
_NUMBER_AT_END = re.compile(r"-(\d{1,18})$", re.ASCII)
_HIGHEST_INDEX = 2**31 - 1
_SHOWN = 5
"""Groups that are named."""


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
    GroupSource(POD_GROUP, "", _scheduling_group),
    GroupSource(COSCHEDULING, "scheduling.x-k8s.io/pod-group"),
    GroupSource(VOLCANO, _VOLCANO_NAME, lambda pod: (pod.metadata.annotations or {}).get(_VOLCANO_NAME, "")),
    GroupSource("Kueue pod group", "kueue.x-k8s.io/pod-group-name"),
    GroupSource("LeaderWorkerSet replica", "leaderworkerset.sigs.k8s.io/name", _leader_worker_set),
    GroupSource("JobSet", "jobset.sigs.k8s.io/jobset-name"),
    GroupSource("indexed Job", "batch.kubernetes.io/job-name", _indexed_job),
)
"""Who defines groups, the first that applies counts."""
_KEYS = frozenset(source.key for source in GROUP_SOURCES)


def group_of(pod: Pod, made: ObjectMeta | None = None) -> GroupKey:
    """The group that a pod names, else NO_GROUP. `made` is its metadata at creation, if known."""
    meta = made or at_creation(pod.metadata)
    named = not (_KEYS.isdisjoint(meta.labels or ()) and _KEYS.isdisjoint(meta.annotations or ()))
    if pod.spec.scheduling_group is None and not named:
        return NO_GROUP
    as_made = Pod(metadata=meta, spec=pod.spec)
    for source in GROUP_SOURCES:
        if name := source.name(as_made) if source.name else (meta.labels or {}).get(source.key, ""):
            return GroupKey(source.title, pod.metadata.namespace, name)
    return NO_GROUP


def index_of(pod: Pod, made: ObjectMeta | None = None) -> int:
    """The number of a pod within its group; 0 if nothing says one. `made` is as for `group_of`."""
    labels = (made or at_creation(pod.metadata)).labels or {}
    for text in (labels.get(key, "") for key in INDEX_LABELS):
        if text.isascii() and text.isdigit():
            return min(int(text[:18]), _HIGHEST_INDEX)
    match = _NUMBER_AT_END.search(pod.metadata.name)
    return min(int(match[1]), _HIGHEST_INDEX) if match else 0


def minimum_said_by(pod: Pod) -> int:
    """How many members the pod says its group has, if all come before one is placed; else 0.

    Kueue lets the pods of a group in together; a group of fast admission grows afterwards.
    """
    annotations = at_creation(pod.metadata).annotations or {}
    text = annotations.get(_KUEUE_COUNT, "")
    grows = annotations.get(_KUEUE_GROWS) == "true"
    return min(int(text[:18]), _HIGHEST_INDEX) if text.isascii() and text.isdigit() and not grows else 0


def with_all_of(groups: Iterable[str]) -> str:
    """What people read after victims' names: the groups that these go with; empty without any."""
    names = list(dict.fromkeys(filter(None, groups)))
    more = f" and {len(names) - _SHOWN} more groups" if len(names) > _SHOWN else ""
    return f", with all of {', '.join(names[:_SHOWN])}{more}" if names else ""


_NOBODY: set[int] = set()


class PodGroups:
    """PodGroups by what their members call them, and the members of each group on nodes by its id, which `ids` has.

    `version` counts changes of PodGroups. After `refresh`, `sizes` has the number of members by the id of the group,
    `highest` their highest priority, and `above` the rows of the members that their groups can spare, ascending.
    """

    def __init__(self, ids: Interner[GroupKey, GroupKey]) -> None:
        self._ids = ids
        self.objects: dict[GroupKey, PodGroup] = {}
        self.version = 0
        self.sizes: Ints = np.zeros(1, np.int64)
        self.highest: Ints = np.zeros(1, np.int64)
        self.above: Rows = np.zeros(0, np.intp)
        self._changed: set[int] = set()
        """Ids of groups that are to be looked at again; one that no pod names yet is when its first member comes."""
        self._above: dict[int, list[int]] = {}
        """By id of a group, the members above its minimum, if there are any."""
        self._members: dict[int, set[int]] = {}
        self._group_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def put(self, group: PodGroup, source: str) -> None:
        """Add or update a PodGroup of this source. Raises ClusterError for what is no int32."""
        place = f"podgroup {key_of(group)}"
        int32(group.spec.priority or 0, f"{place}: spec.priority")
        int32(group.minimum, f"{place}: its minimum")
        key = GroupKey(source, group.metadata.namespace, group.metadata.name)
        self.objects[key] = group
        self._note_changed(key)

    def remove(self, key: str, source: str) -> None:
        """Forget the PodGroup `namespace/name` of this source."""
        namespace, _, name = key.rpartition("/")
        self.objects.pop(GroupKey(source, namespace, name), None)
        self._note_changed(GroupKey(source, namespace, name))

    def _note_changed(self, key: GroupKey) -> None:
        self.version += 1
        if (id_ := self._ids.find(key)) is not None:
            self._changed.add(id_)

    def move(self, row: int, group: int) -> None:
        """The pod in this row, new or changed, is a member of the group (id), of none if 0."""
        before = self._group_of.get(row, 0)
        self._changed |= {before, group}
        if before == group:
            return
        take_out(self._members, before, row)
        self._group_of.pop(row, None)
        if group:
            self._members.setdefault(group, set()).add(row)
            self._group_of[row] = group

    def members(self, group: int) -> Rows:
        """The rows of the members on nodes, ascending."""
        return np.array(sorted(self._members.get(group, ())), np.intp)

    def refresh(self, priority: Ints, spare: Callable[[set[int], int], list[int]]) -> None:
        """Look again at groups that have changed, for `sizes`, `highest` and `above`.

        `priority` has those of the pods by row, and `spare` says which of the members are beyond a minimum.
        """
        if not self._changed:
            return
        if len(self.sizes) < self._ids.rows:
            self.sizes = grown(self.sizes, self._ids.capacity)
            self.highest = grown(self.highest, self._ids.capacity)
        spared = False
        for group in self._changed:
            members = self._members.get(group, _NOBODY)
            self.sizes[group] = len(members)
            self.highest[group] = priority[list(members)].max() if members else 0
            spared |= self._above.pop(group, None) is not None
            key = self._ids.values[group]
            known = self.objects.get(key) if key else None
            # Who says himself that he goes whole spares nobody
            if known is not None and not known.goes_whole and len(members) > known.minimum > 0:
                self._above[group] = spare(members, known.minimum)
                spared = True
        if spared:
            self.above = np.array(sorted(row for rows in self._above.values() for row in rows), np.intp)
        self._changed = set()
