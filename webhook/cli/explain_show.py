"""What people read of a decision, and of a pod: what fails, who could go, who may not, and what would happen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from webhook.cli.output import literal, people_console, print_rows
from webhook.inspection.cluster_findings import counted
from webhook.kube.instants import rfc3339, time_span
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION, READY
from webhook.preemption.decision import decide
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.ranking import decisive, how_compared, preferred_because, shown_keys
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import CPU, requests
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.rules import Rules, kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.eviction_record import NOTHING, EvictionRecord
from webhook.reconciler.evaluate.extender_client import ExtenderCache, url_of
from webhook.reconciler.evaluate.gang_evaluator import GangMembers, Together, evaluate_gang
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Promised, Unschedulable, Waits
from webhook.reconciler.evaluate.victim_exclusions import decide_with_exclusions, immovable
from webhook.reconciler.plans.adoption import recall_evictions
from webhook.reconciler.possible_evictions import possible_evictions
from webhook.reconciler.preemptors import PolicySet, ineligible_reason, is_marked
from webhook.reconciler.state.annotations import UnreadableError, decision_of, plan_of
from webhook.reconciler.state.notices import is_ready, notice_of
from webhook.reconciler.state.state import State

_MOST_NODES = 10
"""Nodes shown one by one; beyond, the others are counted by what fails."""
_MOST_NAMES = 4
_COMPARED = 5


def explain_decision(name: str, pod: Pod, snapshot: Snapshot, rules: Rules, decision: Decision) -> None:
    """Print one decision for a pod; `name` is the cluster's."""
    console = people_console()
    by_class = f", class {pod.spec.priority_class_name}" if pod.spec.priority_class_name else ""
    asked = ", ".join(_amount(resource, amount) for resource, amount in sorted(requests(pod).items())) or "nothing"
    by = "plain Kubernetes rules" if rules.policy is None else f"policy {rules.name}"
    details = literal(f"(priority {priority_of(pod)}{by_class}) asks for {asked}; by {by}")
    console.print(f"[bold]{literal(name)}: [cyan]{literal(key_of(pod))}[/cyan][/bold] {details}")
    console.print(_said_of(decision, len(snapshot.node_names())))
    if decision.selected is not None:
        _print_plan(console, decision, decision.selected, snapshot, strict=rules.strict_budgets)
    _print_nodes(console, decision, snapshot)
    console.print()


def _said_of(decision: Decision, count: int) -> str:
    """The decision in one line, coloured, among so many nodes."""
    nodes, anywhere = counted(count, "node"), "the only node" if count == 1 else f"any of {count} nodes"
    selected = decision.selected
    if not decision.eligible:
        colour, text = "yellow", f"No preemption: {decision.reason}"
    elif decision.fits:
        colour, text = "green", f"No preemption: it fits on {len(decision.fits)} of {nodes}."
    elif len(decision.unresolvable) == count:
        colour, text = "red", f"No preemption: no eviction could make it fit on {anywhere}."
    elif selected is None:
        colour, text = "red", f"No preemption: evicting all who may go does not make room on {anywhere}."
    else:
        best = "only candidate" if decision.candidate_count == 1 else f"best of {decision.candidate_count} candidates"
        where = f"from {selected.node}"
        if _goes_elsewhere(selected):
            on = {victim.node for victim in selected.victims}
            where = f"from {counted(len(on), 'node')} for room on {selected.node}"
            where += f", {room}" if (room := decision.made_room(selected)) else ""
        pods = counted(len(selected.victims), "pod")
        colour, text = "green", f"Plan: evict {pods} {where}, the {best} among {nodes}."
    return f"[{colour}]{literal(text)}[/{colour}]"


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"cpu {amount / 1000:g}"
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount >= size:
            return f"{name} {amount / size:.4g}{unit}"
    return f"{name} {amount}"


def _goes_elsewhere(candidate: Candidate) -> bool:
    """Whether a victim is on another node."""
    return any(victim.node != candidate.node for victim in candidate.victims)


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _print_plan(console: Console, decision: Decision, selected: Candidate, snapshot: Snapshot, *, strict: bool) -> None:
    """The victims; then the keys of the best candidates, and the one by which the winner won."""
    elsewhere, grouped = _goes_elsewhere(selected), any(victim.group for victim in selected.victims)
    heads = ("pod", "priority", "started", "budgets", *["node"] * elsewhere, *["goes with all of"] * grouped)
    rows = []
    for victim in selected.victims:
        row = snapshot.pods.find(victim.namespace, victim.name)
        budgets = snapshot.budgets.of(row, strict=strict) if row is not None else []
        left = ", ".join(f"{budget.name} ({budget.allowed} left)" for budget in budgets) or "none"
        started = "not started" if math.isinf(victim.start_time) else rfc3339(victim.start_time)
        also = (*[victim.node] * elsewhere, *[victim.group or "none"] * grouped)
        rows.append((victim.key, str(victim.priority), started, left, *also))
    where = "" if elsewhere else f" on {literal(selected.node)}"
    console.print(f"\nVictims{where}, most important first")
    print_rows(console, heads, rows, numbers=(1,), most=None, indent=2)
    console.print()
    first, *others = decision.scores(_COMPARED)
    if others:
        keys = shown_keys(first)
        decided = decisive(first, others[0])
        headings = [f"> {key.heading}" if key.name == decided else key.heading for key in keys]
        rows = [(candidate.node, *(key.text(candidate) for key in keys)) for candidate in (first, *others)]
        title = f"Why it won: {how_compared([key.heading for key in keys])}"
        print_rows(console, ("node", *headings), rows, title=title, numbers=range(1, len(keys) + 1), indent=2)
        console.print(f"{literal(preferred_because(first, others[0]))}.\n")


def _print_nodes(console: Console, decision: Decision, snapshot: Snapshot) -> None:
    """Nodes, the best first, those that no eviction helps last; beyond a few they are counted by what fails."""
    plans = {candidate.node: candidate for candidate in decision.shortlist(_MOST_NODES)}
    hopeless, reasons = set(decision.unresolvable), decision.node_reasons
    others = [name for name in snapshot.node_names() if name not in plans]
    names = [*plans, *sorted(others, key=hopeless.__contains__)]
    rows = []
    for name in names[:_MOST_NODES]:
        failing = [reasons.get(name, "nothing: it fits"), *["no eviction can cure this"] * (name in hopeless)]
        kept: dict[str, list[Any]] = defaultdict(list)
        for excluded in decision.excluded(name):
            kept[excluded.rule].append(excluded)
        protected = []
        for rule, pods in kept.items():
            why = sorted({excluded.text for excluded in pods})
            eg = "e.g. " if len(why) > 1 else ""
            protected.append(f"{rule}: {listed([excluded.pod for excluded in pods])} — {eg}{why[0]}")
        rows.append((name, failing, _goers(decision, snapshot, plans.get(name), name), protected))
    heads = ("node", "what fails", "who would have to go", "who may not go, and by which rule")
    print_rows(console, heads, rows, title="Nodes", ruled=True)
    if not (rest := names[_MOST_NODES:]):
        return
    candidates, may_help = (
        {candidate.node for candidate in decision.candidates},
        decision.eligible and not decision.fits,
    )
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in rest:
        helps = "not of those who may go" if may_help else ""
        helps = "no" if name in hopeless else "yes" if name in candidates else helps
        groups[reasons.get(name, "nothing: it fits"), helps].append(name)
    largest = sorted(groups.items(), key=lambda item: -len(item[1]))
    counts = [(str(len(alike)), reason, helps, listed(alike)) for (reason, helps), alike in largest]
    heads = ("nodes", "what fails", "would evictions help", "such as")
    print_rows(
        console, heads, counts, title=f"{counted(len(rest), 'node')} more, by what fails", numbers=(0,), ruled=True
    )


def _goers(decision: Decision, snapshot: Snapshot, plan: Candidate | None, node: str) -> str:
    """The plan for the node, or who may go."""
    if plan is not None:
        beyond = f" ({plan.pdb_violations} beyond a budget)" if plan.pdb_violations else ""
        together = with_all_of(victim.group for victim in plan.victims)
        return f"{listed([victim.key for victim in plan.victims])}{together}{beyond}"
    protected = {excluded.pod for excluded in decision.excluded(node)}
    keys = [f"{pod.namespace}/{pod.name}" for pod in snapshot.pods_on(node)]
    free = [key for key in keys if key not in protected]
    if free and not decision.fits and decision.eligible and node not in decision.unresolvable:
        return f"not enough: {listed(free)} may go"
    return f"{len(free) or 'nobody'} may go"


def show(
    pod: Pod,
    state: State,
    policy_set: PolicySet,
    clock: SteadyClock | None = None,
    *,
    record: EvictionRecord = NOTHING,
) -> None:
    """Print all there is to say of a pod in a cluster that has been listed; `clock` tells when that was."""
    console, clock = people_console(), clock or SteadyClock()
    policy = policy_set.policy_of(pod)
    why_not = ineligible_reason(pod, policy)
    if why_not or policy is None:
        console.print(literal(f"{key_of(pod)} is not acted for: {why_not}."), style="yellow")
    else:
        console.print(literal(f"{key_of(pod)} is acted for, by policy {policy.name}."), style="green")
    for line in [*written_on(pod), *_victims_told(pod, state)]:
        console.print(literal(line))
    if pod.spec.node_name and not pod.metadata.deletion_timestamp:
        _show_possible_evictions(console, pod, state, policy_set, clock.wall())
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
        console.print(f"Now: {literal(_now(state, pod, policy, policy_set, clock, record=record))}")


def _victims_told(pod: Pod, state: State) -> list[str]:
    """Which victims of the plan on the pod have been told, and by when they are asked to leave."""
    try:
        plan = plan_of(pod)
    except UnreadableError:
        plan = None
    lines = []
    for victim in plan.victims if plan is not None and plan.notice else ():
        known = state.pod_of(victim.key, victim.uid)
        notice = notice_of(known) if known is not None else None
        if plan and known and notice and notice.plan == plan.id:
            said = ", and is ready" if is_ready(known, plan.id) else ""
            lines.append(f"Victim {victim.key} is asked to leave by {notice.by}{said}.")
    return lines


def _now(
    state: State, pod: Pod, policy: PreemptionPolicy, policy_set: PolicySet, clock: Any, *, record: EvictionRecord
) -> str:
    """What the reconciler would do now, in words: for the pod, or for the gang that it belongs to."""
    evaluator, rules = Evaluator(state, EvictionLimiter(), clock), policy_set.rules[policy.name]
    recall_evictions(evaluator, policy_set, record, "")  # what of the rates is used up
    outcome: Outcome | Together
    if gang := is_gang(state.snapshot, pod):
        waiting = state.waiting_members(group_of(pod))
        ready = tuple(member for member in waiting if policy_set.policy_to_act_by(member) is policy)
        gated = tuple(member for member in waiting if member.spec.scheduling_gates)
        members = GangMembers(group_of(pod), ready, gated, ())
        outcome = evaluate_gang(evaluator, members, policy, rules, 0, left_out=(), promised=Promised())
    else:
        extenders = [ExtenderCache(extender, {}) for extender in policy.extenders]
        outcome = evaluator.evaluate(pod, policy, rules, 0, extenders=extenders)
    match outcome:
        case Fits(nodes) if gang:
            return f"nothing; kube-scheduler can bind all of them, for example to {listed(nodes)}."
        case Fits(nodes):
            unless = "if it does not, the reconciler decides for it without that node after a while"
            return f"nothing; kube-scheduler can bind it to {nodes[0]} ({unless})."
        case Unschedulable():
            return f"nothing would be done: {outcome.text}"
        case Waits(node, leaving):
            pods = "1 pod there is" if leaving == 1 else f"{leaving} pods there are"
            return f"{node} would be reserved, and nobody evicted: {pods} leaving anyway."
        case Evicts(node, victims, groups=groups, room=room):
            names = listed([key_of(victim) for victim in victims])
            return f"{node} would be reserved, and {names} evicted{with_all_of(groups.values())}{room and f' {room}'}."
        case Asks(question):
            where = listed([candidate.node for candidate in question.candidates])
            return f"evicting on {where} would make room; extender {url_of(question.extender)} says where it may."
    places = listed([f"{key_of(member)} to {what.node}" for member, what in outcome.placed])
    gone = dict.fromkeys(key_of(victim) for _, what in outcome.placed for victim in what.victims)
    together = with_all_of(group for _, what in outcome.placed for group in what.groups.values())
    evicted = f"and {listed(list(gone))} evicted{together}" if gone else "and nobody evicted"
    return f"{len(outcome.placed)} pods would be nominated ({places}), {evicted}."


def _show_possible_evictions(console: Console, pod: Pod, state: State, policy_set: PolicySet, now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    evictions = possible_evictions(state, policy_set, key_of(pod), now)
    may = [eviction for eviction in evictions if eviction.since is not None]
    first = min((eviction.since for eviction in may if eviction.policy and eviction.since is not None), default=None)
    by_giveway = "may not evict it as things are"
    if first is not None:
        by_giveway = "may evict it now" if first <= now else f"may evict it from {rfc3339(first)} on"
    by_scheduler = "may not" if all(eviction.policy for eviction in may) else "may at any time"
    said = f"{literal(pod.spec.node_name)}. giveway {by_giveway}; kube-scheduler {by_scheduler}."
    console.print(f"\n[bold cyan]{literal(key_of(pod))}[/bold cyan] runs on {said}")
    rows = []
    for eviction in sorted(evictions, key=lambda eviction: eviction.since is None):
        when = ["not as things are"]
        if eviction.since is not None:
            later = [rfc3339(eviction.since), f"(in {time_span(eviction.since - now)})"]
            when = ["now"] if eviction.since <= now else later
        who = f"giveway, policy {eviction.policy}" if eviction.policy else "kube-scheduler"
        classes = listed([f"{name} ({value})" for name, value in eviction.classes]) or "none"
        rows.append((who, classes, when, [f"{eviction.rule}: {eviction.text}", *eviction.conditions]))
    heads = ("who", "for pods of class", "from when", "by which rule")
    print_rows(console, heads, rows, title="Who could evict it", most=None, ruled=True)


def explain_alone(pod: Pod, policy_set: PolicySet | None, unreadable: Sequence[str], absent: str = "") -> None:
    """Print what the pod says; `policy_set` is None if the policies in force are not known.

    `unreadable` is what could not be read, and `absent` why there are no policies, for the one sentence that says so.
    """
    console, spec, annotations = people_console(), pod.spec, pod.metadata.annotations or {}
    lines = [f"{key_of(pod)} has PriorityClass {spec.priority_class_name or 'none'}, priority {spec.priority or 0}."]
    if spec.node_name:
        lines.append(f"It runs on {spec.node_name}.")
        if CAN_BE_PREEMPTED in annotations:
            lines.append(f"Annotation {CAN_BE_PREEMPTED}: {annotations[CAN_BE_PREEMPTED]}.")
        if PROTECTION_DURATION in annotations:
            since = f", from {pod.status.start_time} on" if pod.status.start_time else ""
            lines.append(f"It is protected for {annotations[PROTECTION_DURATION]} s{since}.")
    elif policy_set is not None:
        why_not = ineligible_reason(pod, policy_set.policy_of(pod))
        lines.append(f"It is not acted for: {why_not}." if why_not else "giveway acts for it.")
    elif is_marked(pod):
        lines.append("giveway preempts for it, if its scheduler finds no room.")
    else:
        lines.append("giveway does not preempt for it: no policy manages its class.")
    lines += [
        f"Its scheduler says: {condition.message or condition.reason or 'no reason'}"
        for condition in pod.status.conditions or ()
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
    for line in [*lines, *written_on(pod)]:
        console.print(literal(line), soft_wrap=True)
    names = ", ".join(dict.fromkeys(unreadable))  # PodGroups are of three APIs
    reasons = [*([f"you may not read {names} of the whole cluster"] if names else []), *([absent] if absent else [])]
    text = f"What preemption would do now is not said, because {literal(', and '.join(reasons))}."
    console.print(text, style="dim", soft_wrap=True)


def written_on(pod: Pod) -> list[str]:
    """What is written on the pod of plans past and present."""
    lines, nominated = [], not pod.spec.node_name and pod.status.nominated_node_name
    if (notice := notice_of(pod)) is not None:
        whom = f"pod {notice.preemptor}" if notice.preemptor else f"a pod of another namespace (uid {notice.uid})"
        lines.append(f"It is asked to leave by {notice.by}, for {whom} of priority {notice.priority}.")
        ready = is_ready(pod, notice.plan)
        lines.append("It says that it is ready to leave." if ready else f"With {READY}=true it is asked at once.")
    if (decision := decision_of(pod)) is not None:
        victims = ", ".join(victim.pod for victim in decision.victims) or "nobody"
        victims += f" and {decision.more_victims} more" if decision.more_victims else ""
        victims += with_all_of(victim.group or "" for victim in decision.victims)
        last = f"Last decision, at {decision.at}: node {decision.node}, to evict {victims}"
        lines.append(f"{last} (attempt {decision.attempt}).")
        lines += [f"Why that node: {decision.because}."] if decision.because else []
        if decision.left_out:
            why = "since the scheduler did not bind it there though there was room"
            lines.append(f"Left out then, {why}: {listed(decision.left_out)}.")
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [*lines, f"Plan: {error}."]
    if plan is not None and not nominated and not pod.spec.node_name:
        lines.append(
            f"A plan for node {plan.node} is under way until {plan.deadline}. The scheduler cleared the nomination, "
            "so nothing reserves the room; a profile without PostFilter plugins does that at every failed attempt."
        )
    elif plan is not None:
        lines.append(f"A plan is under way: node {plan.node} is reserved until {plan.deadline}.")
        lines += [f"Its victims are told {plan.notice:g} s before they are asked to leave."] if plan.notice else []
    elif nominated:
        lines.append(f"It is nominated to {nominated}, though not by giveway.")
    return lines
