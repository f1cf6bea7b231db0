"""The answers of `giveway simulate` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from webhook.cli.output import literal, print_rows
from webhook.simulation.report.compare import differences, ending
from webhook.simulation.report.sections import figures, sections
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
    print_rows(console, numbers.heads, numbers.rows, numbers=numbers.numbers, most=len(numbers.rows))
    for summary in summaries:
        if len(summaries) > 1:
            console.print(f"\n[bold underline]{literal(summary.name)}[/]")
        for section in sections(summary):
            console.print(f"\n[bold]{section.title}[/bold]")
            print_rows(console, section.heads, section.rows, numbers=section.numbers)
        console.print(f"\n{ending(summary)}")
