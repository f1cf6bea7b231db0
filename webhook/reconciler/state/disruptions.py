"""Which disruption budgets cover a pod, and the evictions that their status does not count yet. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import msgspec

from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.budgets import is_lenient
from webhook.preemption.snapshot.pod_view import HEALTHY, STARTING, health_of

_OVERDUE = 120.0
"""Seconds after which a victim that is leaving is expected no more, whatever the status says: as long as the
disruption controller itself believes in an eviction (docs/kubernetes-behaviour.md K19)."""


@dataclass(slots=True)
class _Expected:
    """A victim of plans; `health` is as it was last seen before it was leaving, `since` when that was noticed."""

    plans: set[str]
    health: int
    leaving: bool
    spends: bool = True
    since: float | None = None


class Disruptions:
    """Evictions that a budget's status does not count yet, by budget (`namespace/name`) and victim's name.

    The Eviction API writes the victim into `status.disruptedPods` and takes it off `disruptionsAllowed` in one go;
    until the watch shows that, later decisions must not spend the same disruption again. A plain delete writes nothing:
    there the disruption controller counts the victim as no longer healthy once it is terminating
    (`countHealthyPods`), and `currentHealthy` falls.

    A victim that is not ready spends nothing either way if the budget is lenient with it: no status will ever count it
    (docs/kubernetes-behaviour.md K27). What is missed for another reason is expected for two minutes at most.
    """

    def __init__(self) -> None:
        self._covers: dict[str, dict[str, Matcher]] = {}
        """Namespace to its budgets, by key, and what each covers."""
        self._expected: dict[str, dict[str, _Expected]] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def covering(self, pod: Pod) -> list[str]:
        """The budgets that cover the pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        return [key for key, covers in self._covers.get(namespace, {}).items() if covers(labels)]

    def expect(self, budget: str, victim: Pod, plan: str) -> None:
        """This plan will use one disruption of the budget for the pod."""
        leaving = bool(victim.metadata.deletion_timestamp)
        expected = self._expected.setdefault(budget, {})
        plans = expected[victim.metadata.name].plans if victim.metadata.name in expected else set()
        expected[victim.metadata.name] = _Expected(plans | {plan}, HEALTHY if leaving else health_of(victim), leaving)

    def expected(self, budget: str) -> AbstractSet[str]:
        """The pods, by name, that are expected to use a disruption of the budget; not those that spend none."""
        return {name for name, disruption in self._expected.get(budget, {}).items() if disruption.spends}

    def overlay(self, key: str, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """The budget with what is expected already taken off; what its status shows is no longer expected."""
        expected = self._expected.get(key)
        if not expected:
            return budget
        for name in [name for name in budget.status.disrupted_pods or () if name in expected]:
            self._drop(key, name)
        lenient = is_lenient(budget)
        for disruption in expected.values():
            if not disruption.leaving:
                disruption.spends = disruption.health == HEALTHY or (disruption.health != STARTING and not lenient)
        spent = sum(disruption.spends for disruption in expected.values())
        if not spent:
            return budget
        allowed = max(0, budget.status.disruptions_allowed - spent)
        return msgspec.structs.replace(
            budget, status=msgspec.structs.replace(budget.status, disruptions_allowed=allowed)
        )

    def pod_changed(self, key: str, pod: Pod) -> list[str]:
        """A pod (`namespace/name`) is seen again; the budgets to look at again because it is one of the victims."""
        if not self._expected:
            return []
        namespace, _, name = key.partition("/")
        budgets = []
        for budget in self._with(namespace, name):
            disruption = self._expected[budget][name]
            if pod.metadata.deletion_timestamp:
                disruption.leaving = True
            elif (health := health_of(pod)) != disruption.health:
                disruption.health = health
                budgets.append(budget)
        return budgets

    def overdue(self, now: float) -> list[str]:
        """Forget who has been leaving for too long to be counted; the budgets to be looked at again.

        `now` is in monotonic seconds; a victim's time begins with the first call after it was seen leaving.
        """
        late = []
        for budget, names in self._expected.items():
            for name, disruption in names.items():
                if disruption.leaving and disruption.since is None:
                    disruption.since = now
                elif disruption.since is not None and now - disruption.since >= _OVERDUE:
                    late.append((budget, name))
        for budget, name in late:
            self._drop(budget, name)
        return list(dict(late))

    def changed(self, change: Change[PodDisruptionBudget], pods: Mapping[str, Pod]) -> None:
        """Learn what a budget covers, and which victims its status counts by now; `pods` are all, by `namespace/name`.

        If `currentHealthy` fell, that many victims that are seen terminating are counted. A selector that cannot be
        read covers nothing.
        """
        key, old, new = change.key, change.old, change.new
        namespace = key.partition("/")[0]
        budgets = self._covers.setdefault(namespace, {})
        budgets.pop(key, None)
        if new is not None:
            try:
                budgets[key] = label_matcher(new.spec.selector)
            except SelectorError:
                budgets[key] = nothing
        if not budgets:
            del self._covers[namespace]
        if old is not None and new is not None:
            spending = [name for name, disruption in self._expected.get(key, {}).items() if disruption.spends]
            victims = {name: pods.get(f"{namespace}/{name}") for name in spending}
            counted = [name for name, pod in victims.items() if pod is not None and pod.metadata.deletion_timestamp]
            for name in counted[: max(0, old.status.current_healthy - new.status.current_healthy)]:
                self._drop(key, name)

    def gone(self, namespace: str, victim: str) -> list[str]:
        """The pod is gone: by now its budgets have counted it; the budgets to be looked at again."""
        budgets = self._with(namespace, victim)
        for key in budgets:
            self._drop(key, victim)
        return budgets

    def give_up(self, plan: str, *, but: Container[str] = ()) -> list[str]:
        """Expect nothing of this plan any more except of pods of these names; the budgets to be looked at again."""
        mine = [
            (key, name)
            for key, names in self._expected.items()
            for name, disruption in names.items()
            if plan in disruption.plans and name not in but
        ]
        for key, name in mine:
            self._expected[key][name].plans.discard(plan)
            if not self._expected[key][name].plans:
                self._drop(key, name)
        return list(dict(mine))

    def _with(self, namespace: str, victim: str) -> list[str]:
        """The budgets of which the pod of that name is expected to use a disruption."""
        prefix = f"{namespace}/"
        return [key for key, names in self._expected.items() if victim in names and key.startswith(prefix)]

    def _drop(self, budget: str, victim: str) -> None:
        names = self._expected[budget]
        names.pop(victim, None)
        if not names:
            del self._expected[budget]
