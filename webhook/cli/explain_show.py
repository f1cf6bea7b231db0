"""What `giveway explain` prints of a pod in a cluster that was read: what fails, who could go, what would happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from webhook.cli.decide_explain import explain_decision, listed
from webhook.cli.output import literal, people_console, print_table
from webhook.kube.instants import rfc3339, time_span
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION, READY
from webhook.preemption.decision import decide
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.victims.rules import kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.extender_client import ExtenderCache, url_of
from webhook.reconciler.evaluate.gang_evaluator import GangMembers, evaluate_gang
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Promised, Unschedulable, Waits
from webhook.reconciler.evaluate.victim_exclusions import decide_with_exclusions, immovable
from webhook.reconciler.plans.adoption import recall_evictions
from webhook.reconciler.possible_evictions import PossibleEviction, possible_evictions
from webhook.reconciler.preemptors import PolicySet, ineligible_reason, is_marked
from webhook.reconciler.state.annotations import UnreadableError, decision_of, plan_of
from webhook.reconciler.state.notices import is_ready, notice_of
from webhook.reconciler.state.state import State


def show(pod: Pod, state: State, policy_set: PolicySet, clock: SteadyClock | None = None) -> None:
    """Print all there is to say of a pod in a cluster that has been listed; `clock` tells when that was."""
    console = people_console()
    policy = policy_set.policy_of(pod)
    why_not = ineligible_reason(pod, policy)
    key = literal(key_of(pod))
    if why_not:
        console.print(f"[yellow]{key} is not acted for: {literal(why_not)}.[/yellow]")
    else:
        assert policy is not None
        console.print(f"[green]{key} is acted for, by policy {policy.name}.[/green]")
    for line in [*written_on(pod), *_victims_told(pod, state)]:
        console.print(literal(line))
    clock = clock or SteadyClock()
    if pod.spec.node_name and not pod.metadata.deletion_timestamp:
        evictions = possible_evictions(state, policy_set, key_of(pod), clock.wall())
        _show_possible_evictions(key_of(pod), pod.spec.node_name, evictions, clock.wall())
    if pod.spec.node_name or pod.metadata.deletion_timestamp:
        return
    if policy is None:
        rules = kubernetes_rules()
        decision = decide(state.snapshot, pod, rules, clock.wall())
    else:
        rules = policy_set.rules[policy.name]
        decision = decide_with_exclusions(state, pod, rules, clock.wall(), immovable(state, ()))
    console.print()
    if is_gang(state.snapshot, pod):
        whole = f"It belongs to {group_of(pod)} and is placed together with others of it"
        console.print(literal(f"{whole}: this is about it alone, and the last line about all of them."))
    explain_decision("cluster", pod, state.snapshot, rules, decision)
    if policy is not None and not why_not:
        console.print(f"Now: {literal(_now(state, pod, policy, policy_set, clock))}")


def _victims_told(pod: Pod, state: State) -> list[str]:
    """Which victims of the plan on the pod have been told, and by when they are asked to leave."""
    try:
        plan = plan_of(pod)
    except UnreadableError:
        return []
    lines = []
    for victim in plan.victims if plan is not None and plan.notice else ():
        known = state.pod_of(victim.key, victim.uid)
        notice = notice_of(known) if known is not None else None
        if known is not None and plan is not None and notice is not None and notice.plan == plan.id:
            said = ", and is ready" if is_ready(known, plan.id) else ""
            lines.append(f"Victim {victim.key} is asked to leave by {notice.by}{said}.")
    return lines


def _now(state: State, pod: Pod, policy: PreemptionPolicy, policy_set: PolicySet, clock: Any) -> str:
    """What the reconciler would do now, in words: for the pod, or for the gang that it belongs to."""
    evaluator, rules = Evaluator(state, EvictionLimiter(), clock), policy_set.rules[policy.name]
    recall_evictions(evaluator, policy_set)  # what of the rates is used up, as a new leader reads it off the pods
    if is_gang(state.snapshot, pod):
        waiting = state.waiting_members(group_of(pod))
        ready = tuple(member for member in waiting if policy_set.policy_to_act_by(member) is policy)
        gated = tuple(member for member in waiting if member.spec.scheduling_gates)
        members = GangMembers(group_of(pod), ready, gated, ())
        together = evaluate_gang(evaluator, members, policy, rules, 0, left_out=(), promised=Promised())
        match together:
            case Fits(nodes):
                return f"nothing; kube-scheduler can bind all of them, for example to {listed(list(nodes))}."
            case Unschedulable():
                return f"nothing would be done: {together.text}"
        places = listed([f"{key_of(member)} to {what.node}" for member, what in together.placed])
        gone = dict.fromkeys(key_of(victim) for _, what in together.placed for victim in what.victims)
        groups = with_all_of(group for _, what in together.placed for group in what.groups.values())
        evicted = f"and {listed(list(gone))} evicted{groups}" if gone else "and nobody evicted"
        return f"{len(together.placed)} pods would be nominated ({places}), {evicted}."
    extenders = [ExtenderCache(extender, {}) for extender in policy.extenders]
    outcome: Outcome = evaluator.evaluate(pod, policy, rules, 0, extenders=extenders)
    match outcome:
        case Fits(nodes):
            unless = "if it does not, the reconciler decides for it without that node after a while"
            return f"nothing; kube-scheduler can bind it to {nodes[0]} ({unless})."
        case Waits(node, leaving):
            pods = "1 pod there is" if leaving == 1 else f"{leaving} pods there are"
            return f"{node} would be reserved, and nobody evicted: {pods} leaving anyway."
        case Evicts(node, victims, groups=groups_, room=room):
            names = listed([key_of(victim) for victim in victims])
            return f"{node} would be reserved, and {names} evicted{with_all_of(groups_.values())}{room and f' {room}'}."
        case Asks(question):
            where = listed([candidate.node for candidate in question.candidates])
            return f"evicting on {where} would make room; extender {url_of(question.extender)} says where it may."
        case Unschedulable():
            return f"nothing would be done: {outcome.text}"


def _show_possible_evictions(pod: str, where: str, evictions: list[PossibleEviction], now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    console = people_console()
    first = min(
        (eviction.since for eviction in evictions if eviction.policy and eviction.since is not None), default=None
    )
    by_giveway = "may not evict it as things are"
    if first is not None:
        by_giveway = "may evict it now" if first <= now else f"may evict it from {rfc3339(first)} on"
    by_scheduler = (
        "may at any time"
        if any(not eviction.policy and eviction.since is not None for eviction in evictions)
        else "may not"
    )
    said = f"giveway {by_giveway}; kube-scheduler {by_scheduler}."
    console.print(f"\n[bold cyan]{literal(pod)}[/bold cyan] runs on {literal(where)}. {said}")
    table = Table(title="Who could evict it", title_justify="left", show_lines=True)
    table.add_column("who", ratio=2, overflow="fold")
    table.add_column("for pods of class", ratio=3, overflow="fold")
    table.add_column("from when", no_wrap=True)
    table.add_column("by which rule", ratio=4, overflow="fold")
    for eviction in sorted(evictions, key=lambda eviction: eviction.since is None):
        if eviction.since is None:
            when = "[dim]not as things are[/dim]"
        elif eviction.since <= now:
            when = "[yellow]now[/yellow]"
        else:
            when = f"[yellow]{rfc3339(eviction.since)}\n(in {time_span(eviction.since - now)})[/yellow]"
        table.add_row(
            f"giveway, policy {literal(eviction.policy)}" if eviction.policy else "kube-scheduler",
            literal(listed([f"{name} ({value})" for name, value in eviction.classes]) or "none"),
            when,
            "\n".join(
                (
                    f"[magenta]{literal(eviction.rule)}[/magenta]: {literal(eviction.text)}",
                    *map(literal, eviction.conditions),
                )
            ),
        )
    print_table(console, table)


def explain_alone(pod: Pod, policy_set: PolicySet | None, unreadable: Sequence[str], absent: str = "") -> None:
    """Print what the pod says; `policy_set` is None if the policies in force are not known.

    `unreadable` is what could not be read, and `absent` why there are no policies, for the one sentence that says so.
    """
    console = people_console()
    key, spec = literal(key_of(pod)), pod.spec
    lines = [f"{key} has PriorityClass {literal(spec.priority_class_name or 'none')}, priority {spec.priority or 0}."]
    if spec.node_name:
        lines += [f"It runs on {literal(spec.node_name)}.", *_as_victim(pod)]
    elif policy_set is not None:
        why_not = ineligible_reason(pod, policy_set.policy_of(pod))
        lines.append(f"It is not acted for: {literal(why_not)}." if why_not else "giveway acts for it.")
    elif is_marked(pod):
        lines.append("giveway preempts for it, if its scheduler finds no room.")
    else:
        lines.append("giveway does not preempt for it: no policy manages its class.")
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            lines.append(f"Its scheduler says: {literal(condition.message or condition.reason or 'no reason')}")
    lines += map(literal, written_on(pod))
    for line in lines:
        console.print(line, soft_wrap=True)
    names = ", ".join(dict.fromkeys(unreadable))  # PodGroups are of three APIs
    reasons = [*([f"you may not read {names} of the whole cluster"] if names else []), *([absent] if absent else [])]
    console.print(
        f"What preemption would do now is not said, because {literal(', and '.join(reasons))}.",
        style="dim",
        soft_wrap=True,
    )


def _as_victim(pod: Pod) -> list[str]:
    """What its annotations say of evicting it."""
    annotations, lines = pod.metadata.annotations or {}, []
    if CAN_BE_PREEMPTED in annotations:
        lines.append(f"Annotation {CAN_BE_PREEMPTED}: {literal(annotations[CAN_BE_PREEMPTED])}.")
    if PROTECTION_DURATION in annotations:
        since = f", from {pod.status.start_time} on" if pod.status.start_time else ""
        lines.append(f"It is protected for {literal(annotations[PROTECTION_DURATION])} s{since}.")
    return lines


def written_on(pod: Pod) -> list[str]:
    """What is written on the pod of plans past and present."""
    lines = []
    if (notice := notice_of(pod)) is not None:
        whom = f"pod {notice.preemptor}" if notice.preemptor else f"a pod of another namespace (uid {notice.uid})"
        lines.append(f"It is asked to leave by {notice.by}, for {whom} of priority {notice.priority}.")
        ready = is_ready(pod, notice.plan)
        lines.append("It says that it is ready to leave." if ready else f"With {READY}=true it is asked at once.")
    decision = decision_of(pod)
    if decision is not None:
        victims = ", ".join(victim.pod for victim in decision.victims) or "nobody"
        victims += f" and {decision.more_victims} more" if decision.more_victims else ""
        victims += with_all_of(victim.group or "" for victim in decision.victims)
        lines.append(
            f"Last decision, at {decision.at}: node {decision.node}, to evict {victims} (attempt {decision.attempt})."
        )
        if decision.because:
            lines.append(f"Why that node: {decision.because}.")
        if decision.left_out:
            names = listed(list(decision.left_out))
            lines.append(f"Left out then, since the scheduler did not bind it there though there was room: {names}.")
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [*lines, f"Plan: {error}."]
    if plan is not None and not pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(
            f"A plan for node {plan.node} is under way until {plan.deadline}. The scheduler cleared the nomination, "
            "so nothing reserves the room; a profile without PostFilter plugins does that at every failed attempt."
        )
    elif plan is not None:
        lines.append(f"A plan is under way: node {plan.node} is reserved until {plan.deadline}.")
        if plan.notice:
            lines.append(f"Its victims are told {plan.notice:g} s before they are asked to leave.")
    elif pod.status.nominated_node_name and not pod.spec.node_name:
        lines.append(f"It is nominated to {pod.status.nominated_node_name}, though not by giveway.")
    return lines
