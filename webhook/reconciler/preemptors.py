"""Which pods are the reconciler's, by which policy it acts for them, and what their schedulers say.

The webhook marked a preemptor, a PreemptionPolicy manages its class, and its scheduler found it
unschedulable. If no scheduler was seen at work, no node is to blame for a pod that is not bound (D8).
"""

from __future__ import annotations

import math

from webhook.kube.bounded import Newest
from webhook.kube.instants import epoch_or
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import Condition, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import RESIZE_PENDING, is_deferred, resize_pending
from webhook.policy.evaluation.engine import ManagedClasses
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import MANAGED, MARK
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.preemption.victims.rules import compile_rules

_GAP = 330.0
"""Seconds without a sign after which a scheduler may be away: it tries waiting pods every 5 min."""
_PATIENCE = 60.0
"""Seconds after which a scheduler that leaves a fitting pod pending does not want to place it."""
_SCHEDULERS = 100
"""Schedulers that are remembered."""


class PolicySet:
    """The policies in force. There is one set in a process, so whoever holds it sees changes."""

    def __init__(self, policies: Policies) -> None:
        self.use(policies)

    def use(self, policies: Policies) -> None:
        """Use these. Raises ClusterError, and changes nothing, if one is wrong."""
        self.rules = {policy.name: compile_rules(policy) for policy in policies.preemption}
        """The compiled rules of each PreemptionPolicy, by its name."""
        self.policies = policies
        self.managed = ManagedClasses(policies.preemption).managed
        """By PriorityClass its policy and its twin."""

    def policy_to_act_by(self, pod: Pod) -> PreemptionPolicy | None:
        """The policy to preempt by for a pod; None if it is left alone."""
        policy = self.policy_of(pod)
        return None if ineligible_reason(pod, policy) else policy

    def policy_of(self, pod: Pod) -> PreemptionPolicy | None:
        """The policy that manages the pod's class; None if none does."""
        managed = self.managed(pod.spec.priority_class_name)
        return managed.policy if managed else None

    def annotations(self) -> frozenset[str]:
        """The pod annotations that some rule reads."""
        return frozenset().union(*(rules.annotations for rules in self.rules.values()))


def is_marked(pod: Pod) -> bool:
    """Whether the webhook handed this pod's preemption to the reconciler."""
    return (pod.metadata.labels or {}).get(MARK) == MANAGED


def policy_for(pod: Pod | None, policy_set: PolicySet) -> PreemptionPolicy | None:
    """The policy by which a plan for the pod goes on; None if nobody may preempt."""
    policy = policy_set.policy_of(pod) if pod else None
    return policy if pod and not _not_managed(pod, policy) else None


def grace_under(policy: PreemptionPolicy, victim: Pod) -> int:
    """How many seconds a victim gets to end."""
    grace = policy.grace_period_seconds
    return grace_of(victim) if grace is None else grace


def ineligible_reason(pod: Pod, policy: PreemptionPolicy | None) -> str:
    """Why the reconciler leaves this pod alone; empty if it is a preemptor to act for.

    `policy` manages the pod's class, None if none does. Its delay says when, not whether.
    """
    spec, phase = pod.spec, pod.status.phase
    if (not_managed := _not_managed(pod, policy)) or policy is None:
        return not_managed
    if pod.metadata.deletion_timestamp:
        return "it is being deleted"
    if spec.node_name:
        bound = f"it is bound to node {spec.node_name}"
        if resize_pending(pod) == "Infeasible":
            return f"{bound}, and its resize is Infeasible: nobody's leaving would help"
        if not is_deferred(pod) or phase != "Running":
            return bound
        nobody = f"policy {policy.name} evicts nobody for pods that want to grow (preemptors.resize)"
        return "" if policy.preemptors.resize else f"{bound}, and {nobody}"
    if phase not in ("", "Pending"):
        return f"its phase is {phase}, not Pending"
    if spec.scheduling_gates:
        return "it has scheduling gates"
    if unschedulable_since(pod) is None:
        return "the scheduler has not found it unschedulable"
    return ""


def _not_managed(pod: Pod, policy: PreemptionPolicy | None) -> str:
    """Why nobody preempts for the pod by this policy, whatever becomes of it."""
    spec = pod.spec
    if not is_marked(pod):
        return f"it does not carry the label {MARK}={MANAGED}, which only the webhook gives"
    if policy is None:
        return f"no PreemptionPolicy manages its priority class {spec.priority_class_name!r}"
    if spec.scheduler_name not in policy.preemptors.scheduler_names:
        names = ", ".join(map(repr, policy.preemptors.scheduler_names))
        return f"policy {policy.name} acts for pods of {names}; this one is of {spec.scheduler_name!r}"
    if spec.preemption_policy != "Never":
        return "its preemptionPolicy is not Never, so kube-scheduler preempts for it by itself"
    return ""


def lacks_post_filter(pod: Pod) -> bool:
    """Whether its scheduler's last word is that of a profile without PostFilter plugins.

    kube-scheduler appends what PostFilter found ("preemption: …") to that message.
    """
    said = scheduler_refusal(pod)
    if said is None or said.reason != "Unschedulable":
        return False
    return "preemption:" not in (said.message or "")


def unschedulable_since(pod: Pod) -> float | None:
    """Since when no node is found, or no room to grow, in seconds since the epoch."""
    said = scheduler_refusal(pod)
    if is_deferred(pod):
        said = next(row for row in pod.status.conditions or () if row.type == RESIZE_PENDING)
    elif said is None or said.reason != "Unschedulable":
        return None
    return epoch_or(said.last_transition_time or pod.metadata.creation_timestamp, 0.0)


def scheduler_refusal(pod: Pod) -> Condition | None:
    """What the scheduler said of a pod it did not bind, if anything."""
    rows = pod.status.conditions or ()
    return next((row for row in rows if row.type == "PodScheduled" and row.status == "False"), None)


class SchedulerActivity:
    """When each scheduler was seen at work, in monotonic seconds.

    It is seen if it binds a pod, or says something new of one that it does not bind. Between two signs that
    are not far apart it was at work, too.
    """

    def __init__(self) -> None:
        self._seen: Newest[str, tuple[float, float]] = Newest(_SCHEDULERS)
        """By scheduler the first and last sign of its last stretch of work."""
        self._refused: dict[str, float] = {}
        """By waiting pod (key) when its scheduler last said something new of it."""
        self._fits_since: dict[str, float] = {}
        """By waiting pod since when it fits somewhere."""

    def observe(self, change: Change[Pod], now: float) -> None:
        """A pod's change may show that its scheduler is at work."""
        key, old, new = change.key, change.old, change.new
        if new is None or new.spec.node_name:
            self._refused.pop(key, None)
            self._fits_since.pop(key, None)
        if not new or not old or new.metadata.deletion_timestamp or old.spec.node_name:
            return
        if not new.spec.node_name:
            if scheduler_refusal(new) in (None, scheduler_refusal(old)):
                return
            self._refused[key] = now
        scheduler = new.spec.scheduler_name
        begin, last = self._seen.get(scheduler, (now, now))
        self._seen[scheduler] = (begin if now - last <= _GAP else now, now)

    def chance(self, pod: Pod, since: float, seconds: float) -> float:
        """From when on the pod's scheduler had the chance to bind it, infinite if unknown.

        It had, if it said something new `since` then, or worked for half of the `seconds`.
        """
        if self._refused.get(key_of(pod), -math.inf) >= since:
            return since
        begin, last = self._seen.get(pod.spec.scheduler_name, (math.inf, -math.inf))
        begin = max(begin, since)
        return begin if last - begin >= seconds / 2 else math.inf

    def overdue(self, pod: Pod, *, fits: bool, now: float) -> bool:
        """Whether the scheduler had its chance and leaves a fitting pod pending."""
        if not fits:
            self._fits_since.pop(key_of(pod), None)
            return False
        since = self._fits_since.setdefault(key_of(pod), now)
        return self.chance(pod, since, _PATIENCE) + _PATIENCE <= now
