"""What was done and is not seen yet: it counts until the watch shows it, the object is gone, or its plan is given up.

**Victims** leave. The Eviction API writes a victim into a budget's `status.disruptedPods` and takes it off
`disruptionsAllowed` in one go; until the watch shows that, later decisions must not spend the same disruption again. A
plain delete writes nothing: there the disruption controller counts the victim as no longer healthy once it is
terminating (`countHealthyPods`), and `currentHealthy` falls. A victim that is not ready spends nothing either way if
the budget is lenient with it: no status will ever count it (docs/kubernetes-behaviour.md K27).

**Nominations** hold room, and no longer once their plan is taken off.

**Claims on devices** of pods that are gone count, until kube-controller-manager takes them back, as it will leave them
(docs/kubernetes-behaviour.md K42): without these consumers, and without allocation after the last. A claim that pods
name themselves is not freed by evicting its users. Who names an allocated claim gets it as it is: the pod that a
controller puts into the place of a victim, which is there before the victim has gone, or one that waits already. So
such a claim counts as one that is not taken back (docs/reconciler.md#devices).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.budgets import is_lenient
from webhook.preemption.snapshot.columns import take_out
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, PODS, SnapshotKind
from webhook.preemption.snapshot.pod_view import HEALTHY, STARTING, health_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import carries
from webhook.reconciler.state.pod_indexes import Index, PodIndexes

_FINALIZER = "resource.kubernetes.io/delete-protection"


@dataclass(slots=True)
class _Victim:
    """A pod that plans expect to leave until `end`; several may count on its room, and it may be asked for any of them.

    `uncounted` are the budgets that have yet to count it; once it is `leaving`, all of them will.
    """

    uid: str
    uncounted: frozenset[str]
    end: str = ""
    leaving: bool = False
    gone: bool = False
    plans: set[str] = field(default_factory=set)


class Pending:
    """The expectations, by `namespace/name` of the object; `take` is told which objects count otherwise by now.

    Nothing is expected of a pod that `pods` does not show.
    """

    def __init__(
        self,
        pods: Mapping[str, Pod],
        budgets: Mapping[str, PodDisruptionBudget],
        snapshot: Snapshot,
        index: PodIndexes,
        take: Callable[[SnapshotKind, Iterable[str]], None],
    ) -> None:
        self._pods, self._budgets, self._snapshot, self._index, self._take = pods, budgets, snapshot, index, take
        self._victims: dict[str, _Victim] = {}
        """Those that are not seen leaving, or that a budget has yet to count."""
        self._holds: dict[str, tuple[str, str]] = {}
        """Pod to the plan and the node for which it counts as nominated."""
        self._clearing: dict[str, dict[str, str]] = {}
        """Pod to the plans that are being taken off it, and their nodes."""
        self._claims: Index[str, ResourceClaim] = Index(_consumers)
        """By the uid of a pod, the claims of which it is shown as a consumer."""
        self.awaited: set[str] = set()
        """Those of these pods that are gone, of whom claims are yet to be taken back, for others to read.

        One that no watch has shown yet may well be there.
        """

    def __len__(self) -> int:
        return len(self._victims) + len(self._holds)

    def covering(self, pod: Pod) -> list[str]:
        """The budgets that cover the pod."""
        return list(self._snapshot.budgets.covering(pod.metadata.namespace, pod.metadata.labels or {}))

    def spending(self, budget: str) -> AbstractSet[str]:
        """The pods, by name, that are expected to use a disruption of the budget."""
        return {
            key.partition("/")[2]
            for key, victim in self._yet_to_count(budget)
            if victim.leaving or _spends(self._pods[key], self._budgets[budget])
        }

    def _yet_to_count(self, budget: str) -> list[tuple[str, _Victim]]:
        return [(key, victim) for key, victim in self._victims.items() if budget in victim.uncounted]

    def leaves_for(self, key: str) -> AbstractSet[str]:
        """The plans, by id, that count on the pod `namespace/name` to leave, which it does not do yet."""
        known = self._victims.get(key)
        return known.plans if known is not None and not known.leaving else frozenset()

    def is_clearing(self, key: str, plan: str) -> bool:
        """Whether the plan of that id is being taken off the pod."""
        return plan in self._clearing.get(key, ())

    # What is done.

    def expect(self, plan: str, victims: Iterable[Pod], ends: Mapping[str, float]) -> None:
        """These pods were, or are about to be, asked to leave; each will be gone at its end, by uid.

        Ends are in seconds since the epoch.
        """
        keys = [key_of(pod) for pod in victims if self._is_there(key_of(pod), pod.metadata.uid)]
        for key in keys:
            pod, victim = self._pods[key], self._victims.get(key)
            if victim is None and not pod.metadata.deletion_timestamp:
                uncounted = frozenset(self.covering(pod))
                victim = self._victims[key] = _Victim(pod.metadata.uid, uncounted)
                self._take(BUDGETS, uncounted)
            if victim is not None:
                victim.end = rfc3339(ends[victim.uid])
                victim.plans.add(plan)
        self._take(PODS, keys)

    def hold(self, plan: str, preemptor: tuple[str, str], node: str) -> None:
        """The preemptor (key, uid) was, or is about to be, nominated, also if the scheduler clears its nomination."""
        key, uid = preemptor
        if self._is_there(key, uid):
            self._holds[key] = plan, node
            self._take(PODS, (key,))

    def give_up(self, plan: str, leaving: Container[str], nominated: Container[str] = ()) -> None:
        """Expect of a plan only that the pods of these uids leave, and that those of these keys are `nominated`."""
        held = [key for key, (by, _) in self._holds.items() if by == plan and key not in nominated]
        victims = self._victims.items()
        staying = [key for key, victim in victims if plan in victim.plans and victim.uid not in leaving]
        for key in held:
            del self._holds[key]
        for key in staying:
            self._victims[key].plans.discard(plan)
            if not self._victims[key].plans:
                self._take(BUDGETS, self._victims.pop(key).uncounted)
        self._take(PODS, staying + held)

    def expect_gone(self, plan: str) -> None:
        """The victims of a rehearsed plan count as gone, and as counted by their budgets."""
        gone = [key for key, victim in self._victims.items() if plan in victim.plans]
        for key in gone:
            self._victims[key].gone = True
            self._count(key, self._victims[key].uncounted)
        self._take(PODS, gone)

    def expect_cleared(self, plan: str, pod: Pod, node: str | None) -> None:
        """This plan for that node is being taken off the pod; None if that is done, or nobody does it any more."""
        key = key_of(pod)
        if node is None:
            take_out(self._clearing, key, plan)
        elif self._is_there(key, pod.metadata.uid):
            self._clearing.setdefault(key, {})[plan] = node
        self._take(PODS, (key,))

    def expect_deallocated(self, uid: str, *, gone: bool = True) -> None:
        """The pod with this uid is `gone`, and so are its claims soon; or it is there, and they are as shown."""
        if gone is not (uid in self.awaited) and uid in self._claims:
            self.awaited ^= {uid}
            self._take(CLAIMS, tuple(self._claims[uid]))

    # What the watches show.

    def budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        """Learn which victims a budget counts by now: those that its status names, and not for an earlier pod.

        If `currentHealthy` fell, as many others that are seen terminating are counted, too.
        """
        name, old, new = change.key, change.old, change.new
        victims = self._yet_to_count(name)
        counted = [key for key, _ in victims if new is None or _grant(new, key) not in (None, _grant(old, key))]
        if old is not None and new is not None:
            leaving = [key for key, victim in victims if victim.leaving and key not in counted]
            counted += leaving[: max(0, old.status.current_healthy - new.status.current_healthy)]
        for key in counted:
            self._count(key, {name})

    def pod_changed(self, change: Change[Pod]) -> None:
        """What is shown of a pod is no more expected. What it spends is settled by how it was before it is leaving."""
        key, new, victim = change.key, change.new, self._victims.get(change.key)
        if new is None:
            self._holds.pop(key, None)
            self._clearing.pop(key, None)
            if victim is not None:
                self._take(BUDGETS, self._victims.pop(key).uncounted)
        elif victim is None or victim.leaving:
            return
        elif new.metadata.deletion_timestamp:
            before, victim.leaving = change.old or new, True
            self._count(key, {name for name in victim.uncounted if not _spends(before, self._budgets[name])})
        else:
            self._take(BUDGETS, victim.uncounted)

    def expected(self, kind: SnapshotKind, key: str, shown: Any) -> Any:
        """The object, of which this is shown, as decisions are to see it; None if it counts as gone."""
        if kind is PODS:
            return None if shown is None or is_terminal(shown) else self._pod(key, shown)
        if kind is BUDGETS and shown is not None and (spent := len(self.spending(key))):
            allowed = max(0, shown.status.disruptions_allowed - spent)
            return _with_status(shown, disruptions_allowed=allowed)
        if kind is CLAIMS:
            self.awaited.difference_update(uid for uid in self._claims.put(key, shown) if uid not in self._claims)
            return None if shown is None else self._claim(key, shown)
        return shown

    def _pod(self, key: str, pod: Pod) -> Pod | None:
        nominated, hold, victim = pod.status.nominated_node_name, self._holds.get(key), self._victims.get(key)
        for plan, node in self._clearing.get(key, {}).items():
            nominated = "" if nominated == node and carries(pod, plan) else nominated
        if hold is not None and not pod.spec.node_name:
            _, nominated = hold
        if nominated != pod.status.nominated_node_name:
            pod = _with_status(pod, nominated_node_name=nominated)
        if victim is None or pod.metadata.deletion_timestamp:
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=victim.end)
        return None if victim.gone else msgspec.structs.replace(pod, metadata=meta)

    def _claim(self, key: str, claim: ResourceClaim) -> ResourceClaim:
        """Without its finalizer a claim keeps its allocation, and so does one that stays in use."""
        consumers, finalizers = claim.status.reserved_for or [], claim.metadata.finalizers or ()
        staying = [user for user in consumers if user.uid not in self.awaited]
        if len(staying) < len(consumers):
            allocation = claim.status.allocation if staying or _FINALIZER not in finalizers else None
            claim = _with_status(claim, reserved_for=staying or None, allocation=allocation)
        if claim.status.allocation is not None and key in self._index.keeping and finalizers:
            claim = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=None))
        return claim

    def _is_there(self, key: str, uid: str) -> bool:
        return (pod := self._pods.get(key)) is not None and pod.metadata.uid == uid

    def _count(self, key: str, budgets: AbstractSet[str]) -> None:
        """These budgets have counted a victim, or never will."""
        victim = self._victims[key]
        victim.uncounted -= budgets
        if victim.leaving and not victim.uncounted:
            del self._victims[key]
        self._take(BUDGETS, budgets)


def _consumers(claim: ResourceClaim) -> tuple[str, ...]:
    return tuple(user.uid for user in claim.status.reserved_for or () if user.resource == "pods")


def _grant(budget: PodDisruptionBudget | None, key: str) -> str | None:
    """When the budget granted a disruption for the pod, or an earlier one of its name, as its status says."""
    granted = budget.status.disrupted_pods if budget is not None else None
    return (granted or {}).get(key.partition("/")[2])


def _spends(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """Whether a pod that is not leaving uses a disruption of the budget when it is asked to leave."""
    health = health_of(pod)
    return health == HEALTHY or (health != STARTING and not is_lenient(budget))


def _with_status(item: Any, **fields: Any) -> Any:
    """The object with these fields of its status."""
    return msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, **fields))
