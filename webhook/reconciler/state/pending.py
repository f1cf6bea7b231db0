"""What was done and is not seen yet: victims leave and use up budgets, pods are nominated, plans are taken off. Pure.

An expectation ends when the watch shows what is expected, when the pod is gone, or when its plan is given up.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.budgets import is_lenient
from webhook.preemption.snapshot.pod_view import HEALTHY, STARTING, health_of
from webhook.reconciler.state.annotations import carries

_OVERDUE = 120.0
"""Seconds after which no budget is expected to count a victim that is leaving, whatever the status says: as long as the
disruption controller itself believes in an eviction (docs/kubernetes-behaviour.md K19)."""


class Touched(NamedTuple):
    """The pods and the budgets, by `namespace/name`, that are to be taken in again."""

    pods: list[str]
    budgets: list[str]


@dataclass(slots=True)
class _Victim:
    """A pod that plans expect to leave until `end`; several may count on its room, and it may be asked for any of them.

    `health` is as it was last seen before it was `leaving`, `since` when that was noticed. Of the budgets it is `free`
    of, by key, it spends nothing.
    """

    uid: str
    health: int = HEALTHY
    leaving: bool = False
    end: str = ""
    gone: bool = False
    since: float | None = None
    plans: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Plans that are taken off a pod, and the nomination that is left: `pending` ones, and others that are `done`.

    `version` is the pod's resourceVersion since the last of these was taken off.
    """

    nominated: str
    pending: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    version: str = ""

    def hides(self, pod: Pod) -> bool:
        """Whether this version of the pod is from before that, so that its nomination does not count."""
        seen, plans = pod.metadata.resource_version, self.pending
        if seen.isdecimal() and self.version.isdecimal():
            if int(seen) < int(self.version):
                return True
        else:
            plans |= self.done
        return any(carries(pod, plan) for plan in plans)

    def shown(self, pod: Pod) -> bool:
        """Whether this is the pod as it is since then, and no other plan is to be taken off."""
        return bool(self.version) and not self.pending and not self.hides(pod)


class _Nominated(NamedTuple):
    uid: str
    plan: str
    node: str


class Pending:
    """The expectations, by `namespace/name` of the pod.

    The Eviction API writes a victim into a budget's `status.disruptedPods` and takes it off `disruptionsAllowed` in one
    go; until the watch shows that, later decisions must not spend the same disruption again. A plain delete writes
    nothing: there the disruption controller counts the victim as no longer healthy once it is terminating
    (`countHealthyPods`), and `currentHealthy` falls.

    A victim that is not ready spends nothing either way if the budget is lenient with it: no status will ever count it
    (docs/kubernetes-behaviour.md K27). What is missed for another reason is expected for two minutes at most.
    """

    def __init__(self) -> None:
        self.cleared: dict[str, Cleared] = {}
        """Pod to the plans that were taken off it, until the watch shows that."""
        self._victims: dict[str, _Victim] = {}
        """Those that the watch does not show as leaving."""
        self._uncounted: dict[str, dict[str, _Victim]] = {}
        """By budget those that its status does not count, by name."""
        self._nominated: dict[str, _Nominated] = {}
        self._covers: dict[str, dict[str, Matcher]] = {}
        """Namespace to its budgets, by key, and what each covers."""

    def __len__(self) -> int:
        return len(self._victims) + len(self._uncounted) + len(self._nominated)

    def covering(self, pod: Pod) -> list[str]:
        """The budgets that cover the pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        return [key for key, covers in self._covers.get(namespace, {}).items() if covers(labels)]

    def spending(self, budget: str) -> AbstractSet[str]:
        """The pods, by name, that are expected to use a disruption of the budget."""
        return {name for name, victim in self._uncounted.get(budget, {}).items() if budget not in victim.free}

    def leaves_for(self, key: str) -> AbstractSet[str]:
        """The plans, by id, that count on the pod `namespace/name` to leave, which it does not do yet."""
        known = self._victims.get(key)
        return known.plans if known is not None else frozenset()

    # What was done.

    def expect_leaving(self, pod: Pod, plan: str, end: float) -> list[str]:
        """The pod was, or is about to be, asked to leave until `end`, in seconds since the epoch; its budgets."""
        key, leaving = key_of(pod), bool(pod.metadata.deletion_timestamp)
        health = HEALTHY if leaving else health_of(pod)
        known = (self._victims.get(key), *self._uncounted_of(key).values())
        same = (victim for victim in known if victim is not None and victim.uid == pod.metadata.uid)
        victim = next(same, _Victim(pod.metadata.uid))
        if not victim.leaving:
            victim.health, victim.leaving = health, leaving
        victim.end = rfc3339(end)
        victim.plans.add(plan)
        self._victims[key] = victim
        budgets = self.covering(pod)
        for budget in budgets:
            self._uncounted.setdefault(budget, {})[pod.metadata.name] = victim
        return budgets

    def expect_gone(self, plan: str) -> Touched:
        """The pods that this plan has asked to leave count as gone now, and as counted by their budgets."""
        gone = [key for key, victim in self._victims.items() if plan in victim.plans]
        for key in gone:
            self._victims[key].gone = True
        counted = self._uncounted_for(plan)
        for budget, name in counted:
            self._count(budget, name)
        return Touched(gone, list(dict(counted)))

    def expect_nominated(self, key: str, uid: str, plan: str, node: str) -> None:
        """The pod was, or is about to be, nominated to the node."""
        self._nominated[key] = _Nominated(uid, plan, node)

    def expect_cleared(self, key: str, plan: str, node: str, pod: Pod, *, done: bool) -> None:
        """The plan for that node is to be taken off the pod; once that is `done`, the pod is as given.

        The watch may not have shown yet that the plan before was taken off.
        """
        known = self.cleared.get(key, Cleared(pod.status.nominated_node_name))
        left = pod.status.nominated_node_name if done else known.nominated
        left = "" if left == node else left
        if done:
            version = pod.metadata.resource_version
            self.cleared[key] = Cleared(left, known.pending - {plan}, known.done | {plan}, version)
        else:
            self.cleared[key] = replace(known, nominated=left, pending=known.pending | {plan})

    def give_up(self, plan: str, but: Container[str] = (), nominated: Container[str] = ()) -> Touched:
        """Expect of this plan only that the pods of these uids leave, and that those of these keys are `nominated`."""
        held = [key for key, it in self._nominated.items() if it.plan == plan and key not in nominated]
        leaving = [key for key, victim in self._victims.items() if plan in victim.plans and victim.uid not in but]
        uncounted = self._uncounted_for(plan, but)
        for victim in [self._victims[key] for key in leaving] + [self._uncounted[key][name] for key, name in uncounted]:
            victim.plans.discard(plan)
        for key in held:
            del self._nominated[key]
        for key in leaving:
            if not self._victims[key].plans:
                del self._victims[key]
        for budget, name in uncounted:
            if not self._uncounted[budget][name].plans:
                self._count(budget, name)
        return Touched(leaving + held, list(dict(uncounted)))

    def _uncounted_for(self, plan: str, but: Container[str] = ()) -> list[tuple[str, str]]:
        """The victims of this plan that budgets have yet to count, except those of these uids: budget and name."""
        return [
            (budget, name)
            for budget, victims in self._uncounted.items()
            for name, victim in victims.items()
            if plan in victim.plans and victim.uid not in but
        ]

    def _uncounted_of(self, key: str) -> dict[str, _Victim]:
        """The victim `namespace/name` by the budgets that have yet to count it."""
        (start, slash, name), known = key.partition("/"), self._uncounted.items()
        return {key: names[name] for key, names in known if name in names and key.startswith(start + slash)}

    # What the watches show.

    def overlay(self, key: str, pod: Pod) -> Pod | None:
        """The pod with what is expected of it; None if it counts as gone. What the watch shows is no more expected."""
        nominated, victim = self._nominated.get(key), self._victims.get(key)
        if (cleared := self.cleared.get(key)) is not None:
            if cleared.shown(pod):
                del self.cleared[key]
            elif cleared.hides(pod):
                pod = _nominated_to(pod, cleared.nominated)
        if nominated is not None:
            # An earlier plan's nomination to the same node, on its way to be cleared, is not the one that is expected.
            seen = pod.status.nominated_node_name == nominated.node and carries(pod, nominated.plan)
            if seen or nominated.uid != pod.metadata.uid or pod.spec.node_name:
                del self._nominated[key]
            else:
                pod = _nominated_to(pod, nominated.node)
        if victim is None:
            return pod
        if victim.uid != pod.metadata.uid or pod.metadata.deletion_timestamp:
            del self._victims[key]
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=victim.end)
        return None if victim.gone else msgspec.structs.replace(pod, metadata=meta)

    def overlay_budget(self, key: str, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """The budget with what is expected already taken off; what its status shows is no more expected."""
        for name in [name for name in budget.status.disrupted_pods or () if name in self._uncounted.get(key, ())]:
            self._count(key, name)
        lenient = is_lenient(budget)
        for victim in self._uncounted.get(key, {}).values():
            if not victim.leaving:
                spends = victim.health == HEALTHY or (victim.health != STARTING and not lenient)
                victim.free = victim.free - {key} if spends else victim.free | {key}
        if not (spent := len(self.spending(key))):
            return budget
        allowed = max(0, budget.status.disruptions_allowed - spent)
        return msgspec.structs.replace(
            budget, status=msgspec.structs.replace(budget.status, disruptions_allowed=allowed)
        )

    def pod_changed(self, key: str, pod: Pod | None) -> list[str]:
        """A pod is seen again, or is gone: by then its budgets have counted it. The budgets to be looked at again."""
        victims, changed = self._uncounted_of(key), []
        for budget, victim in victims.items():
            if pod is None or victim.uid != pod.metadata.uid:
                self._count(budget, key.partition("/")[2])
                changed.append(budget)
            elif pod.metadata.deletion_timestamp:
                victim.leaving = True
            elif victim.health != health_of(pod):
                changed.append(budget)
        if pod is None:
            self.cleared.pop(key, None)
            self._victims.pop(key, None)
            self._nominated.pop(key, None)
        elif not pod.metadata.deletion_timestamp:
            for victim in victims.values():
                victim.health = health_of(pod)
        return changed

    def budget_changed(self, change: Change[PodDisruptionBudget], pods: Mapping[str, Pod]) -> None:
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
            victims = {name: pods.get(f"{namespace}/{name}") for name in self.spending(key)}
            counted = [name for name, pod in victims.items() if pod is not None and pod.metadata.deletion_timestamp]
            for name in counted[: max(0, old.status.current_healthy - new.status.current_healthy)]:
                self._count(key, name)

    def overdue(self, now: float) -> list[str]:
        """Have no budget count those who have been leaving for too long; the budgets to be looked at again.

        `now` is in monotonic seconds; a victim's time begins with the first call after it was seen leaving.
        """
        late = []
        for budget, victims in self._uncounted.items():
            for name, victim in victims.items():
                if victim.leaving and victim.since is None:
                    victim.since = now
                elif victim.since is not None and now - victim.since >= _OVERDUE:
                    late.append((budget, name))
        for budget, name in late:
            self._count(budget, name)
        return list(dict(late))

    def _count(self, budget: str, name: str) -> None:
        """The budget has counted this victim."""
        victims = self._uncounted[budget]
        victims.pop(name, None)
        if not victims:
            del self._uncounted[budget]


def _nominated_to(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))
