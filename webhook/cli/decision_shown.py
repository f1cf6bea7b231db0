"""What people read of a decision, of a live pod or of one in a file: the plan, why its node won, and every node."""

from __future__ import annotations

from collections import Counter, defaultdict

from rich.console import Console

from webhook.cli.output import literal, people_console, print_rows
from webhook.inspection.cluster_findings import counted, names
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.preemption.ranking import decisive, how_compared, preferred_because, shown_keys
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.amounts import CPU, requests
from webhook.preemption.snapshot.pod_groups import with_all_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

_MOST_NODES = 10
"""Nodes shown one by one; beyond, the others are counted by what fails."""
_COMPARED = 5
_FITS = "nothing: it fits"


def show_decision(name: str, pod: Pod, snapshot: Snapshot, rules: Rules, decision: Decision) -> None:
    """Print one decision for a pod; `name` is the cluster's."""
    console = people_console()
    by_class = f", class {pod.spec.priority_class_name}" if pod.spec.priority_class_name else ""
    asked = ", ".join(_amount(resource, amount) for resource, amount in sorted(requests(pod).items())) or "nothing"
    by = "plain Kubernetes rules" if rules.policy is None else f"policy {rules.name}"
    details = literal(f"(priority {priority_of(pod)}{by_class}) asks for {asked}; by {by}")
    console.print(f"[bold]{literal(name)}: [cyan]{literal(key_of(pod))}[/cyan][/bold] {details}")
    nodes, selected = snapshot.node_names(), decision.selected
    console.print(literal(_plan(decision, len(nodes))), style="green" if selected else "red")
    console.print()
    if selected is not None:
        rows = []
        for victim in selected.victims:
            # An API server takes no name with a slash, so a victim of such a name is not found
            why = decision.victim_reason(victim.key).text if decision.may_go(victim.key) else ""
            rows.append([victim.key, str(victim.priority), victim.node, victim.group, why])
        heads = ["pod", "priority", "node", "goes with all of", "may go, because"]
        print_rows(console, heads, rows, title="Victims", numbers=(1,), most=None, indent=2)
    scores = decision.scores(_COMPARED)
    if len(scores) > 1:
        keys, decided = shown_keys(scores[0]), decisive(scores[0], scores[1])
        heads = ["node", *(f"> {key.heading}" if key.name == decided else key.heading for key in keys)]
        rows = [[score.node, *(key.text(score) for key in keys)] for score in scores]
        title = f"Why it won: {how_compared([key.heading for key in keys])}"
        print_rows(console, heads, rows, title=title, numbers=range(1, len(heads)), indent=2)
        console.print(f"{literal(preferred_because(scores[0], scores[1]))}.")
    _show_nodes(console, decision, snapshot)
    console.print()


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"cpu {amount / 1000:g}"
    return f"{name} {amount / 2**30:.4g}Gi" if amount >= 2**20 else f"{name} {amount}"


def _plan(decision: Decision, count: int) -> str:
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


def _show_nodes(console: Console, decision: Decision, snapshot: Snapshot) -> None:
    """Print nodes, the best first, those that no eviction helps last; beyond a few they are counted by what fails."""
    plans = {candidate.node: candidate for candidate in decision.shortlist(_MOST_NODES)}
    hopeless, reasons = set(decision.unresolvable), decision.node_reasons
    others = [name for name in snapshot.node_names() if name not in plans]
    nodes = [*plans, *sorted(others, key=hopeless.__contains__)]
    rows = []
    for node in nodes[:_MOST_NODES]:
        failing = [reasons.get(node, _FITS), *["no eviction can cure this"] * (node in hopeless)]
        for use in decision.devices(node) if node in reasons else ():
            by = f" by {names(use.holders)}" if use.holders else ""
            frees = f"; evicting all who may go frees {use.freed}" if use.held else ""
            failing.append(f"{use.held} of {use.published} devices of {use.driver} are held{by}{frees}")
        kept: dict[str, list[str]] = defaultdict(list)
        for excluded in (all_excluded := decision.excluded(node)):
            kept[f"{excluded.rule}: {excluded.text}"].append(excluded.pod)
        if (plan := plans.get(node)) is not None:
            beyond = f" ({plan.pdb_violations} beyond a budget)" if plan.pdb_violations else ""
            together = with_all_of(victim.group for victim in plan.victims)
            goers = f"{names(victim.key for victim in plan.victims)}{together}{beyond}"
        else:
            stay = {excluded.pod for excluded in all_excluded}
            there = map(snapshot.pods.key, snapshot.pods_on(node))
            goers = f"{names(key for key in there if key not in stay) or 'nobody'} may go"
        rows.append((node, failing, goers, [f"{names(pods)} — {why}" for why, pods in kept.items()]))
    heads = ("node", "what fails", "who would have to go", "who may not go, and by which rule")
    print_rows(console, heads, rows, title="Nodes", ruled=True)
    more = Counter((reasons.get(node, _FITS), node in hopeless) for node in nodes[_MOST_NODES:])
    for (reason, is_hopeless), count in more.most_common(_MOST_NODES):
        cure = "; no eviction can cure this" if is_hopeless else ""
        console.print(literal(f"{counted(count, 'node')} more: {reason}{cure}"))
