"""Which disruption budgets cover a pod, and the evictions that their status does not count yet. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from webhook.kube.informer import Change
from webhook.kube.objects import Pod, PodDisruptionBudget
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

__all__ = ["Disruptions"]


class Disruptions:
    """Evictions that a budget's status does not count yet, by budget (`namespace/name`) and victim's name.

    The Eviction API writes the victim into `status.disruptedPods` and takes it off `disruptionsAllowed` in one go;
    until the watch shows that, later decisions must not spend the same disruption again. A plain delete writes nothing:
    there the disruption controller counts the victim as no longer healthy once it is terminating
    (`countHealthyPods`), and `currentHealthy` falls.
    """

    def __init__(self) -> None:
        self._covers: dict[str, dict[str, Matcher]] = {}
        """Namespace to its budgets, by key, and what each covers."""
        self._expected: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def covering(self, pod: Pod) -> list[str]:
        """The budgets that cover the pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        return [key for key, covers in self._covers.get(namespace, {}).items() if covers(labels)]

    def expect(self, budget: str, victim: str, plan: str) -> None:
        """This plan will use one disruption of the budget for the pod of that name."""
        self._expected.setdefault(budget, {})[victim] = plan

    def overlay(self, key: str, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """The budget with what is expected already taken off; what its status shows is no longer expected."""
        expected = self._expected.get(key)
        if not expected:
            return budget
        for name in [name for name in budget.status.disrupted_pods or () if name in expected]:
            self._drop(key, name)
        allowed = max(0, budget.status.disruptions_allowed - len(expected))
        return msgspec.structs.replace(
            budget, status=msgspec.structs.replace(budget.status, disruptions_allowed=allowed)
        )

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
            victims = {name: pods.get(f"{namespace}/{name}") for name in self._expected.get(key, ())}
            counted = [name for name, pod in victims.items() if pod is not None and pod.metadata.deletion_timestamp]
            for name in counted[: max(0, old.status.current_healthy - new.status.current_healthy)]:
                self._drop(key, name)

    def gone(self, namespace: str, victim: str) -> list[str]:
        """The pod is gone: by now its budgets have counted it; the budgets to be looked at again."""
        prefix = f"{namespace}/"
        found = [key for key, names in self._expected.items() if key.startswith(prefix) and victim in names]
        for key in found:
            self._drop(key, victim)
        return found

    def give_up(self, plan: str, *, but: Container[str] = ()) -> list[str]:
        """Expect nothing of this plan any more except of pods of these names; the budgets to be looked at again."""
        mine = [
            (key, name)
            for key, names in self._expected.items()
            for name, by in names.items()
            if by == plan and name not in but
        ]
        for key, name in mine:
            self._drop(key, name)
        return list(dict(mine))

    def _drop(self, budget: str, victim: str) -> None:
        names = self._expected[budget]
        names.pop(victim, None)
        if not names:
            del self._expected[budget]
