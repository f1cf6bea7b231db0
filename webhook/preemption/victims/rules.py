"""Who may be a victim: Kubernetes' plain rule, or a PreemptionPolicy compiled (docs/semantics.md C and D4).

A policy's rules are judged on what many pods share (`Profile`), so a decision asks each question once per distinct
class, scheduler and annotations instead of once per pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from webhook.kube.objects import Pod, PriorityClass
from webhook.kube.selectors import Labels, SelectorError, label_matcher
from webhook.policy.model import BudgetMode, EvictionMode, PodsMatch, PreemptionPolicy, VictimMode
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_view import Profile
from webhook.preemption.snapshot.snapshot import KEPT_ANNOTATIONS

__all__ = ["SYSTEM_CRITICAL", "PodsMatcher", "Rules", "VictimReason", "compile_rules", "kubernetes_rules"]

SYSTEM_CRITICAL = 2_000_000_000
"""Pods of this priority and above are Kubernetes' own; no policy makes them victims."""

_WHOLE_SECONDS = re.compile(r"[+-]?\d{1,18}", re.ASCII)
Classes = Mapping[str, PriorityClass]


class VictimReason(NamedTuple):
    """Why a pod may not go, or why it may: the rule's name within its policy, and the sentence for people."""

    rule: str
    text: str
    may_go: bool = False


class PodsMatcher(NamedTuple):
    """The victims of a pair, split by what decides: a PriorityClass name, and namespace with labels."""

    class_matches: Callable[[str], bool]
    pod_matches: Callable[[str, Labels, Labels], bool]


@dataclass(frozen=True, eq=False)
class Rules:
    """Compiled rules; `policy` is None for plain Kubernetes.

    `annotations` are the pod annotations the rules read: a Snapshot has to keep them.
    """

    name: str
    policy: PreemptionPolicy | None
    annotations: frozenset[str]

    @property
    def strict_budgets(self) -> bool:
        """Whether a used-up budget excludes a pod, instead of only counting against the node."""
        return self.policy is not None and self.policy.budgets is BudgetMode.STRICT

    @property
    def evicts(self) -> bool:
        """Whether victims go by the Eviction API, which refuses pods that more than one budget covers."""
        return self.policy is not None and self.policy.eviction is EvictionMode.EVICT

    @property
    def never_may_preempt(self) -> bool:
        """Whether `preemptionPolicy: Never` is by design: the policy's pods are Never to kube-scheduler only."""
        return self.policy is not None

    def reason(self, profile: Profile, classes: Classes) -> VictimReason:
        """Whether the pod's scheduler, class and annotations let it be a victim."""
        if self.policy is None:
            return VictimReason("priority", "its priority is lower", may_go=True)
        victims = self.policy.victims
        if profile.scheduler_name not in victims.scheduler_names:
            names = ", ".join(victims.scheduler_names)
            return VictimReason("scheduler", f"its scheduler is {profile.scheduler_name!r}, the policy is for {names}")
        if victims.mode is VictimMode.OPT_IN:
            return self._opt_in(profile, classes)
        return self._opt_out(profile, classes)

    def protection(self, profile: Profile) -> float:
        """For how many seconds after its start the pod is protected; 0 for not at all."""
        if self.policy is None:
            return 0.0
        text = _first(self.policy.victims.protection_annotations, dict(profile.annotations))
        asked = float(int(text)) if text is not None and _WHOLE_SECONDS.fullmatch(text) else None
        seconds = self.policy.protection.default if asked is None else asked
        longest = self.policy.protection.maximum
        return max(0.0, seconds if longest is None else min(seconds, longest))

    def pairs_for(self, preemptor: Pod, namespace_labels: Labels) -> list[PodsMatcher] | None:
        """The victims' sides of the pairs whose preemptors' side is this pod; None if there are no pairs."""
        if self.policy is None or self.policy.victims.pairs is None:
            return None
        meta, class_name = preemptor.metadata, preemptor.spec.priority_class_name
        sides = []
        for pair in self.policy.victims.pairs:
            own = _side(pair.preemptors, self.name)
            if own.class_matches(class_name) and own.pod_matches(meta.namespace, meta.labels or {}, namespace_labels):
                sides.append(_side(pair.victims, self.name))
        return sides

    def _opt_in(self, profile: Profile, classes: Classes) -> VictimReason:
        """Gödel's rules: the pod says "true", or says nothing and its class says "true"."""
        assert self.policy is not None
        keys = self.policy.victims.preemptible_annotations
        if not profile.priority_class_name:
            return VictimReason("no-priority-class", "it has no priorityClassName, so it is never a victim")
        own = _first(keys, dict(profile.annotations))
        if own == "true":
            return VictimReason("opt-in", 'its annotation says "true"', may_go=True)
        if own is not None:
            return VictimReason("opt-in", f'its annotation says "{own}", not "true"')
        name = profile.priority_class_name
        if name not in classes:
            return VictimReason("opt-in", f"neither it nor a known PriorityClass says it may go: {name} is not known")
        of_class = _first(keys, classes[name].metadata.annotations or {})
        if of_class == "true":
            return VictimReason("opt-in", f'the annotation of PriorityClass {name} says "true"', may_go=True)
        return VictimReason("opt-in", f'neither its annotations nor those of PriorityClass {name} say "true"')

    def _opt_out(self, profile: Profile, classes: Classes) -> VictimReason:
        """Plain Kubernetes, except for what is marked "false"."""
        assert self.policy is not None
        keys = self.policy.victims.preemptible_annotations
        own = _first(keys, dict(profile.annotations))
        if own == "false":
            return VictimReason("opt-out", 'its annotation says "false"')
        if own is not None:
            return VictimReason("opt-out", f'its annotation says "{own}", not "false"', may_go=True)
        found = classes.get(profile.priority_class_name)
        if found is not None and _first(keys, found.metadata.annotations or {}) == "false":
            return VictimReason(
                "opt-out", f'the annotation of PriorityClass {profile.priority_class_name} says "false"'
            )
        return VictimReason(
            "opt-out", 'neither its annotations nor those of its PriorityClass say "false"', may_go=True
        )


def kubernetes_rules() -> Rules:
    """Plain Kubernetes: whoever has a lower priority may go, budgets are kept if possible."""
    return Rules("kubernetes", None, frozenset())


def compile_rules(policy: PreemptionPolicy) -> Rules:
    """A policy's rules. Raises ClusterError for a label selector that cannot be parsed."""
    victims = policy.victims
    annotations = frozenset(victims.preemptible_annotations) | frozenset(victims.protection_annotations)
    for pair in victims.pairs or ():
        _side(pair.preemptors, policy.name)
        _side(pair.victims, policy.name)
    return Rules(policy.name, policy, annotations | KEPT_ANNOTATIONS)


def _first(keys: Iterable[str], annotations: Mapping[str, str]) -> str | None:
    """The value of the first key that is there; an empty value is as good as none (Gödel's `len(...) == 0`)."""
    return next((annotations[key] for key in keys if annotations.get(key)), None)


def _side(match: PodsMatch, policy: str) -> PodsMatcher:
    try:
        labels = label_matcher(match.labels) if match.labels is not None else None
        namespace = label_matcher(match.namespace_selector) if match.namespace_selector is not None else None
    except SelectorError as error:
        raise ClusterError(f"policy {policy}: pairs: {error}") from error

    def class_matches(name: str) -> bool:
        return match.priority_classes is None or _named(match.priority_classes, name)

    def pod_matches(of_namespace: str, own: Labels, namespace_labels: Labels) -> bool:
        if match.namespaces is not None and not _named(match.namespaces, of_namespace):
            return False
        if namespace is not None and not namespace(namespace_labels):
            return False
        return labels is None or labels(own)

    return PodsMatcher(class_matches, pod_matches)


def _named(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
