"""Which pods belong together, and the PodGroups that say more about it (docs/semantics.md D10).

What a pod says of its group is read as of its creation (`webhook.policy.model.creation`). A
group is known by who defines it, its namespace and its name. Its members are the pods on
nodes that name it. Above its minimum, if any, are those of the highest indices.
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
"""Characters of Kubernetes' longest names; an annotation may have more."""


class GroupKey(NamedTuple):
    """A group of pods: its members name it by the row `source` of `GROUP_SOURCES`."""

    source: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.source} {self.namespace}/{self.name[:_LONGEST_NAME]}" if self.source else ""


NO_GROUP = GroupKey("", "", "")


def _label(pod: Pod, key: str) -> str:
    return (pod.metadata.labels or {}).get(key, "")


class GroupSource(NamedTuple):
    """How pods can name their group: by the label `key`, or as `name` says; empty for none.

    Without the key a pod names none, unless it is empty: then the group is named elsewhere.
    """

    title: str
    key: str
    name: Callable[[Pod, str], str] = _label


_VOLCANO_NAME, _KUEUE_COUNT, _KUEUE_GROWS = GROUP_ANNOTATIONS
POD_GROUP = "PodGroup"
COSCHEDULING = "coscheduling PodGroup"
VOLCANO = "Volcano PodGroup"
_NUMBER_AT_END = re.compile(r"-(\d{1,18})$", re.ASCII)
_HIGHEST_INDEX = 2**31 - 1
_SHOWN = 5
"""Groups that are named."""


def _scheduling_group(pod: Pod, _: str) -> str:
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return name if isinstance(name, str) else ""


def _annotation(pod: Pod, key: str) -> str:
    return (pod.metadata.annotations or {}).get(key, "")


def _leader_worker_set(pod: Pod, key: str) -> str:
    """One replica of a LeaderWorkerSet is a group."""
    name, index = _label(pod, key), _label(pod, "leaderworkerset.sigs.k8s.io/group-index")
    return f"{name}-{index}" if name and index else ""


def _indexed_job(pod: Pod, key: str) -> str:
    """The Job of a pod that is one of a fixed number."""
    indexed = "batch.kubernetes.io/job-completion-index" in (pod.metadata.labels or ())
    return _label(pod, key) if indexed else ""


GROUP_SOURCES = (
    GroupSource(POD_GROUP, "", _scheduling_group),
    GroupSource(COSCHEDULING, "scheduling.x-k8s.io/pod-group"),
    GroupSource(VOLCANO, _VOLCANO_NAME, _annotation),
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
    unnamed = _KEYS.isdisjoint(meta.labels or ()) and _KEYS.isdisjoint(meta.annotations or ())
    if unnamed and pod.spec.scheduling_group is None:
        return NO_GROUP
    as_made = Pod(metadata=meta, spec=pod.spec)
    for source in GROUP_SOURCES:
        if name := source.name(as_made, source.key):
            return GroupKey(source.title, pod.metadata.namespace, name)
    return NO_GROUP


def index_of(pod: Pod, made: ObjectMeta | None = None) -> int:
    """The number of a pod within its group, 0 if it has none. `made` is as for `group_of`."""
    labels = (made or at_creation(pod.metadata)).labels or {}
    for key in INDEX_LABELS:
        number = _number(labels.get(key, ""))
        if number is not None:
            return number
    match = _NUMBER_AT_END.search(pod.metadata.name)
    return (match and _number(match[1])) or 0


def minimum_said_by(pod: Pod) -> int:
    """How many members the pod says its group has, if all come before one is placed; else 0.

    Kueue lets the pods of a group in together; a group of fast admission grows afterwards.
    """
    annotations = at_creation(pod.metadata).annotations or {}
    if annotations.get(_KUEUE_GROWS) == "true":
        return 0
    return _number(annotations.get(_KUEUE_COUNT, "")) or 0


def _number(text: str) -> int | None:
    """The text's number, at most an int32's; None for other text."""
    return min(int(text[:18]), _HIGHEST_INDEX) if text.isascii() and text.isdigit() else None


def with_all_of(groups: Iterable[str]) -> str:
    """What people read after victims' names: the groups these go with; empty for none."""
    names = list(dict.fromkeys(filter(None, groups)))
    more = f" and {len(names) - _SHOWN} more groups" if len(names) > _SHOWN else ""
    return f", with all of {', '.join(names[:_SHOWN])}{more}" if names else ""


_NOBODY: set[int] = set()


class PodGroups:
    """PodGroups by what their members call them, and groups' members on nodes by id, of `ids`.

    `version` counts changes of PodGroups. `refresh` tells by id the number of members (`sizes`),
    their `highest` priority, and the rows of those that groups can spare (`above`, ascending).
    """

    def __init__(self, ids: Interner[GroupKey, GroupKey]) -> None:
        self._ids = ids
        self.objects: dict[GroupKey, PodGroup] = {}
        self.version = 0
        self.sizes = np.zeros(1, np.int64)
        self.highest = np.zeros(1, np.int64)
        self.above = np.zeros(0, np.intp)
        self._changed: set[int] = set()
        """Ids of groups to look at again; one without pods is when its first member comes."""
        self._above: dict[int, list[int]] = {}
        """By id of a group, the members above its minimum, if any."""
        self._members: dict[int, set[int]] = {}

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
        group = GroupKey(source, namespace, name)
        self.objects.pop(group, None)
        self._note_changed(group)

    def _note_changed(self, key: GroupKey) -> None:
        self.version += 1
        id_ = self._ids.find(key)
        if id_ is not None:
            self._changed.add(id_)

    def join(self, row: int, group: int) -> None:
        """The pod in this row, on a node, is a member of the group (id), of none if 0."""
        self._changed.add(group)
        if group:
            self._members.setdefault(group, set()).add(row)

    def leave(self, row: int, group: int) -> None:
        """The pod in this row is no member of the group."""
        self._changed.add(group)
        take_out(self._members, group, row)

    def members(self, group: int) -> Rows:
        """The rows of the members on nodes, ascending."""
        return np.array(sorted(self._members.get(group, ())), np.intp)

    def refresh(self, priority: Ints, spare: Callable[[set[int], int], list[int]]) -> None:
        """Look again at changed groups, for `sizes`, `highest` and `above`.

        `priority` has those of the pods by row; `spare` says which members are beyond a minimum.
        """
        if len(self.sizes) < self._ids.rows:  # also by groups with nobody on a node yet
            self.sizes = grown(self.sizes, self._ids.capacity)
            self.highest = grown(self.highest, self._ids.capacity)
        if not self._changed:
            return
        spared = False
        for group in self._changed:
            members = self._members.get(group, _NOBODY)
            self.sizes[group] = len(members)
            self.highest[group] = priority[list(members)].max() if members else 0
            spared |= self._above.pop(group, None) is not None
            key = self._ids.values[group]
            known = self.objects.get(key) if key else None
            # A group that says that it goes whole spares nobody
            if known is not None and not known.goes_whole and len(members) > known.minimum > 0:
                self._above[group] = spare(members, known.minimum)
                spared = True
        if spared:
            self.above = np.array(sorted(row for rows in self._above.values() for row in rows), np.intp)
        self._changed = set()
