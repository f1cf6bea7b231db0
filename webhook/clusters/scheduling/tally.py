"""The pods on nodes as scores ask about them: labels, preferred company, and what pods without requests count with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from webhook.kube.objects.meta import LabelSelector
from webhook.kube.objects.pod import Container, Pod, ResourceRequirements
from webhook.kube.pods import is_terminal
from webhook.kube.selectors import Labels, Matcher, SelectorError
from webhook.preemption.snapshot.amounts import CPU, MEMORY, requests
from webhook.preemption.snapshot.columns import take_out
from webhook.preemption.snapshot.pod_info import Term

T = TypeVar("T")
_DEFAULTS = {CPU: "100m", MEMORY: str(200 * 1024 * 1024)}
"""What a container without a request counts with (`schedutil.DefaultMilliCPURequest`, `DefaultMemoryRequest`)."""
_HARD_WEIGHT = 1
"""What the required affinity of a pod that is there weighs for others (`hardPodAffinityWeight`)."""

_REMEMBERED = 4096

Counts = dict[str, int]
"""Node to a number of pods."""


@dataclass(frozen=True, slots=True)
class Preference:
    """A term and what a match is worth; below 0 for anti-affinity."""

    term: Term
    weight: int
    labels: Labels
    """What the term's selector asks for by equality: pods without these labels are none of its."""


@dataclass(slots=True)
class _Alike(Generic[T]):
    """Pods of one namespace that have the same labels, or the same preferences, and how many are on each node."""

    common: T
    counts: Counts = field(default_factory=dict)

    def add(self, node: str, change: int) -> bool:
        """Count one more (1) or one less (-1) on a node; whether any are left."""
        self.counts[node] = self.counts.get(node, 0) + change
        if not self.counts[node]:
            del self.counts[node]
        return bool(self.counts)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one pod was counted as, so that just that can be taken back."""

    node: str
    labels: bytes
    """Empty for a pod that is leaving: topology spread counts it no more."""
    wishes: tuple[str, bytes] | None
    more: tuple[int, int]


class Tally:
    """Kept current by `put` and `drop`; pods without a node count nowhere."""

    def __init__(self) -> None:
        self.more: dict[str, list[int]] = {}
        """Node to the millicores and bytes by which its pods' defaults exceed what they ask for."""
        self._alike: dict[str, dict[tuple[str, str] | None, dict[bytes, _Alike[Labels]]]] = {}
        """By namespace, and by label and value, the groups of pods with equal labels; those of None are all."""
        self._wishes: dict[tuple[str, bytes], _Alike[list[Preference]]] = {}
        self._met: dict[bytes, list[tuple[Preference, Counts]]] = {}
        self._pods: dict[str, _Taken] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Count a pod as it is now. Raises ClusterError for amounts that cannot be read."""
        self.drop(key)
        meta, node = pod.metadata, pod.spec.node_name
        if not node or is_terminal(pod):
            return
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        more = (0, 0)
        if not all(map(_is_complete, containers)):
            asked, counted = requests(pod), nonzero_requests(pod)
            more = counted.get(CPU, 0) - asked.get(CPU, 0), counted.get(MEMORY, 0) - asked.get(MEMORY, 0)
        labels = b"" if meta.deletion_timestamp else msgspec.json.encode(meta.labels or {}, order="sorted")
        taken = self._pods[key] = _Taken(node, labels, _wishes_key(pod), more)
        if labels:
            groups = self._alike.setdefault(meta.namespace, {None: {}})
            alike = groups[None].get(labels)
            if alike is None:
                alike = _Alike(meta.labels or {})
                for item in (None, *alike.common.items()):
                    groups.setdefault(item, {})[labels] = alike
            alike.add(node, 1)
        if taken.wishes is not None:
            wishes = self._wishes.get(taken.wishes)
            if wishes is None:
                wishes = self._wishes[taken.wishes] = _Alike(preferences_of(pod, incoming=False))
                self._met.clear()
            wishes.add(node, 1)
        self._need_more(node, *more)

    def drop(self, key: str) -> None:
        """Count a pod no more."""
        taken = self._pods.pop(key, None)
        if taken is None:
            return
        if taken.labels:
            groups = self._alike[key.partition("/")[0]]
            alike = groups[None][taken.labels]
            if not alike.add(taken.node, -1):
                for item in alike.common.items():
                    take_out(groups, item, taken.labels)
                del groups[None][taken.labels]
        if taken.wishes is not None and not self._wishes[taken.wishes].add(taken.node, -1):
            del self._wishes[taken.wishes]
            self._met.clear()
        self._need_more(taken.node, -taken.more[0], -taken.more[1])

    def _need_more(self, node: str, cpu: int, memory: int) -> None:
        if cpu or memory:
            more = self.more.setdefault(node, [0, 0])
            more[0] += cpu
            more[1] += memory
            if not any(more):
                del self.more[node]

    def matching(self, namespace: str, labels: Labels, matches: Matcher) -> Iterator[Counts]:
        """The counts of the pods of a namespace that match and stay; all that match have these `labels`."""
        for alike in self._with(namespace, labels):
            if matches(alike.common):
                yield alike.counts

    def selected(self, preference: Preference, labels_of: Callable[[str], Labels]) -> Iterator[Counts]:
        """The counts of the pods that a preference is about; `labels_of` gives a namespace's labels."""
        for namespace in self._alike:
            of_namespace = labels_of(namespace)
            for alike in self._with(namespace, preference.labels):
                if preference.term.selects(namespace, alike.common, of_namespace):
                    yield alike.counts

    def wishing(self, namespace: str, labels: Labels, of_namespace: Labels) -> list[tuple[Preference, Counts]]:
        """The preferences of pods on nodes that a new pod meets, with how many pods hold them on each node.

        The answer is remembered until pods with other preferences come, or the last of a kind goes.
        """
        if not self._wishes:
            return []
        key = msgspec.json.encode((namespace, labels, of_namespace), order="sorted")
        met = self._met.get(key)
        if met is None:
            if len(self._met) >= _REMEMBERED:
                self._met.clear()
            met = self._met[key] = [
                (preference, wishes.counts)
                for wishes in self._wishes.values()
                for preference in wishes.common
                if preference.term.selects(namespace, labels, of_namespace)
            ]
        return met

    def _with(self, namespace: str, labels: Labels) -> Collection[_Alike[Labels]]:
        """Groups of a namespace among which are all that have these labels: those of the rarest of them."""
        groups = self._alike.get(namespace, {})
        return min((groups.get(item, {}) for item in labels.items() or (None,)), key=len).values()


def preferences_of(pod: Pod, *, incoming: bool) -> list[Preference]:
    """The pod's preferred terms; of a pod that is there the required affinity as well. None if one is unreadable."""
    affinity, meta = pod.spec.affinity, pod.metadata
    if affinity is None:
        return []
    terms = [
        (row.pod_affinity_term, sign * row.weight)
        for of, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1))
        for row in (of.preferred_during_scheduling_ignored_during_execution or () if of else ())
    ]
    if affinity.pod_affinity and not incoming:
        required = affinity.pod_affinity.required_during_scheduling_ignored_during_execution or ()
        terms += [(term, _HARD_WEIGHT) for term in required]
    try:
        return [
            Preference(Term(term, meta.namespace, incoming=incoming), weight, asked_by(term.label_selector))
            for term, weight in terms
        ]
    except SelectorError:
        return []


def asked_by(selector: LabelSelector | None) -> Labels:
    """The labels that a selector asks for by equality."""
    return (selector.match_labels if selector else None) or {}


def nonzero_requests(pod: Pod) -> dict[str, int]:
    """What the pod asks for if containers that name no cpu or memory ask for the defaults (`NonZeroRequested`)."""
    replace = msgspec.structs.replace
    containers = [_defaulted(container) for container in pod.spec.containers or ()]
    before = [_defaulted(container) for container in pod.spec.init_containers or ()]
    return requests(replace(pod, spec=replace(pod.spec, containers=containers, init_containers=before or None)))


def _is_complete(container: Container) -> bool:
    asked = (container.resources.requests if container.resources else None) or {}
    return CPU in asked and MEMORY in asked


def _defaulted(container: Container) -> Container:
    if _is_complete(container):
        return container
    resources = container.resources or ResourceRequirements()
    filled = msgspec.structs.replace(resources, requests={**_DEFAULTS, **(resources.requests or {})})
    return msgspec.structs.replace(container, resources=filled)


def _wishes_key(pod: Pod) -> tuple[str, bytes] | None:
    """What pods of equal preferences have in common: namespace and terms."""
    affinity = pod.spec.affinity
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return None
    return pod.metadata.namespace, msgspec.json.encode((affinity.pod_affinity, affinity.pod_anti_affinity))
