"""The plans of gangs, by gang: those for the members that are placed together."""

from __future__ import annotations

from webhook.reconciler.plans.plan import Plan


class Siblings:
    """Plans under way of which each is for one member of a gang; other plans have no siblings."""

    def __init__(self) -> None:
        self._of_gang: dict[str, dict[str, Plan]] = {}

    def add(self, plan: Plan) -> None:
        """The plan has begun."""
        if plan.record.gang:
            self._of_gang.setdefault(plan.record.gang.id, {})[plan.key] = plan

    def remove(self, plan: Plan) -> None:
        """The plan has ended."""
        if plan.record.gang:
            del self._of_gang[plan.record.gang.id][plan.key]
            if not self._of_gang[plan.record.gang.id]:
                del self._of_gang[plan.record.gang.id]

    def of(self, plan: Plan) -> list[Plan]:
        """The plans for the other members of a plan's gang."""
        known = self._of_gang.get(plan.record.gang.id, {}) if plan.record.gang else {}
        return [sibling for sibling in known.values() if sibling is not plan]

    def have_evicted(self, plan: Plan) -> bool:
        """Whether somebody was asked to leave for this plan, or for another member of its gang."""
        known = self._of_gang.get(plan.record.gang.id, {}) if plan.record.gang else {}
        return bool(plan.gone) or any(sibling.gone for sibling in known.values())
