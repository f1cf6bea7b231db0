"""What to do for the preemptor whose turn it is: the decision, with what was learned about it and others like it."""

from __future__ import annotations

import math
from collections.abc import Collection

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.reconciler.evaluate.extender_client import ExtenderClient
from webhook.reconciler.evaluate.outcomes import Fits, Outcome, Unschedulable, Waits, without_nodes
from webhook.reconciler.evaluate.verdicts import Moment, Verdicts
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.queue.queue import Queue, QueuedPreemptor

_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""


class PreemptorEvaluation:
    """Evaluates entries of the queue; `verdicts` are those on the shapes of preemptors for whom nothing helps."""

    def __init__(
        self, manager: PlanManager, policy_set: PolicySet, queue: Queue, extender_client: ExtenderClient
    ) -> None:
        self.verdicts = Verdicts()
        self._manager = manager
        self._policy_set = policy_set
        self._queue = queue
        self._extender_client = extender_client

    def clear(self) -> None:
        """Forget the verdicts: the rules have changed."""
        self.verdicts.clear()

    def evaluate(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for a preemptor; if nothing helps another of its shape, nothing helps this one either."""
        there, evaluator = pod.spec.node_name or pod.status.nominated_node_name, self._manager.evaluator
        own = policy.extenders or there or evaluator.state.has_devices(pod)
        own = own or bool(evaluator.limiter.history.of(workload_of(pod), now))  # whose evictors it may not evict
        shape = evaluator.state.waiting.shape(entry.key)
        if own or entry.attempts or entry.nodes.left_out(now) or shape is None:
            return self._evaluate(entry, pod, policy, now)
        made = (at_creation(pod.metadata).labels or {}) if self._policy_set.rules[policy.name].pairs else {}
        labels = tuple(sorted(made.items()))
        key, moment = (policy.name, shape, group_of(pod), labels), Moment(now, self._queue.events, entry.back_off())
        if (known := self.verdicts.find(key, moment)) is not None:
            return known
        outcome = self._evaluate(entry, pod, policy, now)
        self.verdicts.note(key, moment, outcome)
        return outcome

    def _evaluate(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for a preemptor, given what was learned about it."""
        left_out = {left.node: left.until for left in entry.nodes.left_out(now)}
        try:
            outcome = self._decide(entry, pod, policy, left_out)
            if isinstance(outcome, Fits) and (until := entry.nodes.wherever_it_fits(now)) is not None:
                left_out |= dict.fromkeys(outcome.nodes, until)
                outcome = self._decide(entry, pod, policy, left_out)
        except ClusterError as error:
            return Unschedulable(str(error))
        except ExtenderError as error:
            return Unschedulable(str(error), due=now + entry.back_off() + _EXTENDER_PAUSE)
        if isinstance(outcome, Fits) and self._manager.dry_run and self._is_rehearsed(outcome.nodes):
            return Waits(outcome.nodes[0], 0)
        entry.left_out = frozenset(left_out)
        return without_nodes(outcome, left_out)

    def _decide(
        self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, left_out: dict[str, float]
    ) -> Outcome:
        rules, extenders = self._policy_set.rules[policy.name], self._extender_client.extenders(policy, pod)
        promised = self._manager.promised(pod)
        return self._manager.evaluator.evaluate(
            pod, policy, rules, entry.attempts, extenders=extenders, left_out=left_out, promised=promised
        )

    def _is_rehearsed(self, nodes: Collection[str]) -> bool:
        """Whether only rehearsed plans make the room on these nodes: kube-scheduler will bind nothing there."""
        made = {plan.record.node for plan in self._manager.plans.values() if math.isinf(plan.emptied)}
        return made.issuperset(nodes)
