"""What to do for a gang, on the newest state: nothing, wait, place its members together, or nothing helps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod, key_of
from webhook.kube.pods import is_last_resort
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.gangs.decision import GangDecision, decide_gang
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.eviction_limiter import has_rates
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Promised, Unschedulable, Waits
from webhook.reconciler.evaluate.pods_ahead import blocked_text
from webhook.reconciler.evaluate.rates import NOT_NOW, Rates
from webhook.reconciler.evaluate.victim_exclusions import excluded_now, last_resort

__all__ = ["GangMembers", "Together", "evaluate_gang"]

_MOST_MEMBERS = 256
"""Members of one plan: each of them names all."""


@dataclass(frozen=True, slots=True)
class GangMembers:
    """The members of a group that have no node.

    Those `ready` may be placed by the policy now, the `gated` ones are held back. `secured` are the nodes that other
    members are nominated to, by plans under way.
    """

    key: GroupKey
    ready: tuple[Pod, ...]
    gated: tuple[Pod, ...]
    secured: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """The members that are placed together: each of them with what is done for it.

    Every victim is one for each member on whose node its unit has a pod. Nobody is placed on the nodes `left_out`.
    """

    result: ClassVar[str] = "together"
    placed: tuple[tuple[Pod, Evicts | Waits], ...]
    left_out: frozenset[str] = frozenset()


def evaluate_gang(
    evaluator: Evaluator,
    members: GangMembers,
    policy: PreemptionPolicy,
    rules: Rules,
    attempts: int,
    *,
    left_out: Collection[str],
    promised: Promised,
) -> Together | Fits | Unschedulable:
    """What to do for the members of a gang together (docs/semantics.md D12).

    `attempts` is how many plans evicted for one of them in vain; nothing is planned on the nodes `left_out`. Raises
    ClusterError for a member that cannot be read.
    """
    if policy.extenders:
        return Unschedulable("the policy has extenders, and they are not asked about gangs")
    if len(members.ready) > _MOST_MEMBERS:
        return Unschedulable(f"{members.key} has more than {_MOST_MEMBERS} pods to be placed together")
    state, now, wall = evaluator.state, evaluator.clock.monotonic(), evaluator.clock.wall()
    limits = policy.limits.at(wall)
    # 1. The gang, at the lowest priority that its group or a member has; nobody of it counts as nominated.
    pods = [_unnominated(pod) for pod in (*members.ready, *members.gated)]
    gang = form_gang(state.snapshot, pods, members.secured)
    gang = gang._replace(priority=min([gang.priority, *map(priority_of, members.ready)]))
    # 2. Decide with the pods excluded that evicting would not remove, or must not now; those of last resort at last.
    leaving = evaluator.leaving_within(min(policy.wait_for_terminating, policy.plan_timeout))
    exhausted = evaluator.limiter.exhausted(limits, now)
    exclusions = excluded_now(state, evaluator.exclusions(now), exhausted, leaving)
    last = last_resort(state)
    decision = GangDecision(gang)
    for excluded in (exclusions | last, exclusions):
        decision = decide_gang(
            state.snapshot, gang, rules, wall, exclusions=excluded, leaving=leaving, excluded_nodes=left_out
        )
        if decision.placements or not last.any():
            break
    if not decision.placements:
        begins = policy.schedule.begins(wall) if policy.schedule and rules.outside(wall) else None
        due = exhausted.until if begins is None else now + begins - wall
        return Unschedulable(decision.reason, limited=exhausted.until is not None, due=due)
    # 3. If it fits as things are, that is kube-scheduler's business.
    if not decision.victims:
        at_once = decide_gang(state.snapshot, gang, rules, wall, exclusions=exclusions, excluded_nodes=left_out)
        if at_once.fits:
            return Fits(tuple(sorted({one.node for one in at_once.placements})))
    # 4. Within rates and attempts, and if nobody of higher priority would take the room.
    if (kept := _kept_from(evaluator, decision, policy, attempts, promised)) is not None:
        return kept
    return Together(_outcomes(evaluator, decision, leaving), decision.outside | frozenset(left_out))


def _kept_from(
    evaluator: Evaluator, decision: GangDecision, policy: PreemptionPolicy, attempts: int, promised: Promised
) -> Unschedulable | None:
    """What keeps the policy from evicting for the gang now; None if nothing does."""
    snapshot, now = evaluator.state.snapshot, evaluator.clock.monotonic()
    limits = policy.limits.at(evaluator.clock.wall())
    if not decision.victims:
        return None
    if attempts >= (most := limits.attempts_per_preemptor):
        reason = f"{attempts} plans evicted pods for it in vain, and the policy allows {most}"
        return Unschedulable(f"{reason}; one stops to count every 15 min", limited=True)
    rows = snapshot.pod_rows([victim.key for victim in decision.victims])
    if has_rates(limits):
        rates = Rates(evaluator.state, limits, evaluator.limiter.remaining(limits, now))
        if (code := int(rates(_candidates(evaluator, rows, together=True))[0])) != 0:
            due = rates.left.until if code == NOT_NOW else None
            return Unschedulable("more pods would have to go than the policy's limits allow", limited=True, due=due)
    example = decision.placements[0].pod
    ahead = evaluator.pods_ahead(example, promised)
    nodes = {one.node for one in decision.placements}
    there = rows[[snapshot.nodes.names[node] in nodes for node in snapshot.pods.node[rows].tolist()]]
    if len(there) and ahead(_candidates(evaluator, there, together=False)).any():
        return Unschedulable(f"where evicting pods makes room, {blocked_text(ahead.blocking)}", behind=True)
    return None


def _candidates(evaluator: Evaluator, rows: NDArray[np.intp], *, together: bool) -> Candidates:
    """The pods in these rows as the victims of their nodes, or all `together` as those of one node."""
    nodes = evaluator.state.snapshot.pods.node[rows].astype(np.intp)
    nodes = np.full(len(rows), nodes[0]) if together else nodes
    order = np.argsort(nodes, kind="stable")
    return Candidates.on_nodes(evaluator.state.snapshot, nodes[order], rows[order], np.zeros(len(rows), np.bool_))


def _outcomes(
    evaluator: Evaluator, decision: GangDecision, leaving: NDArray[np.intp]
) -> tuple[tuple[Pod, Evicts | Waits], ...]:
    """What is done for each member: its victims are the units with a pod on its node."""
    state = evaluator.state
    nodes = {one.node for one in decision.placements}
    first = decision.placements[0].node
    of_node: dict[str, list[Pod]] = {}
    for unit in decision.units:
        pods = [pod for victim in unit if (pod := state.pods.get(victim.key)) is not None]
        for node in {victim.node for victim in unit} & nodes or {first}:
            of_node.setdefault(node, []).extend(pods)
    found: list[tuple[Pod, Evicts | Waits]] = []
    for member, node in decision.placements:
        pod = state.pods.get(key_of(member)) or member
        victims = tuple(of_node.get(node, ()))
        row = state.snapshot.nodes.find(node)
        coming = int(np.count_nonzero(state.snapshot.pods.node[leaving] == row)) if len(leaving) else 0
        if not victims:
            found.append((pod, Waits(node, coming)))
            continue
        evicts = Evicts(
            node=node,
            victims=victims,
            leaving=coming,
            candidates=1,
            alternatives=(),
            because=f"{len(decision.placements)} pods of {decision.gang.key} are placed together",
            last_resort=frozenset(key_of(victim) for victim in victims if is_last_resort(victim)),
            grounds={key_of(victim): decision.grounds[key_of(victim)] for victim in victims},
        )
        found.append((pod, evicts))
    return tuple(found)


def _unnominated(pod: Pod) -> Pod:
    """The pod as if it had no nomination: what an earlier plan left there is not to weigh in."""
    if not pod.status.nominated_node_name:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=""))
