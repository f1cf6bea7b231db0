"""The log of evictions: what was evicted and for whom, what plans intend, and what was in vain.

Rates, cycles, costs, back-off and what people are told are read off it. An eviction is known
by the uid of its pod, so it is noted once. Time is an argument, in monotonic seconds, so a
jump of the system clock opens no window.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, NamedTuple

import msgspec

from webhook.kube.backoff import exponential
from webhook.kube.bounded import Newest, bounded
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.limits import LabelRate, Limits, Rate, WorkloadLimit

AnyRate = Rate | LabelRate | WorkloadLimit

MOST_KEPT = 16_000
"""Evictions that are kept beyond what limits ask for, the latest."""
KEPT_SECONDS = 30 * 86_400.0
"""How long an eviction of a workload counts."""
BARE = "Pod/"
"""The beginning of the name of a pod without an owner."""
_MOST_UIDS = 20_000
"""Pods that are known to have been asked, the latest."""
_MOST_EVICTORS = 1000
_REFUSED, _RETURNED = (15.0, 600.0), (60.0, 14_400.0)
"""Seconds, at first and at most, for which a refused pod, or the pods of an owner, stay."""


class PodEviction(NamedTuple):
    """The eviction of a pod: when, whose it is, where, and for whom.

    `at` is infinite until it happens. `workload` and `preemptor` are as `name_of` has them, the
    latter empty if not known. `labels` are those that rates count by. For `unled` seconds
    since then nobody led, and no window ran.
    """

    at: float
    workload: str
    node: str
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    preemptor: str = ""
    unled: float = 0.0

    @property
    def names(self) -> dict[str, str]:
        """Where it counts, by kind of names (`rates_of`); under no owner without one."""
        labels = {label(key): value for key, value in self.labels}
        owner = {} if self.workload.startswith(BARE) else {"owner": self.workload}
        return {"cluster": "", "namespace": self.namespace, "node": self.node, **labels, **owner}


class InVain(NamedTuple):
    """How often evicting was in vain, and until when that excludes, in seconds of some clock."""

    times: Annotated[int, msgspec.Meta(ge=1)]
    until: float


class Remaining(NamedTuple):
    """How many evictions a policy's rates allow now, by rate and name; all if a name is missing.

    The name of the cluster is empty, that of a label is its value.

    `until` is when the first eviction leaves its window, None if none counts. `again` is when
    a rate that is used up has room, None if none is. Both are infinite if a plan decides that.
    """

    left: dict[str, dict[str, int]]
    until: float | None
    again: float | None

    def used_up(self, rate: str) -> list[str]:
        """Who has none left by this rate."""
        return [name for name, left in self.left.get(rate, {}).items() if left <= 0]

    @property
    def rates_used_up(self) -> str:
        """The rates used up for somebody, by their fields."""
        return " or ".join(f"limits.{rate}" for rate in self.left if self.used_up(rate))


class EvictionLog:
    """Evictions that happened, those that plans intend, what was in vain, plans on pods."""

    def __init__(self) -> None:
        self._label_keys = set[str]()
        self._horizon = 0.0
        """Seconds for which limits ask for evictions."""
        self.version = 0
        """Counts changes that the next leader must know."""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.version += 1
        self.past = deque[PodEviction]()
        """Those that happened, the oldest first."""
        self._of = defaultdict[str, dict[str, deque[PodEviction]]](dict, cluster={"": self.past})
        """The same by kind and name."""
        self._intended: dict[str, dict[str, PodEviction]] = {}
        """What plans have yet to ask for, by uid of the pod and id of the plan."""
        self._uids = Newest[str, None](_MOST_UIDS)
        """Pods that were asked to leave."""
        self._refused: dict[str, InVain] = {}
        """Pods that the API server kept, by key."""
        self._refusing: dict[str, InVain] = {}
        """Their owners."""
        self.returning: dict[str, InVain] = {}
        """The owners that put pods back, also if excluded no more."""
        self.plans = defaultdict[str, frozenset[str]](frozenset)
        """uid of a preemptor to the digests of its plan as written on it."""
        self.earlier_plans: dict[str, frozenset[str]] = {}
        """The same of the leader before, until they are found."""

    # What is intended, and what happens.

    def eviction_of(self, pod: Pod, preemptor: str = "") -> PodEviction:
        """The future eviction of this pod for that workload or bare pod."""
        namespace, made = pod.metadata.namespace, at_creation(pod.metadata).labels or {}
        labels = tuple((key, bounded(made[key])) for key in sorted(self._label_keys & made.keys()))
        return PodEviction(math.inf, name_of(pod), pod.spec.node_name, namespace, labels, preemptor)

    def intend(self, plan: str, evictions: Mapping[str, PodEviction]) -> None:
        """A plan is to evict these, by uid: until then they count in every window."""
        for uid, eviction in evictions.items():
            if uid not in self._uids:
                self._intended.setdefault(uid, {})[plan] = eviction
        self.version += 1

    def give_back(self, plan: str, uid: str) -> None:
        """A plan does not intend to evict this pod any more."""
        by_plan = self._intended.get(uid, {})
        if by_plan.pop(plan, None) is not None and not by_plan:
            del self._intended[uid]
        self.version += 1

    def intended(self) -> dict[str, PodEviction]:
        """What plans have yet to ask for, by uid, as the first plan has it."""
        return {uid: next(iter(by_plan.values())) for uid, by_plan in self._intended.items()}

    def asked(self, uid: str, eviction: PodEviction, now: float) -> None:
        """A pod was asked to leave; what was intended says more than what is seen."""
        eviction = next(iter(self._intended.pop(uid, {}).values()), eviction)
        if uid not in self._uids:
            self._uids[uid] = None
            self.note(eviction._replace(at=now))

    def note(self, eviction: PodEviction) -> None:
        """An eviction has happened; its time is rounded up to the millisecond."""
        eviction = eviction._replace(at=math.ceil(eviction.at * 1000) / 1000)
        self.version += 1
        for kind, name in eviction.names.items():
            self._of[kind].setdefault(name, deque()).append(eviction)
        while len(self.past) > MOST_KEPT and self.past[0].at + self._horizon <= eviction.at:
            for kind, name in self.past[0].names.items():
                self._of[kind][name].popleft()
                if not self._of[kind][name]:
                    del self._of[kind][name]

    def is_of_leader_before(self, preemptor: str, digest: str) -> bool:
        """Whether the leader before wrote a text of this digest; True only once."""
        if digest not in self.earlier_plans.get(preemptor, ()):
            return False
        self.plans[preemptor] = self.earlier_plans.pop(preemptor)
        return True

    # What the rates leave.

    def remember(self, known: Iterable[Limits]) -> None:
        """Keep of evictions what these limits ask for, for as long."""
        for limits in known:
            windows = (rate.window for _, _, rate in rates_of(limits))
            self._horizon = max(self._horizon, limits.cycles.window, *windows)
            if limits.per_label is not None:
                self._label_keys.add(limits.per_label.label)

    def remaining(self, limits: Limits, now: float, *, since: float = -math.inf) -> Remaining:
        """What the rates still allow, beside what is intended or happened `since`."""
        left, ends, again = dict[str, dict[str, int]](), list[float](), list[float]()
        rates = list(rates_of(limits))
        intended = [row.names for row in self.intended().values()] if rates else []
        for field, kind, rate in rates:
            # The newest comes first. What is intended is in an infinite future.
            times = defaultdict[str, list[float]](list)
            for names in intended:
                if kind in names:
                    times[names[kind]].append(math.inf)
            for name, past in self._of[kind].items():
                if recent := [row.at for row in _within(past, min(rate.window, now - since), now)]:
                    times[name] += recent
            left[field] = {name: rate.evictions - len(recent) for name, recent in times.items()}
            for recent in times.values():
                ends.append(recent[-1] + rate.window)
                if len(recent) >= rate.evictions:
                    again.append(recent[rate.evictions - 1] + rate.window)
        return Remaining(left, min(ends, default=None), min(again, default=None))

    def overdrawn(self, limits: Limits, uids: Iterable[str], now: float, *, since: float = -math.inf) -> str:
        """The rate that the intended evictions of these pods exceed; empty if none.

        What is intended counts, and what happened after `since`.
        """
        left = self.remaining(limits, now, since=since).left
        intended = self.intended() if left else {}
        own = [intended[uid].names for uid in uids if uid in intended]
        for field, kind, _ in rates_of(limits):
            if any(left[field].get(names.get(kind, ""), 0) < 0 for names in own):
                return f"limits.{field} does not allow so many evictions any more"
        return ""

    # What has happened, by workload (`Kind/namespace/name`).

    def of(self, workload: str, now: float, window: float = KEPT_SECONDS) -> list[PodEviction]:
        """A workload's evictions in the window, the oldest first; none of a bare pod."""
        return [row for row in self._of["owner"].get(workload, ()) if row.at + window > now]

    def counts(self, window: float, now: float) -> Counter[str]:
        """How often each workload was evicted within the window, if it was."""
        names = (row.workload for row in _within(self.past, window, now))
        return Counter(name for name in names if not name.startswith(BARE))

    def evictors(self, workloads: Collection[str], window: float, now: float) -> dict[str, tuple[str, ...]]:
        """The workloads for which pods of these were evicted within the window, and so on.

        The nearest come first, about a thousand at most. Each has the way from it to one
        of these, each evicted for the one before. These are left out.
        """
        ways: dict[str, tuple[str, ...]] = {workload: (workload,) for workload in workloads}
        for evicted in (queue := list(ways)):
            if len(ways) > _MOST_EVICTORS:
                break
            for row in self.of(evicted, now, window):
                by = row.preemptor
                if by and by not in ways:
                    ways[by] = (by, *ways[evicted])
                    queue.append(by)
        return {evictor: way for evictor, way in ways.items() if len(way) > 1}

    # What was in vain: it is excluded for a while, twice as long each time.

    def refused(self, pod: Pod, now: float) -> None:
        """The API server kept the pod: it is excluded, longer if others of its owner were.

        A webhook denies the eviction, the right is missing, or two budgets cover the pod,
        which the Eviction API does not support. No decision sees that.
        """
        known = _note_in_vain(self._refusing, name_of(pod), now, _REFUSED)
        self._refused = {key: self._refused[key] for key in _held(self._refused, now)}
        self._refused[key_of(pod)] = known

    def returned(self, owner: str, now: float) -> None:
        """The owner put a pod into an evicted one's room: its pods are excluded."""
        _note_in_vain(self.returning, owner, now, _RETURNED)
        self.version += 1

    def excluded(self, now: float) -> tuple[list[str], list[str], float | None]:
        """Pods and owners excluded now, and when the first is no more."""
        pods, owners = _held(self._refused, now), _held(self.returning, now)
        return [*pods], [*owners], min([*pods.values(), *owners.values()], default=None)


def _held(known: Mapping[str, InVain], now: float) -> dict[str, float]:
    """Those excluded now, and until when."""
    return {name: row.until for name, row in known.items() if now < row.until}


def _within(rows: deque[PodEviction], window: float, now: float) -> Iterator[PodEviction]:
    """Of evictions, the oldest first, those within the window, the newest first."""
    if rows and rows[0].at + window > now:
        return reversed(rows)
    return takewhile(lambda row: row.at + window > now, reversed(rows))


def _note_in_vain(known: dict[str, InVain], name: str, now: float, pauses: tuple[float, float]) -> InVain:
    """It was in vain once more; what was over long ago is forgotten."""
    for old in [key for key, row in known.items() if now >= row.until + pauses[1]]:
        del known[old]
    times = known[name].times + 1 if name in known else 1
    known[name] = InVain(times, now + exponential(times, *pauses))
    return known[name]


def name_of(pod: Pod) -> str:
    """A pod's workload in the log, or its own name without one."""
    return workload_of(pod) or f"{BARE}{key_of(pod)}"


def label(key: str) -> str:
    """The kind of names that the values of a label are."""
    return f"label {key}"


def rates_of(limits: Limits) -> Iterator[tuple[str, str, AnyRate]]:
    """The rates that are set: field, kind of names that it counts by, and rate.

    A rate that lies within another one comes first.
    """
    for field, kind, rate in (
        ("perOwner", "owner", limits.per_owner),
        ("perWorkload", "owner", limits.per_workload),
        ("perNamespace", "namespace", limits.per_namespace),
        ("perLabel", label(limits.per_label.label) if limits.per_label else "", limits.per_label),
        ("perNode", "node", limits.per_node),
        ("perCluster", "cluster", limits.per_cluster),
    ):
        if rate is not None:
            yield field, kind, rate
