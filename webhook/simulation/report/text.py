"""The answers as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.simulation.report.compare import differences, shown
from webhook.simulation.report.summary import METRICS, Group, Summary

__all__ = ["print_summaries"]

_MOST = 15
_MOST_SENTENCES = 20
_TIMES = frozenset({"placed-p50", "placed-p99", "placed-max", "work-lost"})
_SHARES = frozenset({"cpu-free", "memory-free"})


def print_summaries(console: Console, summaries: Sequence[Summary]) -> None:
    """One run, or two with the difference first."""
    if len(summaries) == 2:
        sentences = differences(*summaries)
        for sentence in sentences[:_MOST_SENTENCES]:
            console.print(f"[bold]•[/bold] {escape(sentence)}")
        if len(sentences) > _MOST_SENTENCES:
            console.print(f"and {len(sentences) - _MOST_SENTENCES} more differences; --format json lists all")
        console.print()
    _print_metrics(console, summaries)
    for summary in summaries:
        if len(summaries) > 1:
            console.print(f"\n[bold]{escape(summary.name)}[/bold]")
        _print_one(console, summary)


def _print_metrics(console: Console, summaries: Sequence[Summary]) -> None:
    table = _table("", *(one.name for one in summaries))
    for name, words in METRICS.items():
        values = [one.metrics[name] for one in summaries]
        if any(values) or name in {"evictions", "waiting", "placed"}:
            table.add_row(words.removesuffix(", in seconds"), *(_value(name, value) for value in values))
    console.print(table)


def _print_one(console: Console, summary: Summary) -> None:
    for at, what in summary.notes[:_MOST]:
        console.print(f"at {shown(at)}: {escape(what)}")
    for title, groups in (
        ("owner", summary.owners),
        ("namespace", summary.namespaces),
        ("class", summary.classes),
        ("node", summary.nodes),
    ):
        moved = [one for one in groups if one.evicted or one.waiting or one.placed]
        if moved:
            _print_groups(console, title, moved)
    _print_evictions(console, summary)
    for row in summary.waiting[:_MOST]:
        console.print(f"[yellow]{row.pods} wait[/yellow]: {escape(row.reason)} (for example {escape(row.examples[0])})")
    for limit in summary.limits[:_MOST]:
        allowed = f"{limit.allowed} in {shown(limit.window)}"
        console.print(f"{escape(limit.owner)}: at most {limit.most} evicted at a time, the limit is {allowed}")
    for name, why in list(summary.refused.items())[:_MOST]:
        console.print(f"[red]refused[/red] {escape(name)}: {escape(why)}")
    for name, why in summary.cannot_be_judged.items():
        console.print(f"[magenta]cannot be judged[/magenta] {escape(name)}: {escape(why)}")
    for error in summary.errors:
        console.print(f"[red]internal error[/red] {escape(error)}")
    end = "nothing moves any more" if summary.at_rest else "the time was over, and things still moved"
    console.print(f"After {shown(summary.seconds)} {end}.")


def _print_groups(console: Console, title: str, groups: Sequence[Group]) -> None:
    table = _table(title, "evicted", "work lost", "placed", "longest wait", "waiting", "running")
    for one in groups[:_MOST]:
        table.add_row(
            escape(one.name),
            str(one.evicted),
            shown(one.lost) if one.lost else "",
            str(one.placed),
            "" if one.longest is None else shown(one.longest),
            str(one.waiting),
            str(one.running),
        )
    console.print(table)
    if len(groups) > _MOST:
        console.print(f"and {len(groups) - _MOST} more; --format json lists all")


def _print_evictions(console: Console, summary: Summary) -> None:
    if not summary.evictions:
        return
    table = _table("evicted", "at", "for", "by", "rule")
    for row in summary.evictions[:_MOST]:
        table.add_row(escape(row.pod), shown(row.at), escape(row.preemptor), escape(row.by), escape(row.rule))
    console.print(table)
    if len(summary.evictions) > _MOST:
        console.print(f"and {len(summary.evictions) - _MOST} more; --format json lists all")


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for other in others:
        table.add_column(escape(other), overflow="fold")
    return table


def _value(name: str, value: float) -> str:
    if name in _TIMES:
        return shown(value)
    return f"{value:.0%}" if name in _SHARES else f"{value:g}"
