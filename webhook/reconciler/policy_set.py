"""The policies in force, with the decision's rules compiled once for each."""

from __future__ import annotations

from webhook.kube.objects import Pod
from webhook.policy.evaluation.managed_classes import Managed, ManagedClasses
from webhook.policy.model import Policies, PreemptionPolicy
from webhook.preemption.victims.rules import Rules, compile_rules

__all__ = ["PolicySet"]


class PolicySet:
    """Which PreemptionPolicy manages a pod, and its rules. There is one in a process: whoever holds it sees changes."""

    def __init__(self, policies: Policies) -> None:
        self.use(policies)

    def use(self, policies: Policies) -> None:
        """Take these policies into use, all at once. Raises ClusterError, and changes nothing, if one is wrong."""
        rules = {policy.name: compile_rules(policy) for policy in policies.preemption}
        self._classes, self._rules = ManagedClasses(policies.preemption), rules
        self._policies = {policy.name: policy for policy in policies.preemption}
        self.policies_in_force = policies

    def policy_of(self, pod: Pod) -> PreemptionPolicy | None:
        """The policy that manages the pod's class; None if none does."""
        managed = self.managed(pod.spec.priority_class_name)
        return managed.policy if managed else None

    def managed(self, priority_class_name: str) -> Managed | None:
        """The policy that manages pods of this class, and their twin class; None if none does."""
        return self._classes.managed(priority_class_name)

    def rules_of(self, policy: PreemptionPolicy) -> Rules:
        """The decision's rules of that policy."""
        return self._rules[policy.name]

    def annotations(self) -> frozenset[str]:
        """The pod annotations that some rule reads."""
        return frozenset().union(*(rules.annotations for rules in self._rules.values()))

    def policies(self) -> list[PreemptionPolicy]:
        """All policies."""
        return list(self._policies.values())
