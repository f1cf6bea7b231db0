"""The answers of `giveway simulate` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from webhook.cli.output import literal, print_table
from webhook.simulation.report.compare import differences, ending
from webhook.simulation.report.sections import MOST, Section, figures, sections
from webhook.simulation.report.summary import Summary

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
    numbers = figures(summaries)
    _print_table(console, numbers, len(numbers.rows))
    for summary in summaries:
        if len(summaries) > 1:
            console.print(f"\n[bold underline]{literal(summary.name)}[/]")
        for section in sections(summary):
            console.print(f"\n[bold]{section.title}[/bold]")
            _print_table(console, section)
        console.print(f"\n{ending(summary)}")


def _print_table(console: Console, section: Section, most: int = MOST) -> None:
    """The first rows, and how many more there are."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column, head in enumerate(section.heads):
        table.add_column(literal(head), overflow="fold", justify="right" if column in section.numbers else "left")
    for row in section.rows[:most]:
        table.add_row(*map(literal, row))
    print_table(console, table)
    if len(section.rows) > most:
        console.print(f"and {len(section.rows) - most} more; --format json lists all")
