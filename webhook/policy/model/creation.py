"""What a pod said when it was made, of what decides about it later: the record `giveway.dev/creation`.

Whoever may patch a pod or its status may change its labels, and most of its annotations, at any time. Policies select
pods by labels, and pods name the group that they go with by labels and annotations. So decisions read these as the pod
was made. giveway writes them on the new pod in an annotation that nobody changes, and whoever changes them later is not
refused. What the record does not tell of is read as it is now: pods that were made without giveway have no record, and
older records do not have a label that a policy selects by since then. `giveway doctor` counts both.
"""

import re
from collections.abc import Callable, Collection, Mapping

import msgspec

from webhook.kube.bounded import bounded_cache
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CREATION, MARK

INDEX_LABELS = (
    "jobset.sigs.k8s.io/job-global-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "kueue.x-k8s.io/pod-group-pod-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels that number the members of a group; the first that is there counts, then the number at the end of the name."""
GROUP_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "kueue.x-k8s.io/pod-group-name",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    *INDEX_LABELS,
)
"""The labels by which pods say which group they belong to, and as which of its members."""
GROUP_ANNOTATIONS = (
    "scheduling.k8s.io/group-name",
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/pod-group-fast-admission",
)
"""The annotations by which pods say which group they belong to and how many it needs."""
NAME = r"^[-A-Za-z0-9._]{1,253}$"
"""What a group may be called. An annotation may say anything; what is no name says nothing, and is not recorded."""

_is_name = re.compile(NAME, re.ASCII).fullmatch


class _Creation(msgspec.Struct, frozen=True):
    """The record: labels and annotations that the pod had, and labels that a policy selects by and it did not have."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    absent: tuple[str, ...] = ()

    @property
    def tells_of(self) -> frozenset[str]:
        """The labels of which the record says what the pod had."""
        return frozenset((*GROUP_LABELS, *self.labels, *self.absent))


_decoder = msgspec.json.Decoder(_Creation)


def labels_recorded(policies: Collection[PreemptionPolicy]) -> tuple[str, ...] | None:
    """The labels recorded beside those of groups, sorted; None if no record is needed."""
    read = frozenset[str]().union(*(policy.labels_read for policy in policies))
    if not read and not any(policy.reads_groups for policy in policies):
        return None
    return tuple(sorted(read - {*GROUP_LABELS, MARK}))


def creation_record(labels: Mapping[str, str], annotations: Mapping[str, str], keys: Collection[str]) -> str:
    """The record for a new pod, compact JSON; `keys` are labels as of `labels_recorded`."""
    had = {key: labels[key] for key in (*GROUP_LABELS, *keys) if key in labels}
    named = {key: annotations[key] for key in GROUP_ANNOTATIONS if _is_name(annotations.get(key, ""))}
    absent = tuple(key for key in keys if key not in labels)
    return msgspec.json.encode(_Creation(had, named, absent)).decode()


def at_creation(meta: ObjectMeta) -> ObjectMeta:
    """The pod's metadata with labels and annotations as they were recorded at creation."""
    made = _recorded(meta.annotations)
    if made is None:
        return meta
    now = meta.labels or {}
    labels = {key: text for key, text in now.items() if key not in made.tells_of} | made.labels
    annotations = dict(meta.annotations or {})
    for key in GROUP_ANNOTATIONS:
        annotations.pop(key, None)
    labels = now if labels == now else labels
    return msgspec.structs.replace(meta, labels=labels, annotations=annotations | made.annotations)


def renamed(record: str, label: Callable[[str], str], annotation: Callable[[str], str]) -> str:
    """The text of a record with other values; empty if it cannot be read."""
    made = _decoded(record)
    if made is None:
        return ""
    labels = {key: label(text) for key, text in made.labels.items()}
    annotations = {key: annotation(text) for key, text in made.annotations.items()}
    return msgspec.json.encode(_Creation(labels, annotations, made.absent)).decode()


def not_recorded(annotations: Mapping[str, str], keys: Collection[str]) -> frozenset[str]:
    """Which of these labels are read as they are now: all that no record tells of."""
    made = _recorded(annotations)
    return frozenset(keys) if made is None else frozenset(keys) - made.tells_of


def _recorded(annotations: Mapping[str, str] | None) -> _Creation | None:
    return _decoded(annotations[CREATION]) if annotations and CREATION in annotations else None


@bounded_cache(4096, 4096)
def _decoded(text: str) -> _Creation | None:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
