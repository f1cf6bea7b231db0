"""What PreemptionPolicies say of classes and pods when these are admitted.

For pods of the PriorityClasses that they manage the reconciler preempts, not kube-scheduler.
"""

from collections.abc import Iterable

import msgspec

from webhook.policy.model.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION


class Managed(msgspec.Struct, frozen=True):
    """A PriorityClass that a PreemptionPolicy manages; pods of it go to `twin`, if there is one."""

    policy: PreemptionPolicy
    twin: str | None = None


_NODES_WAIT = 5.0
"""Seconds for which cluster-autoscaler leaves a marked pod to giveway by default (docs/how-to/autoscalers.md)."""


def scale_up_delay(preemptors: Preemptors) -> str:
    """The POD_SCALE_UP_DELAY of new pods, as Go writes a duration; empty if none is written."""
    seconds = preemptors.scale_up_delay
    if seconds is None:
        seconds = _NODES_WAIT if preemptors.delay < _NODES_WAIT else 0.0
    if not seconds:
        return ""
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


class ManagedClasses:
    """Which PreemptionPolicy manages a class; the first one that names it."""

    def __init__(self, policies: Iterable[PreemptionPolicy]) -> None:
        self._policies = [(policy, name_matcher(policy.preemptors.priority_classes)) for policy in policies]

    def managed(self, priority_class_name: str) -> Managed | None:
        """The policy that manages pods of this class, and their twin class; Kubernetes' own classes never are."""
        if not priority_class_name or priority_class_name.startswith("system-"):
            return None
        for policy, named in self._policies:
            twins = policy.preemptors.twins
            if priority_class_name in twins:
                return Managed(policy, twins[priority_class_name])
            if named(priority_class_name) or priority_class_name in twins.values():
                return Managed(policy)
        return None

    def managed_if_generated(self, prefix: str) -> Managed | None:
        """The policy that may manage a PriorityClass whose name the API server makes of this `generateName`.

        A glob that matches any name with this prefix counts; a name without `*`
        does not, because the API server chooses the rest of the name at random.
        """
        if not prefix or prefix.startswith("system-"):
            return None
        for policy, _ in self._policies:
            names = policy.preemptors.priority_classes
            if any(WILDCARD in name and intersect(name, f"{prefix}{WILDCARD}") for name in names):
                return Managed(policy)
        return None


def originals(policies: Iterable[PreemptionPolicy]) -> dict[str, tuple[str, ...]]:
    """The classes whose pods are moved to a twin, by the twin's name."""
    originals: dict[str, tuple[str, ...]] = {}
    for original, twin in (pair for policy in policies for pair in policy.preemptors.twins.items()):
        originals[twin] = (*originals.get(twin, ()), original)
    return originals


def shielded(policies: Iterable[PreemptionPolicy]) -> frozenset[str]:
    """The annotation keys by which the reconciler judges whether a pod may be evicted."""
    return frozenset((CAN_BE_PREEMPTED, PROTECTION_DURATION)).union(
        *(policy.victims.annotations_read for policy in policies)
    )
