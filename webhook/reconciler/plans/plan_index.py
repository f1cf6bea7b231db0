"""The plans under way, by what they have in common: preemptor, id, node, gang."""

from __future__ import annotations

from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.siblings import Siblings


class PlanIndex:
    """Plans under way; each preemptor has at most one."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, Plan] = {}
        self.by_id: dict[str, Plan] = {}
        self.siblings = Siblings()
        self._on_node: dict[str, dict[str, None]] = {}
        """Node to the preemptors whose plans hold room there."""
        self._naming: dict[str, dict[str, None]] = {}
        """Victim, by uid, to the preemptors whose plans name it."""

    def add(self, plan: Plan) -> None:
        """The plan has begun. Raises ValueError if the preemptor has one."""
        if plan.key in self.by_preemptor:
            raise ValueError(f"{plan.key} has a plan already: {self.by_preemptor[plan.key].record.id}")
        self.by_preemptor[plan.key] = plan
        self.by_id[plan.record.id] = plan
        self.siblings.add(plan)
        self._on_node.setdefault(plan.record.node, {})[plan.key] = None
        for victim in plan.record.victims:
            self._naming.setdefault(victim.uid, {})[plan.key] = None

    def remove(self, plan: Plan) -> None:
        """The plan has ended."""
        del self.by_preemptor[plan.key]
        self.by_id.pop(plan.record.id, None)
        self.siblings.remove(plan)
        _drop(self._on_node, plan.record.node, plan.key)
        for victim in plan.record.victims:
            _drop(self._naming, victim.uid, plan.key)

    def on_node(self, node: str) -> list[Plan]:
        """The plans that hold room on a node."""
        return [self.by_preemptor[key] for key in self._on_node.get(node, ())]

    def naming(self, uid: str) -> list[Plan]:
        """The plans that name this victim, whichever node they hold room on: pods of a group may be on several."""
        return [self.by_preemptor[key] for key in self._naming.get(uid, ())]


def _drop(known: dict[str, dict[str, None]], name: str, key: str) -> None:
    del known[name][key]
    if not known[name]:
        del known[name]
