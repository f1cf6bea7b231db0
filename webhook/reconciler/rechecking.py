"""A look at a plan's own node between the decision and an eviction: whether its victims still have to go there.

Looking is cheap, so it is done before every eviction, if anything at all has happened since it was last done.
"""

from __future__ import annotations

import numpy as np

from webhook.kube.objects import Pod
from webhook.preemption.decision import fits, fits_on
from webhook.reconciler.deciding import World
from webhook.reconciler.plans import Plan

__all__ = ["enough"]


def enough(world: World, plan: Plan, wait: float) -> str:
    """Why nobody more has to go for a plan; empty while its victims are needed.

    Nobody has to if the preemptor fits by now, or will once pods that leave anyway within `wait` seconds are gone.
    """
    state = world.state
    pod = state.pod(plan.key)
    if pod is None:
        return ""
    if plan.looked == state.snapshot.version:
        return ""
    plan.looked = state.snapshot.version
    found = fits(state.snapshot, pod)
    if plan.node in found:
        return f"it fits on {plan.node} by now"
    if plan.gone and not plan.left_out.issuperset(found):
        return "it fits without further evictions by now"
    return _room_comes_up(world, plan, pod, wait)


def _room_comes_up(world: World, plan: Plan, pod: Pod, wait: float) -> str:
    """Whether the pods that leave anyway soon enough, and the victims that were asked, make the room.

    The plan waits for its own victims however long they take.
    """
    snapshot, victims = world.state.snapshot, plan.record.victims
    asked = snapshot.pod_rows([victim.key for victim in victims if victim.uid in plan.gone])
    unasked = snapshot.pod_rows([victim.key for victim in victims if victim.uid not in plan.gone])
    asked = np.intersect1d(asked, snapshot.pods.leaving())
    leaving = np.setdiff1d(np.union1d(world.leaving_within(wait), asked), unasked).astype(np.intp)
    if len(leaving) and fits_on(snapshot, pod, plan.node, without=leaving):
        return f"it fits on {plan.node} once pods that are leaving anyway are gone"
    return ""
