"""What people read of a decision, and of a pod: what fails, who could go, who may not, and what would happen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

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
from webhook.preemption.victims.rules import Rules, kubernetes_rules
from webhook.reconciler.clock import SteadyClock
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.extender_client import ExtenderCache, url_of
from webhook.reconciler.evaluate.gang_evaluator import GangMembers, Together, evaluate_gang
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Promised, Unschedulable
from webhook.reconciler.evaluate.victim_exclusions import decide_with_exclusions, immovable
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.evictions.record import NOTHING, EvictionRecord
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
_FITS = "nothing: it fits"


def explain_decision(name: str, pod: Pod, snapshot: Snapshot, rules: Rules, decision: Decision) -> None:
    """Print one decision for a pod; `name` is the cluster's."""
    console = people_console()
    by_class = f", class {pod.spec.priority_class_name}" if pod.spec.priority_class_name else ""
    asked = ", ".join(_amount(resource, amount) for resource, amount in sorted(requests(pod).items())) or "nothing"
    by = "plain Kubernetes rules" if rules.policy is None else f"policy {rules.name}"
    details = literal(f"(priority {priority_of(pod)}{by_class}) asks for {asked}; by {by}")
    console.print(f"[bold]{literal(name)}: [cyan]{literal(key_of(pod))}[/cyan][/bold] {details}")
    console.print(
        literal(_said_of(decision, len(snapshot.node_names()))), style="green" if decision.selected else "red"
    )
    console.print()
    if decision.selected is not None:
        victims = [
            (victim.key, str(victim.priority), victim.node, victim.group, _grounds(decision, victim.key))
            for victim in decision.selected.victims
        ]
        heads = ("pod", "priority", "node", "goes with all of", "may go, because")
        print_rows(console, heads, victims, title="Victims", numbers=(1,), most=None, indent=2)
    scores = decision.scores(_COMPARED)
    if len(scores) > 1:
        keys, decided = shown_keys(scores[0]), decisive(scores[0], scores[1])
        headings = [f"> {key.heading}" if key.name == decided else key.heading for key in keys]
        rows = [(score.node, *(key.text(score) for key in keys)) for score in scores]
        title = f"Why it won: {how_compared([key.heading for key in keys])}"
        print_rows(console, ("node", *headings), rows, title=title, numbers=range(1, len(keys) + 1), indent=2)
        console.print(f"{literal(preferred_because(scores[0], scores[1]))}.")
    _print_nodes(console, decision, snapshot)
    console.print()


def _grounds(decision: Decision, pod: str) -> str:
    """Why a victim may go; empty if its name, which no API server would take, is not found."""
    return decision.victim_reason(pod).text if decision.may_go(pod) else ""


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"cpu {amount / 1000:g}"
    return f"{name} {amount / 2**30:.4g}Gi" if amount >= 2**20 else f"{name} {amount}"


def _said_of(decision: Decision, count: int) -> str:
    """The decision in one line, among so many nodes."""
    nodes, selected = counted(count, "node"), decision.selected
    if selected is not None:
        best = f"the best of {counted(decision.candidate_count, 'candidate')} among {nodes}"
        room = f", {room}" if (room := decision.made_room(selected)) else ""
        return f"Plan: evict {counted(len(selected.victims), 'pod')} for room on {selected.node}, {best}{room}."
    why = "evicting all who may go does not make room on any node."
    if not decision.eligible:
        why = decision.reason
    elif decision.fits:
        why = f"it fits on {len(decision.fits)} of {nodes}."
    elif len(decision.unresolvable) == count:
        why = "no eviction could make it fit on any node."
    return f"No preemption: {why}"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _print_nodes(console: Console, decision: Decision, snapshot: Snapshot) -> None:
    """Nodes, the best first, those that no eviction helps last; beyond a few they are counted by what fails."""
    plans = {candidate.node: candidate for candidate in decision.shortlist(_MOST_NODES)}
    hopeless, reasons = set(decision.unresolvable), decision.node_reasons
    others = [name for name in snapshot.node_names() if name not in plans]
    names = [*plans, *sorted(others, key=hopeless.__contains__)]
    rows = []
    for name in names[:_MOST_NODES]:
        failing = [reasons.get(name, _FITS), *["no eviction can cure this"] * (name in hopeless)]
        for use in decision.devices(name) if name in reasons else ():
            by = f" by {listed(use.holders)}" if use.holders else ""
            frees = f"; evicting all who may go frees {use.freed}" if use.held else ""
            failing.append(f"{use.held} of {use.published} devices of {use.driver} are held{by}{frees}")
        kept: dict[str, list[str]] = defaultdict(list)
        for excluded in (all_excluded := decision.excluded(name)):
            kept[f"{excluded.rule}: {excluded.text}"].append(excluded.pod)
        stay = {excluded.pod for excluded in all_excluded}
        free = [key for row in snapshot.pods_on(name) if (key := f"{row.namespace}/{row.name}") not in stay]
        goers = f"{listed(free) or 'nobody'} may go"
        if (plan := plans.get(name)) is not None:
            beyond = f" ({plan.pdb_violations} beyond a budget)" if plan.pdb_violations else ""
            together = with_all_of(victim.group for victim in plan.victims)
            goers = f"{listed([victim.key for victim in plan.victims])}{together}{beyond}"
        rows.append((name, failing, goers, [f"{listed(pods)} — {why}" for why, pods in kept.items()]))
    heads = ("node", "what fails", "who would have to go", "who may not go, and by which rule")
    print_rows(console, heads, rows, title="Nodes", ruled=True)
    more = Counter((reasons.get(name, _FITS), name in hopeless) for name in names[_MOST_NODES:])
    for (reason, is_hopeless), count in more.most_common(_MOST_NODES):
        cure = "; no eviction can cure this" if is_hopeless else ""
        console.print(literal(f"{counted(count, 'node')} more: {reason}{cure}"))


def show(pod: Pod, state: State, policy_set: PolicySet, *, record: EvictionRecord = NOTHING) -> None:
    """Print all there is to say of a pod in a cluster that has been listed."""
    console, clock = people_console(), SteadyClock()
    policy = policy_set.policy_of(pod)
    for line in _of_pod(pod, policy_set, state):
        console.print(literal(line))
    if pod.metadata.deletion_timestamp:
        return
    if pod.spec.node_name:
        _show_possible_evictions(console, pod, state, policy_set, clock.wall())
        return
    if policy is None:
        rules = kubernetes_rules()
        decision = decide(state.snapshot, pod, rules, clock.wall())
    else:
        rules = policy_set.rules[policy.name]
        decision = decide_with_exclusions(state, pod, rules, clock.wall(), immovable(state, ()))
    if is_gang(state.snapshot, pod):
        whole = f"It belongs to {group_of(pod)} and is placed together with others of it"
        console.print(literal(f"{whole}: this is about it alone, and the last line about all of them."))
    explain_decision("cluster", pod, state.snapshot, rules, decision)
    if policy is not None and not ineligible_reason(pod, policy):
        console.print(f"Now: {literal(_now(state, pod, policy, policy_set, clock, record=record))}")


def explain_alone(pod: Pod, policy_set: PolicySet | None, why: str) -> None:
    """Print what the pod itself says. `policy_set` is None if the policies in force are not known.

    `why` says what keeps everything else from being said.
    """
    console = people_console()
    for line in _of_pod(pod, policy_set):
        console.print(literal(line), soft_wrap=True)
    text = f"What preemption would do now is not said, because {literal(why)}."
    console.print(text, style="dim", soft_wrap=True)


def _of_pod(pod: Pod, policy_set: PolicySet | None, state: State | None = None) -> list[str]:
    """Whether the pod is acted for, what it and its scheduler say, and what is written on it of plans."""
    spec, annotations = pod.spec, pod.metadata.annotations or {}
    policy = policy_set.policy_of(pod) if policy_set is not None else None
    acted = f"is not acted for: {ineligible_reason(pod, policy)}"
    if policy is not None and not ineligible_reason(pod, policy):
        acted = f"is acted for, by policy {policy.name}"
    elif policy_set is None and is_marked(pod):
        acted = "is acted for, if its scheduler finds no room"
    lines = [f"{key_of(pod)} {acted}."]
    lines.append(f"Its PriorityClass is {spec.priority_class_name or 'none'}, its priority {spec.priority or 0}.")
    lines += [f"It runs on {spec.node_name}."] if spec.node_name else []
    for key in (CAN_BE_PREEMPTED, PROTECTION_DURATION):
        lines += [f"Annotation {key}: {annotations[key]}."] if spec.node_name and key in annotations else []
    lines += [
        f"Its scheduler says: {condition.message or condition.reason or 'no reason'}"
        for condition in pod.status.conditions or ()
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
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
    return lines + _of_plan(pod, state)


def _of_plan(pod: Pod, state: State | None) -> list[str]:
    """The plan that is written on the pod, and how far its victims are that were told."""
    nominated = not pod.spec.node_name and pod.status.nominated_node_name
    try:
        plan = plan_of(pod)
    except UnreadableError as error:
        return [f"Plan: {error}."]
    if plan is None:
        return [f"It is nominated to {nominated}, though not by giveway."] if nominated else []
    cleared = "" if nominated or pod.spec.node_name else ", though the scheduler cleared the nomination"
    lines = [f"A plan is under way: node {plan.node} is reserved until {plan.deadline}{cleared}."]
    lines += [f"Its victims are told {plan.notice:g} s before they are asked to leave."] if plan.notice else []
    for victim in plan.victims if state is not None else ():
        known = state.pod_of(victim.key, victim.uid) if state is not None else None
        if known is not None and (notice := notice_of(known)) is not None and notice.plan == plan.id:
            said = ", and is ready" if is_ready(known, plan.id) else ""
            lines.append(f"Victim {victim.key} is asked to leave by {notice.by}{said}.")
    return lines


def _now(
    state: State,
    pod: Pod,
    policy: PreemptionPolicy,
    policy_set: PolicySet,
    clock: SteadyClock,
    *,
    record: EvictionRecord,
) -> str:
    """What the reconciler would do now, in words: for the pod, or for the gang that it belongs to."""
    evaluator, rules = Evaluator(state, EvictionLog(), clock), policy_set.rules[policy.name]
    recall_evictions(evaluator, policy_set, record)  # what of the rates is used up
    outcome: Outcome | Together
    if is_gang(state.snapshot, pod):
        waiting = state.waiting_members(group_of(pod))
        ready = tuple(member for member in waiting if policy_set.policy_to_act_by(member) is policy)
        gated = tuple(member for member in waiting if member.spec.scheduling_gates)
        members = GangMembers(group_of(pod), ready, gated, ())
        outcome = evaluate_gang(evaluator, members, policy, rules, 0, left_out=(), promised=Promised())
    else:
        extenders = [ExtenderCache(extender, {}) for extender in policy.extenders]
        outcome = evaluator.evaluate(pod, policy, rules, 0, extenders=extenders)
    match outcome:
        case Fits(nodes):
            where = f"kube-scheduler can bind it, for example to {listed(nodes)}"
            return f"nothing; {where} (if it does not, the reconciler decides without that node after a while)."
        case Unschedulable():
            return f"nothing would be done: {outcome.text}"
        case Asks(question):
            where = listed([candidate.node for candidate in question.candidates])
            return f"evicting on {where} would make room; extender {url_of(question.extender)} says where it may."
        case Together(placed):
            pass
        case _:
            placed = ((pod, outcome),)
    where = listed([f"{key_of(member)} to {what.node}" for member, what in placed])
    gone = dict.fromkeys(key_of(victim) for _, what in placed for victim in what.victims)
    more = with_all_of(group for _, what in placed for group in what.groups.values())
    rooms = dict.fromkeys(what.room for _, what in placed if isinstance(what, Evicts) and what.room)
    more += "".join(f" {room}" for room in rooms)
    evicted = f"{listed(list(gone))} evicted{more}" if gone else "nobody evicted: pods there are leaving anyway"
    return f"{where} would be nominated, and {evicted}."


def _show_possible_evictions(console: Console, pod: Pod, state: State, policy_set: PolicySet, now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    rows = []
    evictions = possible_evictions(state, policy_set, key_of(pod), now)
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
