"""The plans under way, by what they have in common: preemptor, id, node, victim, gang."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.reconciler.plans.plan import Plan


class PlanIndex:
    """Plans under way; each preemptor has at most one."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, Plan] = {}
        self.by_id: dict[str, Plan] = {}
        self._of: dict[tuple[str, str], dict[str, Plan]] = {}
        """The plans of a node, of a victim and of a gang, by preemptor."""

    def add(self, plan: Plan) -> None:
        """The plan has begun. Raises ValueError if the preemptor has one."""
        if plan.key in self.by_preemptor:
            raise ValueError(f"{plan.key} has a plan already: {self.by_preemptor[plan.key].record.id}")
        self.by_preemptor[plan.key] = plan
        self.by_id[plan.record.id] = plan
        for subject in _subjects(plan):
            self._of.setdefault(subject, {})[plan.key] = plan

    def remove(self, plan: Plan) -> None:
        """The plan has ended."""
        del self.by_preemptor[plan.key]
        self.by_id.pop(plan.record.id, None)
        for subject in _subjects(plan):
            del self._of[subject][plan.key]
            if not self._of[subject]:
                del self._of[subject]

    def on_node(self, node: str) -> list[Plan]:
        """The plans that hold room on a node."""
        return list(self._of.get(("node", node), {}).values())

    def naming(self, uid: str) -> list[Plan]:
        """The plans that name this victim, whichever node they hold room on: pods of a group may be on several."""
        return list(self._of.get(("victim", uid), {}).values())

    def siblings(self, plan: Plan) -> list[Plan]:
        """The plans for the other members of a plan's gang; other plans have none."""
        known = self._of.get(("gang", plan.record.gang.id), {}) if plan.record.gang else {}
        return [sibling for sibling in known.values() if sibling is not plan]

    def have_evicted(self, plan: Plan) -> bool:
        """Whether somebody was asked to leave for this plan, or for another member of its gang."""
        return bool(plan.gone) or any(sibling.gone for sibling in self.siblings(plan))


def _subjects(plan: Plan) -> Iterator[tuple[str, str]]:
    """Whatever a plan is known by beside its preemptor and its id."""
    yield "node", plan.record.node
    if plan.record.gang:
        yield "gang", plan.record.gang.id
    for victim in plan.record.victims:
        yield "victim", victim.uid
