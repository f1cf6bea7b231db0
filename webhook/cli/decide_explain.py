"""A decision said for people: the plan, why its node won, and what stands in the way on every other node."""

from __future__ import annotations

import math
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from webhook.cli.output import literal, people_console, print_rows, print_table
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.preemption.ranking import decisive, how_compared, preferred_because, shown_keys
from webhook.preemption.result import Decision, DeviceUse
from webhook.preemption.snapshot.amounts import CPU, requests
from webhook.preemption.snapshot.pod_groups import with_all_of
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.eligible import ExcludedPod
from webhook.preemption.victims.rules import Rules

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
    key, details = f"{pod.metadata.namespace}/{pod.metadata.name}", f"(priority {priority_of(pod)}{by_class})"
    asks = literal(f"{details} asks for {asked}; by {by}")
    console.print(f"[bold]{literal(name)}: [cyan]{literal(key)}[/cyan][/bold] {asks}")
    count = len(snapshot.node_names())
    nodes, anywhere = _nodes_text(count), "the only node" if count == 1 else f"any of {count} nodes"
    selected = decision.selected
    if not decision.eligible:
        console.print(f"[yellow]No preemption: {literal(decision.reason)}[/yellow]")
    elif decision.fits:
        console.print(f"[green]No preemption: it fits on {len(decision.fits)} of {nodes}.[/green]")
    elif len(decision.unresolvable) == count:
        console.print(f"[red]No preemption: no eviction could make it fit on {anywhere}.[/red]")
    elif selected is None:
        console.print(f"[red]No preemption: evicting all who may go does not make room on {anywhere}.[/red]")
    else:
        victims, candidates = len(selected.victims), decision.candidate_count
        best = "only candidate" if candidates == 1 else f"best of {candidates} candidates"
        where = f"from {selected.node}"
        if _goes_elsewhere(selected):
            on = {victim.node for victim in selected.victims}
            where = f"from {_nodes_text(len(on))} for room on {selected.node}"
            where += f", {room}" if (room := decision.made_room(selected)) else ""
        goes = f"evict {victims} pod{'s' * (victims > 1)} {where}, the {best} among {nodes}"
        console.print(f"[green]{literal(f'Plan: {goes}.')}[/green]")
    if selected is not None:
        _print_plan(console, decision, selected, snapshot, strict=rules.strict_budgets)
    _print_nodes(console, decision, snapshot)
    console.print()


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"cpu {amount / 1000:g}"
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if amount >= size:
            return f"{name} {amount / size:.4g}{unit}"
    return f"{name} {amount}"


def _nodes_text(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _print_plan(console: Console, decision: Decision, selected: Candidate, snapshot: Snapshot, *, strict: bool) -> None:
    """The victims; then the keys of the best candidates, and the one by which the winner won."""
    elsewhere, grouped = _goes_elsewhere(selected), any(victim.group for victim in selected.victims)
    title = "Victims" if elsewhere else f"Victims on {literal(selected.node)}"
    more = [*(["node"] if elsewhere else []), *(["goes with all of"] if grouped else [])]
    rows = []
    for victim in selected.victims:
        row = snapshot.pods.find(victim.namespace, victim.name)
        budgets = snapshot.budgets.of(row, strict=strict) if row is not None else []
        left = ", ".join(f"{budget.name} ({budget.allowed} left)" for budget in budgets) or "none"
        started = "not started" if math.isinf(victim.start_time) else rfc3339(victim.start_time)
        also = [*([victim.node] if elsewhere else []), *([victim.group or "none"] if grouped else [])]
        rows.append((victim.key, str(victim.priority), started, left, *also))
    console.print(f"\n{title}, most important first")
    print_rows(console, ("pod", "priority", "started", "budgets", *more), rows, numbers=(1,), most=len(rows), indent=2)
    first, *others = decision.scores(_COMPARED)
    if not others:
        console.print()
        return
    keys = shown_keys(first)
    title = f"Why it won: {how_compared([key.heading for key in keys])}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    table.add_column("node")
    for key in keys:
        table.add_column(key.heading, justify="right")
    decided = decisive(first, others[0])
    for candidate in (first, *others):
        cells = [(candidate.node, candidate is first), *((key.text(candidate), key.name == decided) for key in keys)]
        table.add_row(*(f"[bold]{literal(text)}[/bold]" if is_bold else literal(text) for text, is_bold in cells))
    print_table(console, table)
    console.print(f"{literal(preferred_because(first, others[0]))}.\n")


def _goes_elsewhere(candidate: Candidate) -> bool:
    """Whether a victim is on another node."""
    return any(victim.node != candidate.node for victim in candidate.victims)


def _print_nodes(console: Console, decision: Decision, snapshot: Snapshot) -> None:
    """Nodes, the best first, those that no eviction helps last; beyond a few they are counted by what fails."""
    plans = {candidate.node: candidate for candidate in decision.shortlist(_MOST_NODES)}
    hopeless = set(decision.unresolvable)
    others = [name for name in snapshot.node_names() if name not in plans]
    names = [*plans, *sorted(others, key=hopeless.__contains__)]
    table = Table(title="Nodes", title_justify="left", show_lines=True)
    table.add_column("node", no_wrap=True)
    table.add_column("what fails", ratio=3, overflow="fold")
    table.add_column("who would have to go", ratio=3, overflow="fold")
    table.add_column("who may not go, and by which rule", ratio=4, overflow="fold")
    for name in names[:_MOST_NODES]:
        reason = decision.node_reasons.get(name)
        failing = "[green]nothing: it fits[/green]" if reason is None else literal(reason)
        if reason is not None and name in hopeless:
            failing += "\n[dim]no eviction can cure this[/dim]"
        for use in decision.devices(name) if reason is not None else ():
            failing += f"\n[dim]{literal(_device_use(use))}[/dim]"
        by_rule: dict[str, list[ExcludedPod]] = defaultdict(list)
        for excluded in decision.excluded(name):
            by_rule[excluded.rule].append(excluded)
        kept = []
        for rule, pods in by_rule.items():
            reasons = sorted({excluded.text for excluded in pods})
            why = literal(reasons[0] if len(reasons) == 1 else f"e.g. {reasons[0]}")
            pods_text = literal(listed([excluded.pod for excluded in pods]))
            kept.append(f"[magenta]{literal(rule)}[/magenta]: {pods_text}[dim] — {why}[/dim]")
        table.add_row(literal(name), failing, _goers(decision, snapshot, plans, name), "\n".join(kept))
    print_table(console, table)
    if rest := names[_MOST_NODES:]:
        _print_counted(console, decision, rest, hopeless)


def _device_use(use: DeviceUse) -> str:
    """Who holds the devices of a driver, and how many of them evictions could free."""
    by = f" by {listed(use.holders)}" if use.holders else ""
    held = f"{use.held} of {use.published} devices of {use.driver} are held{by}"
    return f"{held}; evicting all who may go frees {use.freed}" if use.held else held


def _goers(decision: Decision, snapshot: Snapshot, plans: dict[str, Candidate], node: str) -> str:
    """The plan for the node, or who may go and why that is not enough, as markup."""
    plan = plans.get(node)
    if plan is not None:
        beyond = f" ({plan.pdb_violations} beyond a budget)" if plan.pdb_violations else ""
        together = with_all_of(victim.group for victim in plan.victims)
        return literal(listed([victim.key for victim in plan.victims]) + together) + beyond
    protected = {excluded.pod for excluded in decision.excluded(node)}
    keys = [f"{pod.namespace}/{pod.name}" for pod in snapshot.pods_on(node)]
    free = [key for key in keys if key not in protected]
    if not free:
        return "[dim]nobody may go[/dim]"
    if node in decision.unresolvable:
        return f"[dim]{len(free)} may go, which would not help[/dim]"
    if not decision.eligible or decision.fits:
        return f"[dim]{len(free)} may go, and nobody has to[/dim]"
    return f"[dim]not enough: {literal(listed(free))} may go[/dim]"


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _print_counted(console: Console, decision: Decision, rest: list[str], hopeless: set[str]) -> None:
    """The nodes that are not shown one by one, grouped by reason."""
    reasons, candidates = decision.node_reasons, {candidate.node for candidate in decision.candidates}
    asked = decision.eligible and not decision.fits
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in rest:
        helps = (
            "no" if name in hopeless else "yes" if name in candidates else "not of those who may go" if asked else ""
        )
        groups[reasons.get(name, "nothing: it fits"), helps].append(name)
    table = Table(title=f"{_nodes_text(len(rest))} more, by what fails", title_justify="left")
    for heading in ("nodes", "what fails", "would evictions help", "such as"):
        table.add_column(heading, justify="right" if heading == "nodes" else "left")
    for (reason, helps), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        table.add_row(str(len(names)), literal(reason), helps, literal(listed(names)))
    print_table(console, table)
