"""A look at a plan's own node between the decision and an eviction: which of its victims still have to go there.

Looking is cheap, so it is done before every eviction, if anything at all has happened since it was last done, or if
other pods leave soon enough by now to be counted on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from webhook.preemption.decision import fits, victims_needed
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.preemptors import is_over
from webhook.reconciler.state.state import State

__all__ = ["Unneeded", "unneeded"]


class Unneeded(NamedTuple):
    """Victims, by uid, that have not been asked and may stay, and why."""

    uids: frozenset[str] = frozenset()
    why: str = ""


def unneeded(evaluator: Evaluator, plan: Plan, wait: float, asking: frozenset[str] = frozenset()) -> Unneeded:
    """Which victims of a plan may stay; not those that have been asked or, by uid, are being asked.

    All of them if the preemptor fits by now. Otherwise those without which it fits once the other victims are gone,
    however long these take, and the pods that leave anyway within `wait` seconds.
    """
    state = evaluator.state
    pod = state.pod(plan.key)
    soon = evaluator.leaving_within(wait)
    if (plan.looked, plan.counted_on) != (state.snapshot.version, soon.tobytes()):
        plan.looked, plan.counted_on, plan.needed = state.snapshot.version, soon.tobytes(), set()
    unasked = frozenset(victim.uid for victim in plan.record.victims if _may_stay(state, plan, victim)) - asking
    if pod is None or unasked <= plan.needed:
        return Unneeded()
    plan.needed |= unasked
    found = fits(state.snapshot, pod)
    if plan.node in found:
        return Unneeded(unasked, f"it fits on {plan.node} by now")
    if plan.gone and not plan.left_out.issuperset(found):
        return Unneeded(unasked, "it fits without further evictions by now")
    victims = _rows(state, plan)
    going = np.array([row for uid, row in victims.items() if uid not in unasked | plan.spared], np.intp)
    rows = np.array([row for uid, row in victims.items() if uid in unasked], np.intp)
    leaving = np.setdiff1d(np.union1d(soon, going), rows)
    must_go = victims_needed(state.snapshot, pod, plan.node, rows, without=leaving)
    staying = unasked - {state.snapshot.pods.uids[row] for row in must_go.tolist()}
    return Unneeded(staying, f"it fits on {plan.node} without them once pods that are leaving are gone")


def _may_stay(state: State, plan: Plan, victim: PlanVictim) -> bool:
    """Whether a victim has not been asked, and is not leaving for another reason either."""
    seen = state.pod(victim.key)
    if seen is None or seen.metadata.uid != victim.uid or not plan.needs(victim.uid):
        return False
    return not seen.metadata.deletion_timestamp and not is_over(seen)


def _rows(state: State, plan: Plan) -> dict[str, int]:
    """The snapshot's rows of the plan's victims that are there, by uid; a new pod of a victim's name is none."""
    uids, pods = {victim.uid for victim in plan.record.victims}, state.snapshot.pods
    found = state.snapshot.pod_rows([victim.key for victim in plan.record.victims]).tolist()
    return {pods.uids[row]: row for row in found if pods.uids[row] in uids}
