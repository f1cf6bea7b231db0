"""A look at a plan's own node between the decision and an eviction: does it make sense, who still has to go there.

Looking is cheap, so it is done before every eviction. What has to be worked out is worked out again if anything at all
has happened since, or if other pods leave soon enough by now to be counted on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from webhook.kube.objects import Pod, key_of
from webhook.kube.pods import is_terminal
from webhook.preemption.decision import fits, fits_on, victims_needed
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

__all__ = ["Unneeded", "is_there", "objection", "to_displace", "unneeded"]


class Unneeded(NamedTuple):
    """Victims, by uid, that have not been asked and may stay, and why."""

    uids: frozenset[str] = frozenset()
    why: str = ""


def objection(evaluator: Evaluator, plan: Plan) -> str:
    """Why a plan whose nomination stands should not go on to evict; empty if it should.

    Where it fits is worked out again if anything has happened since that was last done.
    """
    state = evaluator.state
    pod = state.pod(plan.key)
    if pod is None or pod.metadata.uid != plan.uid or pod.metadata.deletion_timestamp or pod.spec.node_name:
        return "the preemptor is gone or bound"
    if state.nodes.get(plan.node) is None:
        return f"node {plan.node} is gone"
    for victim in plan.victims:
        seen, decided = state.pod(victim.key), plan.decided.get(victim.uid)
        if seen is None or decided is None or seen.metadata.uid != decided.uid or not plan.needs(victim.uid):
            continue
        if (seen.metadata.labels, seen.metadata.annotations) != (decided.labels, decided.annotations):
            return f"victim {victim.key} has changed since the decision"
    if plan.looked == state.snapshot.version:
        return ""
    if not evaluator.has_room(pod, plan.node):
        return f"evicting would not make room on {plan.node} any more"
    found = () if plan.gone else fits(state.snapshot, pod)
    if plan.node not in found and not plan.left_out.issuperset(found):
        return "it fits without preemption by now"
    return ""


def unneeded(evaluator: Evaluator, plan: Plan, wait: float, asking: frozenset[str] = frozenset()) -> Unneeded:
    """Which victims of a plan may stay; not those that have been asked or, by uid, are being asked.

    All of them if the preemptor fits by now. Otherwise those without which it fits once the other victims are gone,
    however long these take, and the pods that leave anyway within `wait` seconds.
    """
    state = evaluator.state
    pod = state.pod(plan.key)
    soon = evaluator.leaving_within(wait)
    if (plan.looked, plan.counted_on) != (state.snapshot.version, soon.tobytes()):
        plan.looked, plan.counted_on, plan.found_needed = state.snapshot.version, soon.tobytes(), set()
    unasked = frozenset(victim.uid for victim in plan.victims if is_there(state, plan, victim)) - asking
    if pod is None or unasked <= plan.found_needed:
        return Unneeded()
    plan.found_needed |= unasked
    found = fits(state.snapshot, pod)
    if plan.node in found:
        return Unneeded(unasked, f"it fits on {plan.node} by now")
    if plan.gone and not plan.left_out.issuperset(found):
        return Unneeded(unasked, "it fits without further evictions by now")
    # The snapshot's rows of the victims that are there; a new pod of a victim's name is none.
    uids, pods = {victim.uid for victim in plan.victims}, state.snapshot.pods
    rows = state.snapshot.pod_rows([victim.key for victim in plan.victims]).tolist()
    victims = {pods.uids[row]: row for row in rows if pods.uids[row] in uids}
    going = [row for uid, row in victims.items() if uid not in unasked | plan.unneeded]
    among = np.array([row for uid, row in victims.items() if uid in unasked], np.intp)
    leaves = np.zeros(pods.rows, np.bool_)
    leaves[soon] = True
    leaves[going] = True
    leaves[among] = False
    must_go = victims_needed(state.snapshot, pod, plan.node, among, without=np.flatnonzero(leaves))
    staying = unasked - {pods.uids[row] for row in must_go.tolist()}
    return Unneeded(staying, f"it fits on {plan.node} without them once pods that are leaving are gone")


def is_there(state: State, plan: Plan, victim: PlanVictim) -> bool:
    """Whether the victim has yet to be asked, and is not leaving for another reason either."""
    pod = state.pod(victim.key)
    if pod is None or pod.metadata.uid != victim.uid or not plan.needs(victim.uid):
        return False
    return not pod.metadata.deletion_timestamp and not is_terminal(pod)


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nomination to the plan's node is to be cleared: those that do not fit beside its preemptor.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
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
