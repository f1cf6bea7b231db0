"""Which owners put pods back into the room that a plan made: evicting their pods does not help."""

from __future__ import annotations

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.preemption.decision import victims_needed
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.room import rows_with
from webhook.reconciler.plans.plan import Plan, PlanIndex
from webhook.reconciler.plans.plan_devices import takers
from webhook.reconciler.plans.recheck import later_equals


def returning_owners(evaluator: Evaluator, plan: Plan, index: PlanIndex) -> set[str]:
    """The owners (`workload_of`) of victims of the plan that have put pods back in their place.

    Such a pod was made after the plan began to evict. It has devices of the plan, or is on the node, and the preemptor
    would fit there without it. If something else keeps the preemptor from the node, such as another owner's pod, nobody
    has put anything back.
    """
    state, node, victims = evaluator.state, plan.record.node, {victim.uid for victim in plan.record.victims}
    preemptor, snapshot = state.pods.get(plan.key), evaluator.state.snapshot
    keys = [known.key for known in state.pods_on(node)]
    keys += [key for owner in plan.owners for key in state.index.owned.get(owner, ())] if plan.room else []
    there = [pod for key in keys if (pod := state.pods.get(key)) is not None]
    others, evicting = later_equals(plan, index), plan.evicting

    def is_put_back(pod: Pod) -> bool:
        came = evicting is not None and evicting.is_before(pod)
        return came and pod.metadata.uid not in victims and workload_of(pod) in plan.owners

    owners = {workload_of(pod) for pod in takers(state, plan) if is_put_back(pod)}
    back = {key_of(pod): pod for pod in there if is_put_back(pod)}
    if preemptor is None or not back or not evaluator.has_room(preemptor, node, but=[*others, *back]):
        return owners
    gone = rows_with(snapshot.pods.leaving(), snapshot.pod_rows(others))
    needed = victims_needed(snapshot, preemptor, node, snapshot.pod_rows(back), without=gone)
    names, namespaces = snapshot.pods.names, snapshot.pods.namespaces
    return owners | {workload_of(back[f"{namespaces[row]}/{names[row]}"]) for row in needed.tolist()}
