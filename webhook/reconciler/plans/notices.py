"""Notices of plans: who may be asked by now, because it is over or the pod is ready, and behind which a plan stands.

Nothing remembers which notices there are but the pods that carry them. One that no plan under way stands behind is
taken off, whoever wrote it, and however that plan ended.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from webhook.kube.informer import Informer
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.reconciler.plans.plan import Plan, PlanIndex
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.notices import has_notice, is_ready, notice_of
from webhook.reconciler.state.state import State


class Askable(NamedTuple):
    """The victims that may be asked, and when the next notice of another one is over, in monotonic seconds."""

    victims: list[PlanVictim]
    later: float


def not_told(plan: Plan, left: Collection[PlanVictim], seconds: float) -> tuple[PlanVictim, ...]:
    """Of the victims that are left those that have no notice yet; nobody gets one of 0 seconds."""
    return tuple(victim for victim in left if victim.uid not in plan.notices) if seconds else ()


def askable(state: State, plan: Plan, left: Collection[PlanVictim], now: float) -> Askable:
    """Of the victims that are left those whose notice is over, or that say that they are ready.

    Those of a group wait for one another, since a group goes at once, and so do all of a plan that holds devices, since
    these have to come free together.
    """
    untimely = [victim for victim in left if plan.notices.get(victim.uid, now) > now]
    pods = {victim.uid: state.pod_of(victim.key, victim.uid) for victim in untimely}
    waiting = {uid for uid, pod in pods.items() if pod is None or not is_ready(pod, plan.id)}
    later = min((plan.notices[uid] for uid in waiting), default=math.inf)
    if waiting and plan.devices:
        return Askable([], later)
    groups = {victim.group for victim in left if victim.uid in waiting} - {0}
    return Askable([victim for victim in left if victim.uid not in waiting and victim.group not in groups], later)


class Notices:
    """Which pods' notices are to be looked at, and whether a plan under way stands behind one.

    `unanswered` are plans that are over, by id, whose victims are still being asked.
    """

    def __init__(self, index: PlanIndex, unanswered: Mapping[str, Plan]) -> None:
        self.unchecked: dict[str, None] = {}
        """Pods whose notice is to be looked at, once no plan is left that may be taken over."""
        self._index = index
        self._unanswered = unanswered

    def seen(self, key: str, pod: Pod) -> Plan | None:
        """A pod carries a notice; returns the plan that stands behind it. If none does it is to be looked at."""
        record = notice_of(pod)
        if record is not None and self.stands(pod):
            return self._index.by_id.get(record.plan)
        self.unchecked[key] = None
        return None

    def left(self, change: Change[Pod]) -> tuple[Plan, Pod] | None:
        """A victim that leaves though it has not been asked, and the plan that told it: so it left because of that."""
        old, new = change.old, change.new
        record = notice_of(old) if old is not None else None
        plan = self._index.by_id.get(record.plan) if record is not None else None
        if plan is None or old is None:
            return None
        stays = new is not None and not (new.metadata.deletion_timestamp or is_terminal(new))
        uid = old.metadata.uid
        return None if stays or uid not in plan.notices or uid in plan.asking or not plan.needs(uid) else (plan, old)

    def look_at(self, plan: Plan) -> None:
        """A plan may not stand behind the notices of its victims any more."""
        self.unchecked |= {victim.key: None for victim in plan.record.victims if victim.uid in plan.notices}

    def withdrawn_next(self, pods: Informer[Pod]) -> str:
        """One of the pods that are to be looked at if its notice is to be taken off; empty if that is not."""
        key, _ = self.unchecked.popitem()
        pod = pods.get(key)
        return key if pod is not None and has_notice(pod) and not self.stands(pod) else ""

    def stands(self, pod: Pod) -> bool:
        """Whether the notice on a pod is that of a plan that wants it to go, or the pod leaves anyway."""
        record, uid = notice_of(pod), pod.metadata.uid
        if pod.metadata.deletion_timestamp:
            return True
        if record is None:
            return False
        if (plan := self._index.by_id.get(record.plan)) is None:
            over = self._unanswered.get(record.plan)
            return over is not None and uid in over.asking
        return uid not in plan.unneeded and any(victim.uid == uid for victim in plan.record.victims)
