"""What was done and is not seen yet: it counts until the watch shows it, or its plan is over.

**Victims** leave. The Eviction API writes a victim into a budget's `status.disruptedPods`
and takes it off `disruptionsAllowed` in one go. Until the watch shows that, decisions must
not spend the same disruption again. A plain delete writes nothing: the disruption controller
counts a terminating pod as not healthy (`countHealthyPods`), and `currentHealthy` falls. A
victim that is not ready spends nothing either way if the budget is lenient with it: no
status will ever count it (docs/kubernetes-behaviour.md K27).

**Nominations** hold room until their plan is taken off the pod.

**Claims on devices** of pods that are gone count as kube-controller-manager will leave them
(docs/kubernetes-behaviour.md K42): without these consumers, and without allocation after the
last. A claim that pods name themselves counts as not taken back: it goes as it is to a pod
that waits already, or that a controller makes in place of a victim before that has gone
(docs/reconciler.md#devices).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from webhook.kube.object_cache import Change
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import is_terminal
from webhook.policy.model.values import PLAN
from webhook.preemption.snapshot.budgets import is_lenient
from webhook.preemption.snapshot.columns import take_out
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, PODS, SnapshotKind
from webhook.preemption.snapshot.pod_view import HEALTHY, STARTING, health_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import carries
from webhook.reconciler.state.pod_indexes import Index, PodIndexes

_FINALIZER = "resource.kubernetes.io/delete-protection"


class CountedOn(NamedTuple):
    """What a plan counts on of the pod with this uid, until the watch shows it."""

    uid: str
    end: str = ""
    """It leaves, and will be gone at this RFC 3339 instant."""
    gone: bool = False
    """It counts as gone: the plan is only rehearsed."""
    node: str = ""
    """It is nominated to this node, also if its scheduler clears that."""
    off: bool = False
    """The plan for that node is over: its nomination on the pod counts for nothing."""


class Pending:
    """What plans count on, by `namespace/name` of the pod, which `pods` has to show.

    `take` is told which objects count otherwise now.
    """

    def __init__(
        self,
        pods: Mapping[str, Pod],
        budgets: Mapping[str, PodDisruptionBudget],
        snapshot: Snapshot,
        index: PodIndexes,
        take: Callable[[SnapshotKind, Iterable[str]], None],
    ) -> None:
        self._pods, self._budgets, self._snapshot = pods, budgets, snapshot
        self._index, self._take = index, take
        self._counted: dict[str, dict[str, CountedOn]] = {}
        """By pod and plan."""
        self._uncounted: dict[str, set[str]] = {}
        """By victim, the budgets that have yet to count it."""
        self._claims: Index[str, ResourceClaim] = Index(
            lambda claim: [user.uid for user in claim.status.reserved_for or () if user.resource == "pods"]
        )
        """By the uid of a consumer."""
        self.awaited: set[str] = set()
        """Consumers that are gone, and whose claims have yet to be taken back.

        One that no watch has shown yet may well be there.
        """

    def covering(self, pod: Pod) -> list[str]:
        """The budgets that cover the pod."""
        return list(self._snapshot.budgets.covering(pod.metadata.namespace, pod.metadata.labels or {}))

    def spending(self, budget: str) -> set[str]:
        """The pods, by name, expected to use a disruption of the budget."""
        keys = [key for key, rows in self._uncounted.items() if budget in rows]
        spending = [key for key in keys if _spends(self._pods[key], self._budgets[budget])]
        return {key.partition("/")[2] for key in spending}

    def leaves_for(self, key: str) -> set[str]:
        """The plans (ids) that count on the pod to leave; none if it is leaving."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp:
            return set()
        return {plan for plan, row in self._counted.get(key, {}).items() if row.end}

    def over(self, key: str, pod: Pod) -> str | None:
        """The node of the pod's written plan, if that is over; else None."""
        rows = self._counted.get(key, {}).items()
        return next((row.node for plan, row in rows if row.off and carries(pod, plan)), None)

    # What is done.

    def count_on(self, plan: str, pods: Mapping[str, CountedOn | None]) -> None:
        """What a plan (its id or text) counts on of these pods; None for nothing."""
        changed, budgets = list[str](), set[str]()
        for key, expected in pods.items():
            if (pod := self._pods.get(key)) is None:
                continue
            row = expected if expected and expected.uid == pod.metadata.uid else None
            if self._counted.get(key, {}).get(plan) == row:
                continue
            changed.append(key)
            if row is None:
                take_out(self._counted, key, plan)
            else:
                self._counted.setdefault(key, {})[plan] = row
            if pod.metadata.deletion_timestamp:
                continue
            if any(known.end and not known.gone for known in self._counted.get(key, {}).values()):
                budgets |= self._uncounted.setdefault(key, set(self.covering(pod)))
            else:
                budgets |= self._uncounted.pop(key, set())
        self._take(BUDGETS, budgets)
        self._take(PODS, changed)

    def forget_over(self) -> None:
        """This process leads no more: the next may go on with plans that are over."""
        for key, rows in list(self._counted.items()):
            for plan in [plan for plan, row in rows.items() if row.off]:
                self.count_on(plan, {key: None})

    def expect_deallocated(self, uid: str, *, gone: bool = True) -> None:
        """This pod is `gone`, and its claims soon; or it and they are as shown."""
        if gone is not (uid in self.awaited) and uid in self._claims:
            self.awaited ^= {uid}
            self._take(CLAIMS, tuple(self._claims[uid]))

    # What the watches show.

    def budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        """A budget counts the victims that its status names, and not for an earlier pod.

        If `currentHealthy` fell, it counts as many others that are seen terminating. One
        that came, or selects others, has yet to count.
        """
        name, old, new = change.key, change.old, change.new
        fell = old.status.current_healthy - new.status.current_healthy if old and new else 0
        if new and (old is None or old.spec.selector != new.spec.selector):
            self._take(BUDGETS, (name,))
            for key, budgets in self._uncounted.items():
                if not self._pods[key].metadata.deletion_timestamp:
                    budgets.update({name}.intersection(self.covering(self._pods[key])))
        for key, budgets in self._uncounted.items():
            if new is None or _grant(new, key) not in (None, _grant(old, key)):
                budgets.discard(name)
            elif fell > 0 and name in budgets and self._pods[key].metadata.deletion_timestamp:
                budgets.discard(name)
                fell -= 1

    def pod_changed(self, change: Change[Pod]) -> None:
        """What is shown of a pod is no more expected.

        How it was before it leaves says what it spends.
        """
        key, old, new = change.key, change.old, change.new
        budgets = self._uncounted.get(key, set())
        if new is None:
            self._counted.pop(key, None)
            self._uncounted.pop(key, None)
        elif key in self._counted and PLAN not in (new.metadata.annotations or ()):
            for plan in [plan for plan, row in self._counted[key].items() if row.off]:
                take_out(self._counted, key, plan)
        if old and new and budgets and new.metadata.deletion_timestamp:
            self._uncounted[key] = {name for name in budgets if _spends(old, self._budgets[name])}
        self._take(BUDGETS, budgets)

    def expected(self, kind: SnapshotKind, key: str, shown: Any) -> Any:
        """The `shown` object as decisions see it; None if it counts as gone."""
        if kind is PODS:
            return None if shown is None or is_terminal(shown) else self._pod(key, shown)
        if kind is BUDGETS and shown is not None and (spent := len(self.spending(key))):
            allowed = max(0, shown.status.disruptions_allowed - spent)
            return replace(shown, status=replace(shown.status, disruptions_allowed=allowed))
        if kind is CLAIMS:
            changed = self._claims.put(key, shown)
            self.awaited.difference_update(uid for uid in changed if uid not in self._claims)
            return None if shown is None else self._claim(key, shown)
        return shown

    def _pod(self, key: str, pod: Pod) -> Pod | None:
        leaves, nominated = pod.metadata.deletion_timestamp, pod.status.nominated_node_name
        held, end = "", ""
        for plan, row in self._counted.get(key, {}).items():
            if row.gone and not leaves:
                return None
            if not row.off:
                held, end = row.node or held, row.end or end
            elif nominated == row.node and carries(pod, plan):
                nominated = ""
        if held and not pod.spec.node_name:
            nominated = held
        if nominated != pod.status.nominated_node_name:
            pod = replace(pod, status=replace(pod.status, nominated_node_name=nominated))
        if end and not leaves:
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=end))
        return pod

    def _claim(self, key: str, claim: ResourceClaim) -> ResourceClaim:
        """A claim in use keeps its allocation, and so does one without finalizer."""
        users, allocation = claim.status.reserved_for or [], claim.status.allocation
        staying = [user for user in users if user.uid not in self.awaited]
        finalizers = claim.metadata.finalizers or ()
        if len(staying) < len(users):
            allocation = allocation if staying or _FINALIZER not in finalizers else None
            status = replace(claim.status, reserved_for=staying or None, allocation=allocation)
            claim = replace(claim, status=status)
        if allocation is not None and key in self._index.keeping and finalizers:
            claim = replace(claim, metadata=replace(claim.metadata, finalizers=None))
        return claim


def _grant(budget: PodDisruptionBudget | None, key: str) -> str | None:
    """When the budget granted a disruption for the pod or a former namesake."""
    granted = (budget.status.disrupted_pods if budget else None) or {}
    return granted.get(key.partition("/")[2])


def _spends(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """Whether a pod that leaves, or is asked to, uses a disruption of the budget."""
    if pod.metadata.deletion_timestamp:
        return True
    health = health_of(pod)
    return health == HEALTHY or (health != STARTING and not is_lenient(budget))
