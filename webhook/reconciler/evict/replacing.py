"""A nomination that takes the place of one whose node went, in one patch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.plans.plan import Plan

_PAUSE, _LOOKS = 0.05, 100
"""Seconds between two looks whether the following plan is written, and how many there are."""


async def is_replaced(ended: Plan, plans: Mapping[str, Plan]) -> bool:
    """Whether the following plan for the preemptor was written in the place of one whose node went.

    `plans` are those under way, by preemptor. An autoscaler that looks between two patches adds a node for a pod
    without a nomination.
    """
    following = plans.get(ended.key)
    if following is None or ended.ended is not Ending.NODE_GONE:
        return False
    for _ in range(_LOOKS):
        if not following.nominated and following.ended is None:
            await asyncio.sleep(_PAUSE)
    return following.nominated
