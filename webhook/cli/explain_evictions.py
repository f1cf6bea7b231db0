"""Who could evict a pod, said for people: by which rule, for pods of which classes, and from when."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from webhook.cli.decide_explain import listed
from webhook.component_base.logs import visible
from webhook.kube.instants import rfc3339
from webhook.reconciler.possible_evictions import PossibleEviction

__all__ = ["show_possible_evictions"]


def show_possible_evictions(pod: str, where: str, found: list[PossibleEviction], now: float) -> None:
    """Print one row for each policy and one for kube-scheduler, those who may evict the pod first."""
    console = Console(highlight=False)
    console.print(Text.assemble("\n", (pod, "bold cyan"), f" runs on {where}. {_summary(found, now)}"))
    table = Table(title="Who could evict it", title_justify="left", show_lines=True)
    table.add_column("who", ratio=2, overflow="fold")
    table.add_column("for pods of class", ratio=3, overflow="fold")
    table.add_column("from when", no_wrap=True)
    table.add_column("by which rule", ratio=4, overflow="fold")
    for one in sorted(found, key=lambda one: one.since is None):
        rule = Text.assemble((one.rule, "magenta"), f": {visible(one.text)}")
        for condition in one.conditions:
            rule.append(f"\n{visible(condition)}")
        table.add_row(
            f"giveway, policy {one.policy}" if one.policy else "kube-scheduler",
            Text(listed([f"{name} ({value})" for name, value in one.classes]) or "none"),
            _when(one, now),
            rule,
        )
    console.print(table)


def _summary(found: list[PossibleEviction], now: float) -> str:
    """What may be done to it for pods of higher priority that need its room, in one sentence."""
    first = min((one.since for one in found if one.policy and one.since is not None), default=None)
    by_giveway = "may not evict it as things are"
    if first is not None:
        by_giveway = "may evict it now" if first <= now else f"may evict it from {rfc3339(first)} on"
    by_scheduler = any(not one.policy and one.since is not None for one in found)
    return f"giveway {by_giveway}; kube-scheduler {'may at any time' if by_scheduler else 'may not'}."


def _when(one: PossibleEviction, now: float) -> Text:
    if one.since is None:
        return Text("not as things are", style="dim")
    if one.since <= now:
        return Text("now", style="yellow")
    return Text(f"{rfc3339(one.since)}\n(in {_duration(one.since - now)})", style="yellow")


def _duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    left, parts = round(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
