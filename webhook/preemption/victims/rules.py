"""Who may be a victim by Kubernetes or a PreemptionPolicy (docs/semantics.md C and D4).

Rules are judged on what many pods share (`Profile`): a decision asks each question once per distinct
class, scheduler and annotations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import silence, speaking
from webhook.kube.selectors import Labels, SelectorError, integer, label_matcher
from webhook.policy.model.globs import WILDCARD, name_matcher
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.policy.model.values import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from webhook.policy.model.victims import ANY, PodsMatch, Signal, VictimMode
from webhook.policy.shapes.yaml_nodes import seconds
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS, Profile

EXPENDABLE = -10
"""Pods below this need no node for cluster-autoscaler (`--expendable-pods-priority-cutoff`)."""
SYSTEM_CRITICAL = 2_000_000_000
"""Pods from this priority on are Kubernetes' own; no policy makes them victims."""

Classes = Mapping[str, PriorityClass]


class VictimReason(NamedTuple):
    """Why a pod may go or not: the name of the rule, and the sentence for people."""

    rule: str
    text: str
    may_go: bool = False


class ClassToleration(NamedTuple):
    """Whoever is `below` this priority waits `seconds`, maybe infinite, from the pod's start."""

    below: int
    seconds: float


NO_TOLERATION = ClassToleration(-(2**31), 0.0)
UNKNOWN_TOLERATION = ClassToleration(2**31, math.inf)
"""Above every priority: nobody evicts the pod."""


class PodsMatcher(NamedTuple):
    """One side of a pair: PriorityClass; namespace, labels and those of the namespace.

    A named class counts if it speaks, by the pod's priority and the cluster's classes. A pod's labels
    are those of its creation (`policy.model.creation`), its namespace's None if nobody knows it.
    """

    class_matches: Callable[[str, int | None, Classes], bool]
    pod_matches: Callable[[str, Labels, Labels | None], bool]


class PairMatcher(NamedTuple):
    """A compiled pair: these preemptors may evict these victims."""

    preemptors: PodsMatcher
    victims: PodsMatcher


@dataclass(frozen=True, eq=False)
class Rules:
    """Compiled rules; `policy` is None for plain Kubernetes.

    A Snapshot has to keep the pod `annotations`: the rules read them. `pairs` are in the policy's
    order, None if it has none. With `strict_budgets` a used-up budget excludes a pod, else it counts
    against the node. With `evicts` victims go by the Eviction API, which refuses pods that several
    budgets cover. With `across` pods of several nodes may go, if no single node helps.
    """

    name: str
    policy: PreemptionPolicy | None
    annotations: frozenset[str]
    pairs: tuple[PairMatcher, ...] | None = None
    strict_budgets: bool = False
    evicts: bool = False
    across: bool = False

    def reason(self, profile: Profile, classes: Classes) -> VictimReason:
        """Whether scheduler, class and annotations let the pod be a victim.

        Opt-in is by Gödel's rules: the pod says "true", or says nothing and its class does.
        Opt-out is as plain Kubernetes, except for what says "false" in the same way.
        """
        if self.policy is None:
            return VictimReason("priority", "its priority is lower", may_go=True)
        victims, name = self.policy.victims, profile.priority_class_name
        scheduler = profile.scheduler_name
        if not {scheduler, ANY}.intersection(victims.schedulers):
            names = ", ".join(victims.schedulers)
            text = f"its scheduler is {scheduler!r}, the policy is for {names}"
            return VictimReason("scheduler", text)
        annotations = dict(profile.annotations)
        for signal in victims.signals:
            if (value := signal.says(signal.protects, annotations)) is not None:
                return _signalled(signal, value, may_go=False)
        rule, keys = victims.mode.value, victims.annotations.preemptible
        opt_in = victims.mode is VictimMode.OPT_IN
        if opt_in and not name:
            return VictimReason("no-priority-class", "it has no priorityClassName, so it is never a victim")
        word = "true" if opt_in else "false"
        if own := _first(keys, annotations):
            text = f'its annotation says "{own}"' + ("" if own == word else f', not "{word}"')
            return VictimReason(rule, text, (own == word) is opt_in)
        for signal in victims.signals if opt_in else ():
            if (value := signal.says(signal.permits, annotations)) is not None:
                return _signalled(signal, value, may_go=True)
        if name:
            priority_class = speaking(classes.get(name), profile.priority)
            if priority_class is None:
                why = silence(name, classes.get(name), profile.priority)
                return VictimReason(rule, f"it says nothing itself, and its class cannot: {why}")
            if _first(keys, priority_class.metadata.annotations or {}) == word:
                text = f'the annotation of PriorityClass {name} says "{word}"'
                return VictimReason(rule, text, opt_in)
        of_class = f"PriorityClass {name}" if opt_in else "its PriorityClass"
        text = f'neither its annotations nor those of {of_class} say "{word}"'
        return VictimReason(rule, text, not opt_in)

    def why_not(self, preemptor: Pod, classes: Classes, now: float) -> str:
        """Why the policy evicts nobody for the pod: its class does not speak for it, or as `outside`.

        Empty if it does. `now` is in seconds since the epoch.
        """
        name = preemptor.spec.priority_class_name
        priority = preemptor.spec.priority
        if self.policy is not None and name and not _speaks(name, priority, classes):
            why = silence(name, classes.get(name), priority)
            mend = f"give the class the value {priority or 0} again, or make the pod again"
            return f"{why}; policy {self.name} goes by classes that speak: {mend}"
        return self.outside(now)

    def outside(self, now: float) -> str:
        """Why the policy evicts nobody `now`, and from when it does; else empty.

        `now` is in seconds since the epoch.
        """
        schedule = self.policy.schedule if self.policy else None
        if schedule is None or schedule.holds(now):
            return ""
        return f"policy {self.name} evicts only by its schedule ({schedule}): {schedule.next_window(now)}"

    def protection(self, profile: Profile) -> float:
        """For how many seconds from its start the pod is protected, until `protects_until`."""
        if self.policy is None:
            return 0.0
        protection, victims = self.policy.protection, self.policy.victims
        annotations = dict(profile.annotations)
        asked = integer(_first(victims.annotations.protection, annotations) or "")
        window = protection.default if asked is None else max(0.0, float(asked))
        for signal in victims.signals:
            if signal.duration:
                window = max(window, seconds(annotations.get(signal.annotation, "")) or 0.0)
        return window if protection.maximum is None else min(window, protection.maximum)

    def toleration(self, profile: Profile, classes: Classes) -> ClassToleration:
        """Whose preemption the pod tolerates by its PriorityClass (PreemptionToleration).

        As there, a number that cannot be read gives none. If the class does not speak for the pod,
        nobody knows it, and the pod stays: else whoever deletes the class takes its protection.
        """
        name, policy = profile.priority_class_name, self.policy
        if policy is None or not policy.victims.preemption_toleration or not name:
            return NO_TOLERATION
        priority_class = speaking(classes.get(name), profile.priority)
        if priority_class is None:
            return UNKNOWN_TOLERATION
        annotations = priority_class.metadata.annotations or {}
        below = integer(annotations.get(MINIMUM_PREEMPTABLE_PRIORITY, ""), 32)
        window = integer(annotations.get(TOLERATION_SECONDS, "0"))
        if below is None or window is None:
            return NO_TOLERATION
        return ClassToleration(below, math.inf if window < 0 else float(window))

    def protects_until(self, now: float) -> float:
        """The latest end of windows, in seconds since the epoch; -inf if none holds now."""
        schedule = self.policy.protection.schedule if self.policy else None
        ends = math.inf if schedule is None else schedule.ends(now)
        return -math.inf if ends is None else ends


def kubernetes_rules() -> Rules:
    """Plain Kubernetes: who has a lower priority may go, budgets are kept if possible."""
    return Rules("kubernetes", None, frozenset())


def compile_rules(policy: PreemptionPolicy) -> Rules:
    """A policy's rules. Raises ClusterError for an unreadable label selector."""
    victims = policy.victims
    matcher = partial(_pods_matcher, policy.name)
    pairs = [PairMatcher(matcher(pair.preemptors), matcher(pair.victims)) for pair in victims.pairs or ()]
    return Rules(
        name=policy.name,
        policy=policy,
        annotations=victims.annotations_read | KEPT_ANNOTATIONS,
        pairs=None if victims.pairs is None else tuple(pairs),
        strict_budgets=policy.budgets is BudgetMode.STRICT,
        evicts=policy.eviction is EvictionMode.EVICT,
        across=victims.across_nodes,
    )


def _signalled(signal: Signal, value: str, *, may_go: bool) -> VictimReason:
    text = f'its annotation {signal.annotation} says "{value}"'
    return VictimReason("signal", text, may_go)


def _first(keys: Iterable[str], annotations: Mapping[str, str]) -> str | None:
    """The first key's value that is there; an empty one is none (Gödel's `len(...) == 0`)."""
    return next((annotations[key] for key in keys if annotations.get(key)), None)


def _speaks(name: str, priority: int | None, classes: Classes) -> bool:
    """Whether the class of this name speaks for a pod; without classes nobody knows."""
    return not classes or speaking(classes.get(name), priority) is not None


def _pods_matcher(policy: str, match: PodsMatch) -> PodsMatcher:
    """A side of a pair; what is absent holds. Raises ClusterError for a selector."""
    try:
        labels = label_matcher(match.labels or LabelSelector())
        namespace_labels = label_matcher(match.namespace_selector or LabelSelector())
    except SelectorError as error:
        raise ClusterError(f"policy {policy}: pairs: {error}") from error
    namespaces = (WILDCARD,) if match.namespaces is None else match.namespaces
    of_namespaces = name_matcher(namespaces)

    def pod_matches(namespace: str, own: Labels, of_namespace: Labels | None) -> bool:
        if of_namespace is None and match.namespace_selector is not None:
            return False
        return of_namespaces(namespace) and namespace_labels(of_namespace or {}) and labels(own)

    of_classes = match.priority_classes or (WILDCARD,)
    of_class, any_class = name_matcher(of_classes), WILDCARD in of_classes

    def class_matches(name: str, priority: int | None, classes: Classes) -> bool:
        return any_class or (of_class(name) and _speaks(name, priority, classes))

    return PodsMatcher(class_matches, pod_matches)
