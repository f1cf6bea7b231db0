"""Which pods may be victims of a preemptor, for all pods at once, and why the others may not."""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import silence
from webhook.policy.model.creation import at_creation
from webhook.preemption.snapshot.columns import Floats, Ints, Mask, Rows, Table
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.pod_view import Identity, Profile
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.costs import VictimCosts, victim_costs
from webhook.preemption.victims.rules import (
    SYSTEM_CRITICAL,
    UNKNOWN_TOLERATION,
    PairMatcher,
    PodsMatcher,
    Rules,
    VictimReason,
    kubernetes_rules,
)
from webhook.preemption.victims.units import Units, group_units

_CLOCKS_DIFFER = 60.0
"""Seconds by which the clock of a node may be before this one."""


class Exclusion(IntEnum):
    """What keeps a pod from being a victim, NONE if nothing does; the first that holds counts."""

    NONE = 0
    PRIORITY = 1
    CRITICAL = 2
    PROFILE = 3
    """The pod's scheduler, class or annotations: which of them, `Rules.reason` says."""
    PROTECTED = 4
    PAIRS = 5
    BUDGET = 6
    EXCLUDED = 7
    """The caller's own exclusions."""
    SEVERAL_BUDGETS = 8
    GROUP = 9
    """Another member of its group may not go, and the group goes whole."""
    GROUP_BUDGET = 10
    """The members of its group go beyond a budget together."""
    NEVER_DISRUPTED = 11
    OWN_GROUP = 12
    STATIC = 13


_OF_GROUP = {
    Exclusion.GROUP: "{group} goes whole or not at all, and {who}",
    Exclusion.GROUP_BUDGET: "{group} goes whole, and a disruption budget does not let all of it go",
    Exclusion.NEVER_DISRUPTED: "the policy lets nobody of {group} go",
    Exclusion.OWN_GROUP: "the preemptor belongs to {group}, too",
}
"""Why a pod's group keeps it from going."""


class ExcludedPod(NamedTuple):
    """A pod that may not be a victim: `namespace/name`, `policy/rule`, and the sentence for people."""

    pod: str
    rule: str
    text: str


class PotentialVictims(NamedTuple):
    """Which pods may go for a preemptor: by pod row the first `Exclusion` that holds."""

    snapshot: Snapshot
    incoming: PodInfo
    rules: Rules
    now: float
    code: NDArray[np.int8]
    leaving: Mask | None = None
    """The pods that go anyway, by pod row: nobody else goes so that one of them may stay."""
    units: Units | None = None
    """What goes together; None if every pod is a unit of its own."""
    costs: VictimCosts | None = None
    """What the policy counts of a pod beyond its priority; None if nothing."""

    @property
    def rows(self) -> Rows:
        """The pods on nodes that may go, ascending."""
        return np.flatnonzero((self.code == Exclusion.NONE) & (self.snapshot.pods.node[: len(self.code)] >= 0))

    def exclude_by_budget(self, rows: Rows) -> None:
        """Let these pods stay for their budgets, and the groups that they are of."""
        self.code[rows] = Exclusion.BUDGET
        if self.units is not None:
            _apply(self.code, self.units.kept_by(self.code == Exclusion.BUDGET), Exclusion.GROUP)

    def slots_of(self, nodes: Rows, others: Rows | None = None) -> NDArray[Any]:
        """The nodes' pods, one row a node, in the order in which they are put back; 0 for no more.

        That is by priority, then groups that go whole before single pods, larger groups first, and after single pods
        those that their groups can spare, the lowest index first; then the costliest first, then by importance.
        `others`, a row a node, are pods of other nodes that are put back with them.
        """
        snapshot, units, costs = self.snapshot, self.units, self.costs
        across = others is not None and others.size > 0
        if units is None and costs is None and not across:
            return snapshot.pods.slots_of(nodes)
        pods = snapshot.pods
        first = pods.priority.astype(np.int64) if units is None else units.importance(pods.member_index)

        def keys(rows: Rows) -> list[Floats | Ints]:
            return [first[rows], *(costs.order_of(rows) if costs is not None else ())]

        if others is not None and across:
            rows = np.concatenate([pods.slots_of(nodes), others], axis=1)
            first[0] = -(2**62)  # no pod is the least important one
            columns = [*(-key for key in keys(rows)), pods.start[rows]]
            return np.take_along_axis(rows, np.lexsort((*reversed(columns),), axis=-1), axis=-1)
        known: list[Hashable] = [] if units is None else [units.by_policy]
        outside = [] if units is None else [first]
        if costs is not None:
            known += [costs.cost, costs.grace_period]
            outside += costs.outside
        return snapshot.slot_order(tuple(known)).slots_of(nodes, keys, outside)

    def excluded(self, row: int) -> ExcludedPod | None:
        """Why the pod in this row may not go, with the numbers of now; None if it may."""
        pods, code = self.snapshot.pods, Exclusion(int(self.code[row]))
        match code:
            case Exclusion.NONE:
                return None
            case Exclusion.PRIORITY:
                theirs, own = int(self.priority_of(row)), self.incoming.priority
                rule, text = "priority", f"its priority {theirs} is not lower than the preemptor's {own}"
            case Exclusion.CRITICAL:
                rule, text = "system-critical", f"its priority {int(pods.priority[row])} is that of system pods"
            case Exclusion.STATIC:
                rule = "static"
                text = "it is a static pod: its kubelet goes on running it, whatever the API server says"
            case Exclusion.PROFILE:
                rule, text, _ = self.rules.reason(self._profile(row), self.snapshot.classes)
            case Exclusion.PROTECTED:
                rule, text = self._protected(row)
            case Exclusion.PAIRS:
                rule, text = "pairs", "no pair of the policy lets this preemptor evict it"
                identity = pods.identities.values[pods.identity[row]]
                if identity and identity.labels != identity.labels_at_creation:
                    text += ", by the labels that it was made with"
            case Exclusion.EXCLUDED:
                rule = "exclusion"
                text = (
                    "it is excluded: it would not go or comes back, it leaves too late, a rate is used up, its workload"
                    " evicted the preemptor's, or its replacement could run nowhere else"
                )
            case Exclusion.SEVERAL_BUDGETS:
                names = ", ".join(budget.name for budget in self.snapshot.budgets.of(row, strict=True))
                rule, text = "budget", f"the Eviction API lets no pod go that several budgets cover: {names}"
            case Exclusion.BUDGET:
                budgets = self.snapshot.budgets.of(row, strict=True)
                spent = ", ".join(budget.name for budget in budgets if budget.allowed <= 0)
                stale = ", ".join(budget.name for budget in budgets if budget.stale)
                rule, text = "budget", f"its disruption budget allows no more disruptions: {spent}"
                if not spent:
                    text = f"the status of its disruption budget is older than its spec: {stale}"
            case _:
                who = self._who_stays(row) if code is Exclusion.GROUP else ""
                rule, text = "group", _OF_GROUP[code].format(group=pods.groups.values[pods.group[row]], who=who)
        return ExcludedPod(pods.key(row), f"{self.rules.name}/{rule}", text)

    def _protected(self, row: int) -> tuple[str, str]:
        """Why the pod is protected now: by its window, or by what its class tolerates."""
        profile, start, until = (
            self._profile(row),
            float(self.snapshot.pods.start[row]),
            self.rules.protects_until(self.now),
        )
        seconds = self.rules.protection(profile)
        if not self.now < min(start + seconds, until) or not seconds:
            toleration = self.rules.toleration(profile, self.snapshot.classes)
            if toleration is UNKNOWN_TOLERATION:
                name = profile.priority_class_name
                why = silence(name, self.snapshot.classes.get(name), profile.priority)
                return "toleration", f"whose preemption it tolerates is not known: {why}"
            below, seconds = toleration
            rule, what = "toleration", f"its PriorityClass tolerates preemption by priorities below {below} for"
            if np.isinf(seconds):
                return rule, f"{what} ever"
            until = np.inf
        else:
            rule, what = "protection", "it is protected for"
        left = f"{start + seconds - self.now:.0f} s more of {seconds:g} s from its start"
        if until < start + seconds:
            left = f"{until - self.now:.0f} s more, by the schedule of the policy's protection"
        elif np.isinf(start):
            left = f"{seconds:g} s from its start and has not started"
        return rule, f"{what} {left}"

    def reason(self, row: int) -> VictimReason:
        """By which rule the pod in this row, which may go, may go."""
        reason = self.rules.reason(self._profile(row), self.snapshot.classes)
        return reason._replace(rule=f"{self.rules.name}/{reason.rule}")

    def stays_with_others(self, row: int) -> bool:
        """Whether the pod in this row may not go for the sake of others of its group alone, or for their priority."""
        below = self.snapshot.pods.priority[row] < self.incoming.priority
        return self.code[row] in (Exclusion.GROUP, Exclusion.GROUP_BUDGET, *((Exclusion.PRIORITY,) if below else ()))

    def priority_of(self, row: int) -> int:
        """The priority that counts for the pod in this row: its group's if that goes whole."""
        return int(self.snapshot.pods.priority[row] if self.units is None else self.units.priority[row])

    def _who_stays(self, row: int) -> str:
        """The member of the pod's group that may not go, and why."""
        members = self.snapshot.pods.grouped.members(int(self.snapshot.pods.group[row])).tolist()
        judged = [member for member in members if self.code[member] not in (Exclusion.NONE, Exclusion.GROUP)]
        excluded = self.excluded(judged[0]) if judged else None
        return f"{excluded.pod} stays: {excluded.text}" if excluded else "a member of it stays"

    def _profile(self, row: int) -> Profile:
        profile: Profile | None = self.snapshot.pods.profiles.values[self.snapshot.pods.profile[row]]
        assert profile is not None
        return profile


def potential_victims(
    snapshot: Snapshot,
    incoming: PodInfo,
    rules: Rules,
    now: float,
    *,
    exclusions: Mask | None = None,
    leaving: Mask | None = None,
    evicted: Ints | None = None,
) -> PotentialVictims:
    """Judge all pods; by row, those of the `exclusions` may not go, and those `leaving` go anyway.

    `evicted` is by pod row how often the pod's workload was evicted recently.

    Raises ValueError if the snapshot does not keep an annotation that the rules read.
    """
    unknown = rules.annotations - snapshot.pods.annotations
    if rules.policy is not None and unknown:
        raise ValueError(f"the snapshot does not keep {', '.join(sorted(unknown))}: make it with rules.annotations")
    pods = snapshot.pods
    if rules.policy is not None:
        pods.doubt_starts_after(now + _CLOCKS_DIFFER)
    count = pods.rows
    units = group_units(snapshot, rules, leaving)
    priority = pods.priority[:count] if units is None else units.priority
    code = (priority >= incoming.priority).view(np.int8) * np.int8(Exclusion.PRIORITY)
    code[0] = Exclusion.PRIORITY
    if rules.policy is not None:
        _apply(code, pods.priority[:count] >= SYSTEM_CRITICAL, Exclusion.CRITICAL)
        _apply(code, static_pods(snapshot), Exclusion.STATIC)
        excluded: Mask = snapshot.table(
            ("profiles", rules, snapshot.classes.version),
            pods.profiles,
            np.bool_,
            lambda profile: not rules.reason(profile, snapshot.classes).may_go,
        )
        _apply(code, excluded[pods.profile[:count]], Exclusion.PROFILE)
        ends = protection_ends(snapshot, rules, now, incoming.priority)
        _apply(code, None if ends is None else now < ends, Exclusion.PROTECTED)
        if rules.pairs is not None:
            _apply(code, ~_in_pairs(snapshot, incoming, rules.pairs), Exclusion.PAIRS)
    _apply(code, exclusions, Exclusion.EXCLUDED)
    if (rules.strict_budgets or rules.evicts) and len(snapshot.budgets):
        rows = np.flatnonzero((code == Exclusion.NONE) & (pods.node[:count] >= 0))
        exhausted, several = snapshot.budgets.refused(rows, strict=rules.strict_budgets, evicts=rules.evicts)
        code[exhausted] = Exclusion.BUDGET
        code[several] = Exclusion.SEVERAL_BUDGETS
    if units is not None:
        _exclude_units(code, units, snapshot, incoming, rules)
    return PotentialVictims(
        snapshot, incoming, rules, now, code, leaving, units, victim_costs(snapshot, rules, evicted)
    )


def static_pods(snapshot: Snapshot) -> Mask:
    """The static pods, by row: the object only shows what its kubelet runs from a file."""
    owners = snapshot.pods.owners
    static: Mask = snapshot.table(("static",), owners, np.bool_, lambda owner: owner.kind == "Node")
    return static[snapshot.pods.owner[: snapshot.pods.rows]]


def only_pods(
    snapshot: Snapshot,
    incoming: PodInfo,
    rows: Rows,
    rules: Rules | None = None,
    evicted: Ints | None = None,
) -> PotentialVictims:
    """Only the pods in these rows may go; by `rules` some go together, some cost more."""
    code = np.full(snapshot.pods.rows, Exclusion.EXCLUDED, np.int8)
    code[rows] = Exclusion.NONE
    units = group_units(snapshot, rules) if rules is not None else None
    costs = victim_costs(snapshot, rules, evicted)
    return PotentialVictims(snapshot, incoming, kubernetes_rules(), 0.0, code, None, units, costs)


def _exclude_units(code: NDArray[np.int8], units: Units, snapshot: Snapshot, incoming: PodInfo, rules: Rules) -> None:
    """Exclude the members of groups of which somebody stays."""
    pods = snapshot.pods
    _apply(code, units.never, Exclusion.NEVER_DISRUPTED)
    own = pods.groups.find(group_of(incoming.pod))
    if own:
        _apply(code, units.member_of == own, Exclusion.OWN_GROUP)
    if rules.strict_budgets and len(snapshot.budgets):
        # All members of a group go at once: as many as its budgets let go, counted over the whole cluster
        group = units.member_of
        rows = np.flatnonzero((group > 0) & (code == Exclusion.NONE))
        beyond = rows[snapshot.budgets.violating(rows, strict=True, evicts=rules.evicts, groups=group[rows])]
        if units.above is not None:
            # What the group can spare may go by itself; the others may not go with it
            beyond = np.flatnonzero(units.groups_of(group[beyond])[units.group] & (code == Exclusion.NONE))
        code[beyond] = Exclusion.GROUP_BUDGET
    members = units.member_of > 0
    _apply(code, units.kept_by(members & (code != Exclusion.NONE)), Exclusion.GROUP)


def _apply(code: NDArray[np.int8], excluded: Mask | None, rule: int) -> None:
    if excluded is not None:
        np.copyto(code, np.int8(rule), where=excluded & (code == Exclusion.NONE))


def protection_ends(snapshot: Snapshot, rules: Rules, now: float, priority: int | None = None) -> Floats | None:
    """When each pod's protection ends, in seconds since the epoch; None if no pod has any now.

    A window begins with the pod's start, so a pod that has not started is protected without end (infinite); the entry
    of a pod without a window is minus infinity. If the protection has a schedule, all windows end with that. For a
    preemptor of a `priority` the windows in which a pod's PriorityClass tolerates its preemption count as well.
    """
    pods, until = snapshot.pods, rules.protects_until(now)
    of_pod, starts = pods.profile[: pods.rows], pods.start[: pods.rows]
    ends: Floats | None = None
    if (
        until > now
        and (seconds := snapshot.table(("protection", rules), pods.profiles, np.float64, rules.protection)).any()
    ):
        windows = seconds.take(of_pod)
        ends = np.minimum(np.where(windows > 0, starts + windows, -np.inf), until)
    if priority is None or rules.policy is None or not rules.policy.victims.preemption_toleration:
        return ends

    def tolerated(profile: Profile) -> float:
        below, seconds = rules.toleration(profile, snapshot.classes)
        return seconds if priority < below else 0.0

    key = ("toleration", rules, snapshot.classes.version, priority)
    windows = snapshot.table(key, pods.profiles, np.float64, tolerated)[of_pod]
    if not windows.any():
        return ends
    tolerating = np.where(windows > 0, starts + windows, -np.inf)
    return tolerating if ends is None else np.maximum(ends, tolerating)


def _in_pairs(snapshot: Snapshot, incoming: PodInfo, pairs: tuple[PairMatcher, ...]) -> Mask:
    """The pods, by row, that a pair of the policy lets this preemptor evict."""
    own_labels, own_class = snapshot.namespace_labels(incoming.namespace), incoming.pod.spec.priority_class_name
    labels, inside = at_creation(incoming.pod.metadata).labels or {}, np.zeros(snapshot.pods.rows, np.bool_)
    for own, victims in pairs:
        speaks = own.class_matches(own_class, incoming.priority, snapshot.classes)
        if speaks and own.pod_matches(incoming.namespace, labels, own_labels):
            inside |= matched_pods(snapshot, victims)
    return inside


def matched_pods(snapshot: Snapshot, matcher: PodsMatcher) -> Mask:
    """The pods, by row, that one side of a pair names."""
    pods, classes = snapshot.pods, snapshot.classes

    def of_class(profile: Profile) -> bool:
        return matcher.class_matches(profile.priority_class_name, profile.priority, classes)

    def of_pod(identity: Identity) -> bool:
        of_namespace = snapshot.namespace_labels(identity.namespace)
        return matcher.pod_matches(identity.namespace, identity.labels_at_creation, of_namespace)

    by_profile, by_identity = Table(pods.profiles, np.bool_, of_class), Table(pods.identities, np.bool_, of_pod)
    of_profiles, of_identities = by_profile.column(), by_identity.column()
    matched: Mask = of_profiles[pods.profile[: pods.rows]] & of_identities[pods.identity[: pods.rows]]
    return matched
