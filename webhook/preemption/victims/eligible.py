"""Which pods may be victims of a preemptor, and why the others may not."""

from __future__ import annotations

from enum import IntEnum
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import silence
from webhook.policy.model.creation import at_creation
from webhook.preemption.snapshot.columns import Floats, Ints, Ints8, Mask, Rows, Table
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
"""Seconds that a node's clock may be ahead."""


class Exclusion(IntEnum):
    """Why a pod is no victim; the first that holds counts."""

    NONE = 0
    PRIORITY = 1
    CRITICAL = 2
    PROFILE = 3
    """Its scheduler, class or annotations; `Rules.reason` says which."""
    PROTECTED = 4
    PAIRS = 5
    BUDGET = 6
    EXCLUDED = 7
    """The caller's own exclusions."""
    SEVERAL_BUDGETS = 8
    GROUP = 9
    """Its group goes whole, and another member may not go."""
    GROUP_BUDGET = 10
    """Together the members of its group go beyond a budget."""
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
_EXCLUDED = (
    "it is excluded: it would not go or comes back, it leaves too late, a rate is used up, its workload evicted the"
    " preemptor's, or its replacement could run nowhere else"
)


class ExcludedPod(NamedTuple):
    """A pod that stays: `namespace/name`, `policy/rule`, and why, for people."""

    pod: str
    rule: str
    text: str


class PotentialVictims(NamedTuple):
    """Who may go for a preemptor: by row the first `Exclusion` that holds."""

    snapshot: Snapshot
    incoming: PodInfo
    rules: Rules
    now: float
    code: Ints8
    leaving: Mask | None = None
    """The pods that go anyway, by row: nobody else goes to let them stay."""
    units: Units | None = None
    """What goes together; None if every pod is its own unit."""
    costs: VictimCosts | None = None
    """What the policy counts beyond priority, if anything."""

    @property
    def may_go(self) -> Mask:
        """Which pods may go, by pod row."""
        return ~self.code.astype(np.bool_)

    @property
    def rows(self) -> Rows:
        """The pods on nodes that may go, ascending."""
        return np.flatnonzero((self.snapshot.pods.node[: len(self.code)] >= 0) & self.may_go)

    def exclude_by_budget(self, rows: Rows) -> None:
        """Let these pods stay for their budgets, and their groups with them."""
        self.code[rows] = Exclusion.BUDGET
        if self.units is not None:
            kept = self.units.groups_of(self.units.member_of[rows])
            _apply(self.code, kept.take(self.units.group), Exclusion.GROUP)

    def slots_of(self, nodes: Rows, others: Rows | None = None) -> NDArray[Any]:
        """The nodes' pods, one row a node, as they are put back; 0 for no more.

        First by priority; then groups that go whole, the larger first, single pods, and those that
        groups can spare, the lowest index first; then the costliest; then by importance. `others`, a
        row a node, are pods of other nodes.
        """
        pods, units, costs = self.snapshot.pods, self.units, self.costs
        if units is None and costs is None and others is None:
            return pods.slots_of(nodes)
        first = pods.priority.astype(np.int64) if units is None else units.importance(pods.member_index)

        def keys(rows: Rows) -> list[Floats | Ints]:
            return [first[rows], *(costs.order_of(rows) if costs else ())]

        if others is not None:
            rows = np.concatenate([pods.slots_of(nodes), others], axis=1)
            first[0] = -(2**62)  # no pod is the least important one
            order = np.lexsort((pods.start[rows], *(-key for key in reversed(keys(rows)))), axis=-1)
            return np.take_along_axis(rows, order, axis=-1)
        known = units and units.by_policy, costs and (costs.cost, costs.grace_period)
        outside = [first] if units else []
        if costs is not None and costs.evicted is not None:
            outside.append(costs.evicted)
        return self.snapshot.slot_order(known).slots_of(nodes, keys, outside)

    def excluded(self, row: int) -> ExcludedPod | None:
        """Why the pod (row) may not go, with the numbers of now; None if it may."""
        code = Exclusion(int(self.code[row]))
        if code is Exclusion.NONE:
            return None
        rule, text = self._why(row, code)
        return ExcludedPod(self.snapshot.pods.key(row), f"{self.rules.name}/{rule}", text)

    def _why(self, row: int, code: Exclusion) -> tuple[str, str]:
        """The rule that holds, and the sentence."""
        pods = self.snapshot.pods
        match code:
            case Exclusion.PRIORITY:
                theirs, own = self.priority_of(row), self.incoming.priority
                return "priority", f"its priority {theirs} is not lower than the preemptor's {own}"
            case Exclusion.CRITICAL:
                return "system-critical", f"its priority {pods.priority[row]} is that of system pods"
            case Exclusion.STATIC:
                return "static", "it is a static pod: its kubelet goes on running it, whatever the API server says"
            case Exclusion.PROFILE:
                return self.rules.reason(self._profile(row), self.snapshot.classes)[:2]
            case Exclusion.PROTECTED:
                return self._protected(row)
            case Exclusion.PAIRS:
                text = "no pair of the policy lets this preemptor evict it"
                identity = pods.identities.values[pods.identity[row]]
                if identity and identity.labels != identity.labels_at_creation:
                    text += ", by the labels that it was made with"
                return "pairs", text
            case Exclusion.EXCLUDED:
                return "exclusion", _EXCLUDED
            case Exclusion.SEVERAL_BUDGETS:
                names = ", ".join(budget.name for budget in self.snapshot.budgets.of(row))
                return "budget", f"the Eviction API lets no pod go that several budgets cover: {names}"
            case Exclusion.BUDGET:
                budgets = self.snapshot.budgets.of(row)
                if spent := ", ".join(budget.name for budget in budgets if budget.allowed <= 0):
                    return "budget", f"its disruption budget allows no more disruptions: {spent}"
                stale = ", ".join(budget.name for budget in budgets if budget.stale)
                return "budget", f"the status of its disruption budget is older than its spec: {stale}"
            case _:
                who = self._who_stays(row) if code is Exclusion.GROUP else ""
                group = pods.groups.values[pods.group[row]]
                return "group", _OF_GROUP[code].format(group=group, who=who)

    def _protected(self, row: int) -> tuple[str, str]:
        """Why the pod is protected now: by its window, or by its class."""
        profile, start = self._profile(row), float(self.snapshot.pods.start[row])
        until = self.rules.protects_until(self.now)
        seconds = self.rules.protection(profile)
        rule, what = "protection", "it is protected for"
        if not seconds or self.now >= min(start + seconds, until):
            classes, name = self.snapshot.classes, profile.priority_class_name
            toleration = self.rules.toleration(profile, classes)
            if toleration is UNKNOWN_TOLERATION:
                why = silence(name, classes.get(name), profile.priority)
                return "toleration", f"whose preemption it tolerates is not known: {why}"
            below, seconds = toleration
            rule = "toleration"
            what = f"its PriorityClass tolerates preemption by priorities below {below} for"
            if np.isinf(seconds):
                return rule, f"{what} ever"
            until = np.inf
        left = f"{start + seconds - self.now:.0f} s more of {seconds:g} s from its start"
        if until < start + seconds:
            left = f"{until - self.now:.0f} s more, by the schedule of the policy's protection"
        elif np.isinf(start):
            left = f"{seconds:g} s from its start and has not started"
        return rule, f"{what} {left}"

    def reason(self, row: int) -> VictimReason:
        """By which rule the pod in this row may go."""
        reason = self.rules.reason(self._profile(row), self.snapshot.classes)
        return reason._replace(rule=f"{self.rules.name}/{reason.rule}")

    def stays_with_others(self, row: int) -> bool:
        """Whether the pod (row) stays only for others of its group, or their priority."""
        if self.code[row] == Exclusion.PRIORITY:
            return bool(self.snapshot.pods.priority[row] < self.incoming.priority)
        return self.code[row] in (Exclusion.GROUP, Exclusion.GROUP_BUDGET)

    def priority_of(self, row: int) -> int:
        """The priority that counts for the pod (row): its group's if that goes whole."""
        return int((self.units or self.snapshot.pods).priority[row])

    def _who_stays(self, row: int) -> str:
        """The member of the pod's group that may not go, and why."""
        pods = self.snapshot.pods
        for member in pods.grouped.members(int(pods.group[row])).tolist():
            code = Exclusion(int(self.code[member]))
            if code not in (Exclusion.NONE, Exclusion.GROUP):
                return f"{pods.key(member)} stays: {self._why(member, code)[1]}"
        return "a member of it stays"

    def _profile(self, row: int) -> Profile:
        pods = self.snapshot.pods
        profile: Profile | None = pods.profiles.values[pods.profile[row]]
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
    """Judge all pods; by row, `exclusions` may not go, those `leaving` go anyway.

    `evicted` is as in `VictimCosts`. Raises ValueError if the snapshot does not keep an annotation that
    the rules read.
    """
    pods = snapshot.pods
    if unknown := rules.annotations - pods.annotations:
        raise ValueError(f"the snapshot does not keep {', '.join(sorted(unknown))}: make it with rules.annotations")
    if rules.policy is not None:
        pods.doubt_starts_after(now + _CLOCKS_DIFFER)
    count = pods.rows
    units = group_units(snapshot, rules, leaving)
    priority = (units or pods).priority[:count]
    code = (priority >= incoming.priority).view(np.int8) * np.int8(Exclusion.PRIORITY)
    code[0] = Exclusion.PRIORITY
    if rules.policy is not None:
        _apply(code, pods.priority[:count] >= SYSTEM_CRITICAL, Exclusion.CRITICAL)
        _apply(code, static_pods(snapshot), Exclusion.STATIC)
        classes = snapshot.classes
        stays: Mask = snapshot.table(
            ("profiles", rules, classes.version),
            pods.profiles,
            np.bool_,
            lambda profile: not rules.reason(profile, classes).may_go,
        )
        _apply(code, stays.take(pods.profile[:count]), Exclusion.PROFILE)
        ends = protection_ends(snapshot, rules, now, incoming.priority)
        _apply(code, None if ends is None else now < ends, Exclusion.PROTECTED)
        if rules.pairs is not None:
            _apply(code, ~_in_pairs(snapshot, incoming, rules.pairs), Exclusion.PAIRS)
    _apply(code, exclusions, Exclusion.EXCLUDED)
    strict, evicts = rules.strict_budgets, rules.evicts
    if (strict or evicts) and len(snapshot.budgets):
        rows = np.flatnonzero((code == 0) & (pods.node[:count] >= 0))
        exhausted, several = snapshot.budgets.refused(rows, strict=strict, evicts=evicts)
        code[exhausted] = Exclusion.BUDGET
        code[several] = Exclusion.SEVERAL_BUDGETS
    if units is not None:
        _exclude_units(code, units, snapshot, incoming, rules)
    costs = victim_costs(snapshot, rules, evicted)
    return PotentialVictims(snapshot, incoming, rules, now, code, leaving, units, costs)


def static_pods(snapshot: Snapshot) -> Mask:
    """The static pods, by row: the object shows what its kubelet runs from a file."""
    pods = snapshot.pods
    static: Mask = snapshot.table(("static",), pods.owners, np.bool_, lambda owner: owner.kind == "Node")
    return static.take(pods.owner[: pods.rows]) if static.any() else np.broadcast_to(np.False_, pods.rows)


def only_pods(
    snapshot: Snapshot,
    incoming: PodInfo,
    rows: Rows,
    rules: Rules | None = None,
    evicted: Ints | None = None,
) -> PotentialVictims:
    """Only these pods (rows) may go; by `rules` some go together, some cost more."""
    code = np.full(snapshot.pods.rows, Exclusion.EXCLUDED, np.int8)
    code[rows] = Exclusion.NONE
    by = rules or kubernetes_rules()
    units, costs = group_units(snapshot, by), victim_costs(snapshot, by, evicted)
    return PotentialVictims(snapshot, incoming, kubernetes_rules(), 0.0, code, None, units, costs)


def _exclude_units(code: Ints8, units: Units, snapshot: Snapshot, incoming: PodInfo, rules: Rules) -> None:
    """Exclude the members of groups that cannot go whole."""
    group = units.member_of
    _apply(code, units.never, Exclusion.NEVER_DISRUPTED)
    own = snapshot.pods.groups.find(group_of(incoming.pod))
    if own:
        _apply(code, group == own, Exclusion.OWN_GROUP)
    rows = np.flatnonzero((group > 0) & (code == 0))
    if rules.strict_budgets and len(snapshot.budgets):
        # A group's members go at once, as its budgets let go over the whole cluster
        violating = snapshot.budgets.violating(rows, strict=True, evicts=rules.evicts, groups=group[rows])
        beyond = rows[violating]
        if units.above is not None:
            # What the group can spare may go alone; the others may not go with it
            beyond = rows[units.groups_of(group[beyond])[units.group[rows]]]
        code[beyond] = Exclusion.GROUP_BUDGET
        rows = rows[code[rows] == 0]
    kept = np.bincount(group.take(rows), minlength=len(units.sizes)) < units.sizes
    code[rows.compress(kept.take(units.group.take(rows)))] = Exclusion.GROUP


def _apply(code: Ints8, excluded: Mask | None, rule: int) -> None:
    if excluded is not None:
        code += (excluded & (code == 0)).view(np.int8) * np.int8(rule)


def protection_ends(snapshot: Snapshot, rules: Rules, now: float, priority: int | None = None) -> Floats | None:
    """When each pod's protection ends, in seconds since the epoch; None if no pod has any now.

    A window begins with the pod's start: before that the end is infinite. A pod without a window has
    -inf. If the protection has a schedule, all windows end with that. For a preemptor of a `priority`
    the windows count, too, in which a PriorityClass tolerates its preemption.
    """
    pods, classes = snapshot.pods, snapshot.classes
    until = rules.protects_until(now)
    ends: list[Floats] = []

    def add(seconds: Floats, latest: float) -> None:
        """Add the ends of windows of these `seconds`, by profile."""
        if seconds.any():
            windows = seconds.take(pods.profile[: pods.rows])
            last = np.minimum(pods.start[: pods.rows] + windows, latest)
            ends.append(np.where(windows > 0, last, -np.inf))

    if until > now:
        add(snapshot.table(("protection", rules), pods.profiles, np.float64, rules.protection), until)
    if priority is not None and rules.policy is not None and rules.policy.victims.preemption_toleration:

        def tolerated(profile: Profile) -> float:
            below, seconds = rules.toleration(profile, classes)
            return seconds if priority < below else 0.0

        key = ("toleration", rules, classes.version, priority)
        add(snapshot.table(key, pods.profiles, np.float64, tolerated), np.inf)
    return reduce(np.maximum, ends) if ends else None


def _in_pairs(snapshot: Snapshot, incoming: PodInfo, pairs: tuple[PairMatcher, ...]) -> Mask:
    """The pods, by row, that the policy's pairs let this preemptor evict."""
    class_name = incoming.pod.spec.priority_class_name
    labels = at_creation(incoming.pod.metadata).labels or {}
    identity = Identity(incoming.namespace, incoming.labels, labels)
    inside = np.zeros(snapshot.pods.rows, np.bool_)
    for own, victims in pairs:
        speaks = own.class_matches(class_name, incoming.priority, snapshot.classes)
        if speaks and _names(own, snapshot, identity):
            inside |= matched_pods(snapshot, victims)
    return inside


def _names(matcher: PodsMatcher, snapshot: Snapshot, identity: Identity) -> bool:
    """Whether a pair's side names such pods, whose namespace may come later."""
    name, known = identity.namespace, snapshot.namespaces
    labels = snapshot.namespace_labels(name) if name in known or not known else None
    return matcher.pod_matches(name, identity.labels_at_creation, labels)


def matched_pods(snapshot: Snapshot, matcher: PodsMatcher) -> Mask:
    """The pods, by row, that one side of a pair names."""
    pods = snapshot.pods

    def of_class(profile: Profile) -> bool:
        return matcher.class_matches(profile.priority_class_name, profile.priority, snapshot.classes)

    by_profile = Table(pods.profiles, np.bool_, of_class).column()
    by_identity = Table(pods.identities, np.bool_, partial(_names, matcher, snapshot)).column()
    matched: Mask = by_profile.take(pods.profile[: pods.rows]) & by_identity.take(pods.identity[: pods.rows])
    return matched
