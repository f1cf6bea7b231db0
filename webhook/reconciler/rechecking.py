"""A look at a plan's own node between the decision and an eviction: whether its victims still have to go there.

One node is cheap, so it is looked at before every eviction, if anything came free there since it was last looked at.
"""

from __future__ import annotations

import numpy as np

from webhook.kube.objects import Pod
from webhook.preemption.decision import fits, fits_on
from webhook.reconciler.deciding import World, looks_around
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
    if plan.gone and plan.freed != state.freed and not plan.left_out.issuperset(fits(state.snapshot, pod)):
        return "it fits without further evictions by now"
    freed = state.freed_on(plan.node)
    if freed == plan.freed_there and not looks_around(pod):
        return ""
    plan.freed_there = freed
    if fits_on(state.snapshot, pod, plan.node):
        return f"it fits on {plan.node} by now"
    return _room_comes_up(world, plan, pod, wait)


def _room_comes_up(world: World, plan: Plan, pod: Pod, wait: float) -> str:
    """Whether the pods that leave anyway, and the victims that have been asked, make the room."""
    snapshot = world.state.snapshot
    unasked = [victim.key for victim in plan.record.victims if victim.uid not in plan.gone]
    leaving = np.setdiff1d(world.leaving_within(wait), snapshot.pod_rows(unasked))
    if len(leaving) and fits_on(snapshot, pod, plan.node, without=leaving):
        return f"it fits on {plan.node} once pods that are leaving anyway are gone"
    return ""
