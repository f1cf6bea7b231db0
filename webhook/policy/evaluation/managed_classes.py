"""The PriorityClasses that PreemptionPolicies manage: for pods of them the reconciler preempts, not kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from webhook.policy.evaluation.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model import PreemptionPolicy

__all__ = ["Managed", "ManagedClasses"]


class Managed(msgspec.Struct, frozen=True):
    """A PriorityClass that a PreemptionPolicy manages; pods of it go to `twin`, if there is one."""

    policy: PreemptionPolicy
    twin: str | None = None


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

        A glob that matches any name with this prefix counts; a name without `*` does not, because the API server
        chooses the rest of the name at random.
        """
        if not prefix or prefix.startswith("system-"):
            return None
        for policy, _ in self._policies:
            names = policy.preemptors.priority_classes
            if any(WILDCARD in name and intersect(name, f"{prefix}{WILDCARD}") for name in names):
                return Managed(policy)
        return None
