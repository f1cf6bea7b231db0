"""The log of evictions: what was evicted, when and for whom, and what plans under way intend to evict.

Rates, cycles, costs and what people are told are read off it. An eviction is known by the uid of its pod, so whoever
notes it again notes nothing new. Time is an argument, in monotonic seconds, so that a jump of the system clock opens no
window.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from webhook.kube.bounded import Newest, bounded
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.limits import LabelRate, Limits, Rate, WorkloadLimit

AnyRate = Rate | LabelRate | WorkloadLimit

MOST_WORKLOADS = 10_000
"""Beyond that the one that was not evicted for the longest time is forgotten."""
MOST_EVICTIONS = 64
"""Evictions of one workload that are remembered beyond the windows of the other rates, the latest."""
KEPT_SECONDS = 30 * 86_400.0
"""How long an eviction of a workload is remembered."""
BARE = "Pod/"
"""What the name of a pod without an owner begins with."""
_LEAST_HORIZON = 3600.0
"""Seconds, at least, for which all of an eviction is remembered."""
_MOST_OLDER = 16_000
"""Evictions beyond the horizon that are written: more than have room, 20 to 30 bytes each."""
_MOST_UIDS = 20_000
"""Pods that went last by whose uids a second report is known."""
_SHOWN_LATE = 60.0
"""Seconds for which a watch may still show a pod that was asked to leave, as if it had not been."""
_MOST_EVICTORS = 1000
_WORKLOAD = "workload"
"""The only kind of names that counts beyond the horizon."""


class PodEviction(NamedTuple):
    """The eviction of a pod: whose it is, where, with which of the labels that rates count by, and for whom.

    `workload` and `preemptor` are as `name_of` has them; the latter is empty if nobody knows.
    """

    workload: str
    node: str
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    preemptor: str = ""

    @property
    def is_bare(self) -> bool:
        """Whether it is that of a pod without an owner."""
        return self.workload.startswith(BARE)

    @property
    def names(self) -> list[tuple[str, str]]:
        """Everything in which it counts, each with what it is (`rates_of`)."""
        owners = () if self.is_bare else (("owner", self.workload), (_WORKLOAD, self.workload))
        labels = ((label(key), value) for key, value in self.labels)
        return [*owners, ("namespace", self.namespace), *labels, ("node", self.node), ("cluster", "")]


class LoggedEviction(NamedTuple):
    """An eviction that has happened `at`, and for how many seconds nobody led since: for these no window ran."""

    at: float
    unled: float
    eviction: PodEviction


class Remaining(NamedTuple):
    """How many evictions a policy's rates still allow now, by rate and name; who is not named has the whole rate.

    The name of the cluster is empty, that of a label is its value.

    `until` is when the first eviction that counts leaves its window, None if none counts; `again` when the first of the
    rates that are used up leaves room, None if none is. Both are infinite if that depends on a plan under way.
    """

    left: dict[str, dict[str, int]]
    until: float | None
    again: float | None

    def used_up(self, rate: str) -> list[str]:
        """Who has no evictions left by this rate."""
        return [name for name, left in self.left.get(rate, {}).items() if left <= 0]

    @property
    def rates_used_up(self) -> str:
        """The rates that are used up for somebody, as the policy names them."""
        return " or ".join(f"limits.{rate}" for rate in self.left if self.used_up(rate))


class EvictionLog:
    """The evictions that have happened, those that plans intend, and the plans that are written on pods."""

    def __init__(self) -> None:
        self._label_keys: set[str] = set()
        self._horizon = _LEAST_HORIZON
        self.version = 0
        """Counts what the next leader has to know before anybody is asked."""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._recent: deque[LoggedEviction] = deque()
        """What a rate may still count, the oldest first."""
        self._older: deque[LoggedEviction] = deque(maxlen=_MOST_OLDER)
        """What only workloads count, the oldest first."""
        self._past: defaultdict[str, OrderedDict[str, deque[LoggedEviction]]] = defaultdict(OrderedDict)
        """By what counts and its name, in the order of the last eviction of each."""
        self._past[_WORKLOAD] = Newest(MOST_WORKLOADS)
        self._intended: dict[str, tuple[PodEviction, set[str]]] = {}
        """By uid, with the ids of the plans that intend it."""
        self._intended_names: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._uids: Newest[str, float] = Newest(_MOST_UIDS)
        """When pods were asked to leave."""
        self.plans: dict[str, tuple[str, ...]] = {}
        """By the uid of a preemptor, with the digests of what is written of its plan on it."""
        self.earlier_plans: dict[str, tuple[str, ...]] = {}
        """The same of the leader before, as long as they have not been found."""

    # What is intended, and what happens.

    def eviction_of(self, pod: Pod, preemptor: str = "") -> PodEviction:
        """The eviction of this pod for that workload or bare pod."""
        made = at_creation(pod.metadata).labels or {}
        labels = tuple((key, bounded(made[key])) for key in sorted(self._label_keys) if key in made)
        return PodEviction(name_of(pod), pod.spec.node_name, pod.metadata.namespace, labels, preemptor)

    def intend(self, plan: str, evictions: Mapping[str, PodEviction]) -> None:
        """A plan is going to evict these pods, by uid: until that happens it counts in every window."""
        for uid, eviction in evictions.items():
            if uid in self._uids:
                continue
            if uid not in self._intended:
                self._intended[uid] = eviction, set()
                for kind, name in eviction.names:
                    self._intended_names[kind][name] += 1
            self._intended[uid][1].add(plan)
        self.version += 1

    def give_back(self, plan: str, uids: Iterable[str]) -> None:
        """A plan is not going to evict these pods after all."""
        for uid in uids:
            if uid in self._intended:
                plans = self._intended[uid][1]
                plans.discard(plan)
                if not plans:
                    self._take(uid)

    def asked(self, uid: str, eviction: PodEviction, now: float) -> None:
        """A pod was asked to leave; what was intended of it is known better than what is seen now."""
        if uid in self._intended:
            eviction = self._take(uid)
        if uid not in self._uids:
            self._uids[uid] = now
            self.note(eviction, now)

    def have_gone(self, uids: Iterable[str], now: float) -> None:
        """The evictions of these pods are noted."""
        for uid in uids:
            self._uids[uid] = now

    def note(self, eviction: PodEviction, at: float, unled: float = 0.0) -> None:
        """An eviction has happened."""
        self._forget(at)
        past = LoggedEviction(at, unled, eviction)
        self._recent.append(past)
        for kind, name in eviction.names:
            known = self._past[kind]
            if name not in known:
                known[name] = deque(maxlen=MOST_EVICTIONS if kind == _WORKLOAD else None)
            known[name].append(past)
            known.move_to_end(name)

    def _take(self, uid: str) -> PodEviction:
        """It is not intended any more."""
        eviction, _ = self._intended.pop(uid)
        for kind, name in eviction.names:
            self._intended_names[kind][name] -= 1
            if not self._intended_names[kind][name]:
                del self._intended_names[kind][name]
        return eviction

    def _forget(self, now: float) -> None:
        """What is beyond the horizon counts for workloads alone."""
        while self._recent and self._recent[0].at + self._horizon <= now:
            past = self._recent.popleft()
            for kind, name in past.eviction.names:
                if kind != _WORKLOAD:
                    self._past[kind][name].popleft()
                    if not self._past[kind][name]:
                        del self._past[kind][name]
                elif past in self._past[kind].get(name, ()):
                    short = PodEviction(name, "", preemptor=past.eviction.preemptor)
                    self._older.append(past._replace(eviction=short))

    def believe(self, preemptor: str, digest: str) -> None:
        """A text with this digest is going to be written of a plan on the pod of this uid."""
        self.plans[preemptor] = (*self.plans.get(preemptor, ()), digest)
        self.version += 1

    def is_of_leader_before(self, preemptor: str, digest: str) -> bool:
        """Whether the leader before has written a text with this digest on the pod: only the first one who asks."""
        if digest not in self.earlier_plans.get(preemptor, ()):
            return False
        self.plans[preemptor] = self.earlier_plans.pop(preemptor)
        return True

    # What the rates leave.

    def remember(self, limits: Limits) -> None:
        """Keep evictions for as long as these limits ask for them."""
        self._horizon = max([self._horizon, *(rate.window for rate in limits.rates.values())])
        if limits.per_label is not None:
            self._label_keys.add(limits.per_label.label)

    def remaining(self, limits: Limits, now: float) -> Remaining:
        """What the rates still allow."""
        self.remember(limits)
        left, ends, again = dict[str, dict[str, int]](), list[float](), list[float]()
        for field, kind, rate in rates_of(limits):
            times = self._times(kind, rate.window, now)
            left[field] = {name: rate.evictions - len(recent) for name, recent in times.items()}
            ends += [recent[0] + rate.window for recent in times.values()]
            full = (recent for recent in times.values() if len(recent) >= rate.evictions)
            again += [recent[-rate.evictions] + rate.window for recent in full]
        return Remaining(left, min(ends, default=None), min(again, default=None))

    def overdrawn(self, limits: Limits, uids: Iterable[str], now: float, *, since: float = -math.inf) -> str:
        """Which rate the intended evictions of these pods go beyond, by the limits of now; empty if none.

        Beside what is intended, evictions count that happened after `since`.
        """
        names = {name for uid in uids if uid in self._intended for name in self._intended[uid][0].names}
        for field, kind, rate in rates_of(limits):
            window = min(rate.window, now - since)
            for _, name in (known for known in names if known[0] == kind):
                if self._count(kind, name, window, now) > rate.evictions:
                    return f"limits.{field} does not allow so many evictions any more"
        return ""

    def _count(self, kind: str, name: str, window: float, now: float) -> int:
        """How many evictions count for this name, those that are intended included."""
        happened = takewhile(lambda row: row.at + window > now, reversed(self._past[kind].get(name, ())))
        return self._intended_names[kind][name] + sum(1 for _ in happened)

    def _times(self, kind: str, window: float, now: float) -> dict[str, list[float]]:
        """When the evictions within the window were, by each name of this kind in which some count.

        The oldest comes first; those that are intended are in an infinite future.
        """
        times = {
            name: [row.at for row in rows if row.at + window > now] for name, rows in self._within(kind, window, now)
        }
        for name, count in self._intended_names[kind].items():
            times.setdefault(name, []).extend([math.inf] * count)
        return times

    def _within(self, kind: str, window: float, now: float) -> Iterator[tuple[str, deque[LoggedEviction]]]:
        """The names of a kind with evictions within the window, the one that was evicted last first."""
        for name, rows in reversed(self._past[kind].items()):
            if rows[-1].at + window <= now:
                return
            yield name, rows

    # How often each workload was evicted, and for whom. Names are `Kind/namespace/name`.

    def of(self, workload: str, now: float, window: float = KEPT_SECONDS) -> list[LoggedEviction]:
        """The evictions of a workload within the window, the oldest first."""
        return [row for row in self._past[_WORKLOAD].get(workload, ()) if row.at + window > now]

    def counts(self, window: float, now: float) -> dict[str, int]:
        """How often each workload was evicted within the window; those that were not are left out."""
        counts: dict[str, int] = {}
        for name, rows in self._within(_WORKLOAD, window, now):
            inside = rows[0].at + window > now
            counts[name] = len(rows) if inside else sum(row.at + window > now for row in rows)
        return counts

    def evictors(self, workload: str, window: float, now: float) -> dict[str, str]:
        """The workloads for which pods of this one were evicted within the window, and so on from each of them.

        The nearest to this one come first, a thousand or a few more at most. Each has the workload that was evicted
        for it. This workload is not among them.
        """
        evictors: dict[str, str] = {workload: ""}
        for evicted in (queue := [workload]):
            for row in self.of(evicted, now, window) if len(evictors) <= _MOST_EVICTORS else ():
                if (preemptor := row.eviction.preemptor) and preemptor not in evictors:
                    evictors[preemptor] = evicted
                    queue.append(preemptor)
        del evictors[workload]
        return evictors

    def most_evicted(self, count: int, window: float, now: float) -> list[tuple[str, int]]:
        """The workloads that were evicted most often within the window, and how often; equal ones by name."""
        return heapq.nsmallest(count, self.counts(window, now).items(), key=lambda row: (-row[1], row[0]))

    # All of it.

    def past(self) -> Iterator[LoggedEviction]:
        """What has happened, the newest first."""
        yield from reversed(self._recent)
        yield from reversed(self._older)

    def intended(self) -> dict[str, PodEviction]:
        """What plans have yet to ask for, by the uid of the pod."""
        return {uid: eviction for uid, (eviction, _) in self._intended.items()}

    def uids_since(self, now: float) -> list[str]:
        """The pods that were asked to leave so lately that they may seem not to have been."""
        return list(takewhile(lambda uid: self._uids[uid] > now - _SHOWN_LATE, reversed(self._uids)))


def name_of(pod: Pod) -> str:
    """By what name the log knows whose a pod is: its workload, or itself if it has none."""
    return workload_of(pod) or f"{BARE}{key_of(pod)}"


def label(key: str) -> str:
    """The kind of names that the values of a label are."""
    return f"label {key}"


def rates_of(limits: Limits) -> Iterator[tuple[str, str, AnyRate]]:
    """The rates that are set: the field's name, the kind of names that it counts by, and the rate.

    A rate for what lies within another one's comes first.
    """
    for field, kind, rate in (
        ("perOwner", "owner", limits.per_owner),
        ("perWorkload", _WORKLOAD, limits.per_workload),
        ("perNamespace", "namespace", limits.per_namespace),
        ("perLabel", label(limits.per_label.label) if limits.per_label else "", limits.per_label),
        ("perNode", "node", limits.per_node),
        ("perCluster", "cluster", limits.per_cluster),
    ):
        if rate is not None:
            yield field, kind, rate
