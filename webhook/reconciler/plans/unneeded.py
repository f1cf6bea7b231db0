"""Which victims of a plan need not go any more. Pure, but for what the plan remembers of the last look."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from webhook.preemption.decision import fits, victims_needed
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.candidate_room import rows_without
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.plan import Plan, is_there


class Unneeded(NamedTuple):
    """Victims, by uid, that have not been asked and may stay, and why."""

    uids: frozenset[str] = frozenset()
    why: str = ""


def unneeded(
    evaluator: Evaluator,
    plan: Plan,
    rules: Rules,
    wait: float,
    *,
    at: Now,
    asking: frozenset[str] = frozenset(),
    unsure: Collection[str] = (),
) -> Unneeded:
    """Which victims of a plan may stay; not those that have been asked or, by uid, are being asked.

    What goes together by the rules stays or goes whole: if one of a group has been asked, the others are needed.

    All of them if the preemptor fits by now. Otherwise those without which it fits once the other victims are gone,
    however long these take, and the pods that leave anyway within `wait` seconds; those that are `unsure` to leave, by
    `namespace/name`, are not counted on.
    """
    state = evaluator.state
    pod = state.pods.get(plan.key)
    leaving = rows_without(evaluator.room_within(wait, at), state.snapshot.pod_rows(list(unsure)))
    look = plan.look
    # With n plans there are n times as many pods that leave: each plan keeps a digest of them
    counted = blake2b(leaving.tobytes(), digest_size=16).digest() if len(leaving) else b""
    if (look.version, look.counted_on) != (state.snapshot.version, counted):
        look.note_version(state.snapshot.version)
        look.count_on(counted)
    unasked = frozenset(victim.uid for victim in plan.record.victims if is_there(state, plan, victim)) - asking
    unasked -= plan.bound_to_go(asking)
    if pod is None or unasked <= look.needed:
        return Unneeded()
    # The snapshot's rows of the victims that are there; a new pod of a victim's name is none.
    uids, pods = {victim.uid for victim in plan.record.victims}, state.snapshot.pods
    rows = state.snapshot.pod_rows([victim.key for victim in plan.record.victims]).tolist()
    victims = {pods.uids[row]: row for row in rows if pods.uids[row] in uids}
    begun = np.array([row for uid, row in victims.items() if uid not in unasked | plan.unneeded], np.intp)
    among = np.array([row for uid, row in victims.items() if uid in unasked], np.intp)
    with pods.staying(among):
        fitting = fits(state.snapshot, pod)
    if plan.record.node in fitting:
        return Unneeded(unasked, f"it fits on {plan.record.node} by now")
    if plan.gone and not plan.left_out.issuperset(fitting):
        return Unneeded(unasked, "it fits without further evictions by now")
    without = np.setdiff1d(np.append(leaving, begun), among)
    with pods.staying(among):
        must_go = victims_needed(
            state.snapshot, pod, plan.record.node, among, rules=rules, begun=begun, without=without
        )
    staying = unasked - {pods.uids[row] for row in must_go.tolist()}
    look.need(unasked - staying)
    return Unneeded(staying, f"it fits on {plan.record.node} without them once pods that are leaving are gone")
