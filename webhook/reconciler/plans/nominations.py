"""Whose nomination a plan takes: pods of lower priority that do not fit on its node beside its preemptor.

Narrower than kube-scheduler on purpose (`DefaultPreemption`'s `prepareCandidate` clears every lower nomination on the
node): a pod that fits beside the preemptor keeps its place, and pods of another scheduler are that scheduler's.
"""

from __future__ import annotations

import numpy as np

from webhook.kube.objects import Pod, key_of
from webhook.preemption.decision import fits_on
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.state import State

__all__ = ["to_displace"]


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nomination to the plan's node is to be cleared.

    Judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its place
    against those after it.
    """
    preemptor = state.pod(plan.key)
    if preemptor is None:
        return []
    scheduler = preemptor.spec.scheduler_name
    lower = [
        pod for pod in state.lower_nominated(plan.node, plan.priority, plan.key) if pod.spec.scheduler_name == scheduler
    ]
    lower.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)))
    snapshot, undecided, displaced = state.snapshot, {key_of(pod) for pod in lower}, []
    leaving = snapshot.pods.leaving()
    for pod in lower:
        without = np.union1d(leaving, snapshot.pod_rows(undecided)).astype(np.intp)
        if fits_on(snapshot, pod, plan.node, without=without):
            undecided.discard(key_of(pod))
        else:
            displaced.append(pod)
    return displaced
