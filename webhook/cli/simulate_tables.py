"""The answers of `giveway simulate` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from webhook.cli.output import literal, print_table
from webhook.kube.instants import time_span
from webhook.simulation.report.compare import differences, ending, metric_text
from webhook.simulation.report.summary import METRICS, Summary

_MOST = 15
_MOST_SENTENCES = 20


def print_summaries(console: Console, summaries: Sequence[Summary]) -> None:
    """One run, or two with the difference first."""
    if len(summaries) == 2:
        sentences = differences(*summaries)
        for sentence in sentences[:_MOST_SENTENCES]:
            console.print(f"[bold]•[/bold] {literal(sentence)}")
        if len(sentences) > _MOST_SENTENCES:
            console.print(f"and {len(sentences) - _MOST_SENTENCES} more differences; --format json lists all")
        console.print()
    rows = []
    for name, words in METRICS.items():
        values = [summary.metrics[name] for summary in summaries]
        if any(values) or name in {"evictions", "waiting", "placed"}:
            rows.append([words.removesuffix(", in seconds"), *(metric_text(name, value) for value in values)])
    _print_table(console, ["", *(summary.name for summary in summaries)], rows, len(rows))
    for summary in summaries:
        if len(summaries) > 1:
            console.print(f"\n[bold]{literal(summary.name)}[/bold]")
        _print_one(console, summary)


def _print_one(console: Console, summary: Summary) -> None:
    """What happened, to whom, who waits, and what rules and limits say of it."""
    for at, what in summary.notes[:_MOST]:
        console.print(f"at {time_span(at)}: {literal(what)}")
    for title, groups in (
        ("owner", summary.owners),
        ("namespace", summary.namespaces),
        ("class", summary.classes),
        ("node", summary.nodes),
    ):
        rows = [
            [
                group.name,
                str(group.evicted),
                time_span(group.lost) if group.lost else "",
                str(group.placed),
                "" if group.longest is None else time_span(group.longest),
                str(group.waiting),
                str(group.running),
            ]
            for group in groups
            if group.is_touched
        ]
        heads = [title, "evicted", "work lost", "placed", "longest wait", "waiting", "running"]
        _print_table(console, heads, rows)
    evictions = [[row.pod, time_span(row.at), row.preemptor, row.by, row.rule] for row in summary.evictions]
    _print_table(console, ["evicted", "at", "for", "by", "rule"], evictions)
    for row in summary.waiting[:_MOST]:
        reason, example = literal(row.reason), literal(row.examples[0])
        console.print(f"[yellow]{row.pods} wait[/yellow]: {reason} (for example {example})")
    for limit in summary.limits[:_MOST]:
        allowed = f"{limit.allowed} in {time_span(limit.window)}"
        console.print(f"{literal(limit.owner)}: at most {limit.most} evicted at a time, the limit is {allowed}")
    for name, why in list(summary.refused.items())[:_MOST]:
        console.print(f"[red]refused[/red] {literal(name)}: {literal(why)}")
    for name, why in summary.cannot_be_judged.items():
        console.print(f"[magenta]cannot be judged[/magenta] {literal(name)}: {literal(why)}")
    for name, why in summary.not_played.items():
        console.print(f"[magenta]not played[/magenta] {literal(name)}: {literal(why)}")
    for error in summary.errors:
        console.print(f"[red]internal error[/red] {literal(error)}")
    console.print(ending(summary))


def _print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], most: int = _MOST) -> None:
    """The first rows, and how many more there are; nothing without any."""
    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(literal(head), overflow="fold")
    for row in rows[:most]:
        table.add_row(*map(literal, row))
    print_table(console, table)
    if len(rows) > most:
        console.print(f"and {len(rows) - most} more; --format json lists all")
