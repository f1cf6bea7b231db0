"""What to do for a gang, on the newest state: nothing, wait, place its members together, or nothing helps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.preemption.filters.devices import needs_devices
from webhook.preemption.gangs.decision import GangDecision, decide_gang
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.devices_ahead import ONE_BY_ONE, DevicesAhead
from webhook.reconciler.evaluate.evaluator import Evaluator, schedule_begins, unnominated
from webhook.reconciler.evaluate.limits import NOT_NOW, Rates
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Promised, Unschedulable, Waits
from webhook.reconciler.evaluate.pods_ahead import blocked_text
from webhook.reconciler.evaluate.room import rows_without
from webhook.reconciler.evaluate.victim_exclusions import LimitsNow, among_last_resort, excluded_now, last_resort
from webhook.reconciler.state.annotations import MOST_MEMBERS
from webhook.reconciler.state.state import State

_TRIES = 3
"""Decisions until one keeps the rates."""


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


def evaluate_gang(
    evaluator: Evaluator,
    members: GangMembers,
    policy: PreemptionPolicy,
    rules: Rules,
    attempts: int,
    *,
    left_out: Collection[str],
    promised: Promised,
) -> Evicts | Waits | Fits | Unschedulable:
    """What to do for the members of a gang together (docs/semantics.md D12).

    `attempts` is how many plans evicted for one of them in vain; nothing is planned on the nodes `left_out`. Raises
    ClusterError for a member that cannot be read.
    """
    if not members.ready:
        return Unschedulable("it waits for its scheduler to look at it")
    if policy.extenders:
        return Unschedulable("the policy has extenders, and they are not asked about gangs")
    if len(members.ready) + len(members.secured) > MOST_MEMBERS:
        return Unschedulable(f"{members.key} has more than {MOST_MEMBERS} pods to be placed together")
    state, at = evaluator.state, Now.by(evaluator.clock)
    # 1. The gang, at the lowest priority that its group or a member has; nobody of it counts as nominated.
    gang = form_gang(state.snapshot, map(unnominated, (*members.ready, *members.gated)), members.secured)
    gang = gang._replace(priority=min([gang.priority, *map(priority_of, members.ready)]))
    # 2. Decide with the pods excluded that evicting would not remove, or must not now; those of last resort at last.
    leaving, limits = evaluator.leaving_soon(policy, at), evaluator.limits_now(policy, members.ready, at)
    left, past = limits.left, limits.past
    exclusions, last = excluded_now(state, limits, leaving), last_resort(state)
    # Pods that a plan has yet to ask do not count as leaving: that plan may end because of this gang, and they stay
    leaving = rows_without(leaving, evaluator.staying(promised.planned))
    decided = partial(
        decide_gang,
        state.snapshot,
        gang,
        rules,
        at.wall,
        leaving=leaving,
        evicted=past.evicted_lately(),
        keeps_budgets=policy.eviction is EvictionMode.EVICT,
    )
    masks = (exclusions | last, exclusions) if last.any() else (exclusions,)
    decision = _placed(evaluator, decided, members.ready, masks, limits=limits, left_out=left_out)
    if isinstance(decision, Unschedulable):
        return past.kept_from(decision)
    if not decision.placements:
        begins = schedule_begins(policy, rules, at)
        due = left.again if begins is None else begins
        return past.kept_from(Unschedulable(decision.reason, limited=left.again is not None, due=due))
    # 3. If it fits as things are, that is kube-scheduler's business.
    if not decision.victims:
        at_once = decide_gang(state.snapshot, gang, rules, at.wall, exclusions=exclusions, left_out=left_out)
        if at_once.fits:
            return Fits(tuple(sorted({placement.node for placement in at_once.placements})))
    # 4. Within attempts, and if nobody of higher priority would take the room.
    if decision.victims and (too_many := limits.too_many(attempts)) is not None:
        return too_many
    if taker := _taken_by(evaluator, decision, promised, leaving, at):
        return Unschedulable(f"where evicting pods makes room, {taker}", behind=True)
    return past.closed_by(_outcome(state, decision, leaving, decision.outside))


def _placed(
    evaluator: Evaluator,
    decided: Callable[..., GangDecision],
    ready: Collection[Pod],
    masks: Sequence[NDArray[np.bool_]],
    *,
    limits: LimitsNow,
    left_out: Collection[str],
) -> GangDecision | Unschedulable:
    """The decision within the rates with the first of the `masks` excluded that leaves enough, or what keeps it.

    Nobody is evicted where pods would take a part of a member's devices: then other nodes are looked for.
    """
    avoided, taker = set(left_out), ""
    for _ in range(_TRIES):
        for excluded in masks:
            decision, beyond = _within_rates(evaluator, partial(decided, left_out=avoided), excluded, limits.rates)
            if decision.placements and not beyond:
                break
        early = _early_taker(evaluator, decision, ready) if decision.placements and not beyond else None
        if early is None:
            break
        who, node = early
        taker = taker or who
        avoided.add(node)
    if taker and (early is not None or not decision.placements):
        return Unschedulable(ONE_BY_ONE.format(taker), behind=True)
    if beyond:
        due = limits.left.until if beyond == NOT_NOW else None
        return Unschedulable("more pods would have to go than the policy's limits allow", limited=True, due=due)
    return decision


def _early_taker(evaluator: Evaluator, decision: GangDecision, members: Collection[Pod]) -> tuple[str, str] | None:
    """Who would take a part of the devices that members need on one of their nodes, and that node; None for nobody."""
    victims: dict[str, list[str]] = {}
    for victim in decision.victims:
        victims.setdefault(victim.node, []).append(victim.key)
    for member, node in decision.placements:
        if node in victims and needs_devices(evaluator.state.snapshot, compile_pod(member)):
            now = Now.by(evaluator.clock)
            ahead = evaluator.pods_ahead((member,), now, others=members)
            devices = DevicesAhead(ahead, member, now=now.wall)
            if who := devices.taker(node, evaluator.state.snapshot.pod_rows(victims[node])):
                return who, node
    return None


def _within_rates(
    evaluator: Evaluator, decided: Callable[..., GangDecision], exclusions: NDArray[np.bool_], rates: Rates | None
) -> tuple[GangDecision, int]:
    """The decision with these pods excluded, and the code of the rate that it goes beyond; 0 for none.

    If it goes beyond one, it is decided again, a few times. Then only as many pods of each owner and so on may go as
    the rates leave: those that were chosen first.
    """
    snapshot = evaluator.state.snapshot
    code = 0
    for _ in range(_TRIES):
        decision: GangDecision = decided(exclusions=exclusions)
        if rates is None or not decision.victims:
            return decision, 0 if decision.placements else code
        chosen = snapshot.pod_rows([victim.key for victim in decision.victims])
        on = np.full(len(chosen), snapshot.pods.node[chosen[0]], np.intp)  # as if all were on one node
        code = int(rates(Candidates.on_nodes(snapshot, on, chosen, np.zeros(len(chosen), np.bool_)))[0])
        if code == 0:
            break
        excluded = np.zeros(snapshot.pods.rows, np.bool_)  # the trial may have made rows
        excluded[np.flatnonzero(exclusions)] = True
        rows = np.flatnonzero(~excluded & (snapshot.pods.node[: len(excluded)] >= 0))
        excluded[rates.beyond(rows, np.isin(rows, chosen).astype(np.float64), together=True)] = True
        exclusions = excluded
    return decision, code


def _taken_by(
    evaluator: Evaluator, decision: GangDecision, promised: Promised, leaving: NDArray[np.intp], at: Now
) -> str:
    """Which pod in front takes room that comes up; empty if all of it is left to the members, node by node."""
    snapshot = evaluator.state.snapshot
    if not (evaluator.pods_ahead(decision.placements[0][:1], at).anybody or promised.held):
        return ""
    victims = snapshot.pod_rows([victim.key for victim in decision.victims])
    members: dict[str, list[Pod]] = {}
    for pod, node in decision.placements:
        members.setdefault(node, []).append(pod)
    for node, together in members.items():
        ahead, row = evaluator.pods_ahead(together, at, promised), snapshot.nodes.find(node)
        going, coming = (rows[snapshot.pods.node[rows] == row] for rows in (victims, leaving))
        if ahead.taken(going if len(going) else coming, held=bool(len(going))):
            return blocked_text(ahead.blocking)
    return ""


def _outcome(
    state: State, decision: GangDecision, leaving: NDArray[np.intp], outside: frozenset[str]
) -> Evicts | Waits:
    """Evict the victims for all members, or only wait if there are none; nobody was placed on the nodes `outside`."""
    # Devices are held in this order, and those of lower priority give way
    placements = sorted(decision.placements, key=lambda placement: -priority_of(placement.pod))
    places = tuple((state.pods.get(key_of(pod)) or pod, node) for pod, node in placements)
    rows = state.snapshot.nodes.rows_of({node for _, node in places})
    coming = int(np.count_nonzero(np.isin(state.snapshot.pods.node[leaving], rows)))
    victims = tuple(pod for victim in decision.victims if (pod := state.pods.get(victim.key)) is not None)
    return (Evicts if victims else Waits)(
        node=places[0][1],
        victims=victims,
        leaving=coming,
        candidates=1,
        because=f"{len(places)} pods of {decision.gang.key} are placed together",
        last_resort=among_last_resort(state, victims),
        grounds={key_of(victim): decision.grounds[key_of(victim)] for victim in victims},
        groups={victim.key: victim.group for victim in decision.victims if victim.group},
        places=places,
        left_out=outside,
    )
