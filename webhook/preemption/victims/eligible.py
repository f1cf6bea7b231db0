"""Which pods may be victims of a preemptor, for all pods at once, and why the others may not."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.pod_info import PodInfo
from webhook.preemption.snapshot.pod_view import Profile
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import SYSTEM_CRITICAL, PairMatcher, Rules, VictimReason, kubernetes_rules

__all__ = [
    "ExcludedPod",
    "Exclusion",
    "PotentialVictims",
    "only_pods",
    "potential_victims",
    "protection_ends",
]


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
    RESTRAINT = 7
    """The caller's own exclusions."""
    SEVERAL_BUDGETS = 8


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
    leaving: NDArray[np.bool_] | None = None
    """The pods that go anyway, by pod row: nobody else goes so that one of them may stay."""

    def excluded(self, row: int) -> ExcludedPod | None:
        """Why the pod in this row may not go, by its code, with the numbers of now; None if it may."""
        pods, code = self.snapshot.pods, int(self.code[row])
        match code:
            case Exclusion.NONE:
                return None
            case Exclusion.PRIORITY:
                theirs, own = int(pods.priority[row]), self.incoming.priority
                rule, text = "priority", f"its priority {theirs} is not lower than the preemptor's {own}"
            case Exclusion.CRITICAL:
                rule, text = "system-critical", f"its priority {int(pods.priority[row])} is that of system pods"
            case Exclusion.PROFILE:
                rule, text, _ = self.rules.reason(self._profile(row), self.snapshot.classes)
            case Exclusion.PROTECTED:
                seconds, start = self.rules.protection(self._profile(row)), float(pods.start[row])
                left = f"{start + seconds - self.now:.0f} s more of {seconds:g} s from its start"
                if np.isinf(start):
                    left = f"{seconds:g} s from its start and has not started"
                rule, text = "protection", f"it is protected for {left}"
            case Exclusion.PAIRS:
                rule, text = "pairs", "no pair of the policy lets this preemptor evict it"
            case Exclusion.RESTRAINT:
                rule = "exclusion"
                text = "it is excluded: it would not go, its replacement could run nowhere else, or a rate is used up"
            case Exclusion.SEVERAL_BUDGETS:
                names = ", ".join(budget.name for budget in self.snapshot.budgets.of(row, strict=True))
                rule, text = "budget", f"the Eviction API lets no pod go that several budgets cover: {names}"
            case _:
                budgets = self.snapshot.budgets.of(row, strict=True)
                spent = ", ".join(budget.name for budget in budgets if budget.allowed <= 0)
                stale = ", ".join(budget.name for budget in budgets if budget.stale)
                rule, text = "budget", f"its disruption budget allows no more disruptions: {spent}"
                if not spent:
                    text = f"the status of its disruption budget is older than its spec: {stale}"
        return ExcludedPod(f"{pods.namespaces[row]}/{pods.names[row]}", f"{self.rules.name}/{rule}", text)

    def reason(self, row: int) -> VictimReason:
        """By which rule the pod in this row, which may go, may go."""
        reason = self.rules.reason(self._profile(row), self.snapshot.classes)
        return reason._replace(rule=f"{self.rules.name}/{reason.rule}")

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
    exclusions: NDArray[np.bool_] | None = None,
    leaving: NDArray[np.bool_] | None = None,
) -> PotentialVictims:
    """Judge all pods; `exclusions` are further pods that may not go, and `leaving` those that go anyway, by pod row.

    Raises ValueError if the snapshot does not keep an annotation that the rules read.
    """
    unknown = rules.annotations - snapshot.pods.annotations
    if rules.policy is not None and unknown:
        raise ValueError(f"the snapshot does not keep {', '.join(sorted(unknown))}: make it with rules.annotations")
    pods = snapshot.pods
    count = pods.rows
    code = (pods.priority[:count] >= incoming.priority).view(np.int8) * np.int8(Exclusion.PRIORITY)
    code[0] = Exclusion.PRIORITY
    if rules.policy is not None:
        _apply(code, pods.priority[:count] >= SYSTEM_CRITICAL, Exclusion.CRITICAL)
        barred: NDArray[np.bool_] = snapshot.table(
            ("profiles", rules, snapshot.classes_version),
            pods.profiles,
            np.bool_,
            lambda profile: not rules.reason(profile, snapshot.classes).may_go,
        )
        _apply(code, barred[pods.profile[:count]], Exclusion.PROFILE)
        ends = protection_ends(snapshot, rules)
        _apply(code, None if ends is None else now < ends, Exclusion.PROTECTED)
        if rules.pairs is not None:
            _apply(code, ~_in_pairs(snapshot, incoming, rules.pairs), Exclusion.PAIRS)
    _apply(code, exclusions, Exclusion.RESTRAINT)
    if (rules.strict_budgets or rules.evicts) and len(snapshot.budgets):
        rows = np.flatnonzero((code == Exclusion.NONE) & (pods.node[:count] >= 0))
        exhausted, several = snapshot.budgets.refused(rows, strict=rules.strict_budgets, evicts=rules.evicts)
        code[exhausted] = Exclusion.BUDGET
        code[several] = Exclusion.SEVERAL_BUDGETS
    return PotentialVictims(snapshot, incoming, rules, now, code, leaving)


def only_pods(snapshot: Snapshot, incoming: PodInfo, rows: NDArray[np.intp]) -> PotentialVictims:
    """The pods in these rows may go and no others, whoever they are."""
    code = np.full(snapshot.pods.rows, Exclusion.RESTRAINT, np.int8)
    code[rows] = Exclusion.NONE
    return PotentialVictims(snapshot, incoming, kubernetes_rules(), 0.0, code)


def _apply(code: NDArray[np.int8], excluded: NDArray[np.bool_] | None, rule: int) -> None:
    if excluded is not None:
        code[excluded & (code == Exclusion.NONE)] = rule


def protection_ends(snapshot: Snapshot, rules: Rules) -> NDArray[np.float64] | None:
    """When each pod's protection window ends, by pod row, in seconds since the epoch; None if no pod has a window.

    A window begins with the pod's start, so a pod that has not started is protected without end (infinite); the entry
    of a pod without a window is minus infinity.
    """
    pods = snapshot.pods
    seconds = snapshot.table(("protection", rules), pods.profiles, np.float64, rules.protection)
    if not seconds.any():
        return None
    windows = seconds[pods.profile[: pods.rows]]
    ends: NDArray[np.float64] = np.where(windows > 0, pods.start[: pods.rows] + windows, -np.inf)
    return ends


def _in_pairs(snapshot: Snapshot, incoming: PodInfo, pairs: tuple[PairMatcher, ...]) -> NDArray[np.bool_]:
    """The pods, by row, that a pair of the policy lets this preemptor evict."""
    pods, class_name = snapshot.pods, incoming.pod.spec.priority_class_name
    own_labels = snapshot.namespace_labels(incoming.namespace)
    inside = np.zeros(pods.rows, np.bool_)
    for own, victims in pairs:
        if not (own.class_matches(class_name) and own.pod_matches(incoming.namespace, incoming.labels, own_labels)):
            continue
        of_class = np.zeros(len(pods.profiles), np.bool_)
        for number, profile in pods.profiles.used():
            of_class[number] = victims.class_matches(profile.priority_class_name)
        of_pod = np.zeros(len(pods.identities), np.bool_)
        for number, identity in pods.identities.used():
            of_pod[number] = victims.pod_matches(*identity, snapshot.namespace_labels(identity.namespace))
        inside |= of_class[pods.profile[: pods.rows]] & of_pod[pods.identity[: pods.rows]]
    return inside
