"""`giveway simulate SNAPSHOT`: what policies, classes, workloads or lost nodes would do to whom."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from webhook.cli.options import format_option, options
from webhook.cli.output import UnusableError, literal, people_console, print_rows, shown_progress, warn
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.instants import InstantError, epoch, time_span
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.simulation.cluster_file.format import ClusterFileError, read_cluster
from webhook.simulation.report.html import page
from webhook.simulation.report.sections import differences, ending, figures, markdown, sections, shown_differences
from webhook.simulation.report.summary import METRICS, Summary, summarize
from webhook.simulation.simulation import Options, Running, Step, checkpoints_of, simulate
from webhook.simulation.whatif import Apply, WhatIfError, applied, duration, read_scenario, step_of, timed

EXCEEDED = 1
"""The exit code if a threshold of --fail-on was exceeded."""
_THRESHOLD = re.compile(r"\s*([a-z0-9-]+)\s*(>=|<=|==|!=|>|<)\s*(-?\d+(?:\.\d+)?)(%|s|m|h)?\s*")
_UNITS = {"%": 0.01, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_COMPARE = {">": gt, "<": lt, ">=": ge, "<=": le, "==": eq, "!=": ne}
_PATH = click.Path(path_type=Path)
_DIRECTORY = click.Path(path_type=Path, exists=True)


def _instant(text: str) -> float:
    try:
        return epoch(text)
    except InstantError as error:
        raise click.BadParameter(str(error)) from None


def _threshold(text: str) -> tuple[str, Callable[[dict[str, float]], bool]]:
    match = _THRESHOLD.fullmatch(text)
    if match is None or match[1] not in METRICS:
        raise click.BadParameter(
            f"{text!r}: expected NAME > NUMBER, such as 'evictions > 50'; the names are {', '.join(METRICS)}"
        )
    name, compare, least = match[1], _COMPARE[match[2]], float(match[3]) * _UNITS[match[4]]
    return text, lambda metrics: compare(metrics[name], least)


@click.command("simulate")
@click.argument("files", metavar="SNAPSHOT...", nargs=-1, required=True, type=_PATH)
@options("policies", policies={"type": _DIRECTORY, "metavar": "A", "help": "The policies to simulate."})
@click.option("--against", type=_DIRECTORY, metavar="B", help="Other policies: what differs is said first.")
@click.option(
    "--apply", "apply", multiple=True, type=_PATH, metavar="FILE", help="Workloads, classes, budgets, policies."
)
@click.option("--scale", multiple=True, metavar="NAMESPACE/NAME=N", help="Another number of replicas.")
@click.option("--without-node", multiple=True, metavar="NAME", help="A node that is lost, with its pods.")
@click.option("--drain", multiple=True, metavar="ZONE", help="A zone, or a node, that is drained.")
@click.option("--add-nodes", multiple=True, metavar="NxTYPE", help="More nodes like one of that type, or of that name.")
@click.option("--at", multiple=True, metavar="TIME:CHANGE", help="A change at a time, such as '10m:scale web/api=20'.")
@click.option("--scenario", type=_PATH, metavar="FILE", help="Changes from a file, each at its time.")
@click.option(
    "--now",
    metavar="INSTANT",
    type=_instant,
    help="When it begins, such as 2026-01-31T12:00:00Z; by default when the snapshot was taken, or at the newest time"
    " in the lists of kubectl.",
)
@click.option("--until", metavar="TIME", help="End after so much virtual time, at the latest (2h).")
@click.option(
    "--termination",
    metavar="TIME",
    help="How long pods take to end, at most; by default they take their grace period.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=_threshold,
    metavar="CONDITION",
    help="Exit with 1 if this holds, such as 'evictions > 50'.",
)
@format_option("table", "json", "markdown", help_="For people, for programs, or for a comment under a pull request.")
@click.option("--html", type=_PATH, metavar="FILE", help="Write one HTML file with a picture, too.")
def command(
    files: tuple[Path, ...], policies: Path, against: Path | None, layout: str, html: Path | None, **more: Any
) -> None:
    """Say what would happen to a cluster: who runs, waits and is evicted, and what differs between two policies.

    SNAPSHOT is what `giveway snapshot` wrote, or lists of `kubectl get -o json`. Time is virtual and jumps from event
    to event; nothing is written to any cluster. The exit code is 1 if a --fail-on holds, 2 if it cannot be simulated.
    """
    try:
        steps, until = _steps(more)
        for remark in (remark for step in steps if isinstance(step, Apply) for remark in step.remarks):
            warn(remark)
        directories = [directory for directory in (policies, against) if directory is not None]
        sets = [load_or_raise(directory) for directory in directories]
        options = Options(
            until=duration(more["until"]) if more["until"] else until or 7200.0,
            termination=duration(more["termination"]) if more["termination"] else None,
            # Work that is lost is measured alike in both runs
            checkpoints=tuple(key for loaded in sets for key in checkpoints_of(loaded)),
        )
        with shown_progress("reading") as show:
            objects = read_cluster(files, lambda done, total: show("bytes", done, total), now=more["now"])
        # Short names of the sets of policies; whole paths if the short ones are the same
        names = [directory.name or str(directory) for directory in directories]
        names = names if len(set(names)) == len(names) else [str(directory) for directory in directories]
        summaries = [
            _simulated(name, objects, loaded, steps, options) for name, loaded in zip(names, sets, strict=True)
        ]
    except (OSError, PolicyError, ClusterFileError, WhatIfError, msgspec.ValidationError) as error:
        raise UnusableError(str(error)) from error
    if html is not None:
        html.write_text(page(summaries, [str(file) for file in files]))
        click.echo(f"{html} written", err=True)
    if layout == "json":
        both = {"differences": differences(*summaries)} if len(summaries) == 2 else {}
        click.echo(msgspec.json.format(msgspec.json.encode({**both, "runs": summaries}), indent=2).decode())
    elif layout == "markdown":
        click.echo(markdown(summaries), nl=False)
    else:
        print_summaries(people_console(), summaries)
    if any(summary.errors for summary in summaries):
        click.echo(f"giveway itself failed: {summaries[0].errors or summaries[-1].errors}", err=True)
        sys.exit(UnusableError.exit_code)
    exceeded = [(run.name, text) for run in summaries for text, holds in more["fail_on"] if holds(run.metrics)]
    for name, text in exceeded:
        click.echo(f"threshold: {name}: {text}", err=True)
    sys.exit(EXCEEDED if exceeded else 0)


def _steps(more: dict[str, Any]) -> tuple[list[Step], float | None]:
    """All changes, in the order of the options, and until when a scenario goes."""
    steps: list[Step] = [applied(more["apply"])] if more["apply"] else []
    for option in ("add_nodes", "scale", "without_node", "drain"):
        steps += [step_of(option.replace("_", "-"), text) for text in more[option]]
    steps += [timed(text) for text in more["at"]]
    if more["scenario"] is None:
        return steps, None
    further, until = read_scenario(more["scenario"])
    return steps + further, until


def _simulated(
    name: str, objects: ClusterObjects, policies: Policies, steps: Sequence[Step], options: Options
) -> Summary:
    with shown_progress(f"simulating {name}") as show:

        def progress(at: float, running: Running) -> None:
            show(f"{time_span(at)}, {running.tracker.delivered} events")

        return summarize(name, simulate(objects, policies, steps, options, progress))


def print_summaries(console: Console, summaries: Sequence[Summary]) -> None:
    """One run, or two with the difference first."""
    for sentence in shown_differences(summaries):
        console.print(f"[bold]•[/bold] {literal(sentence)}")
    if len(summaries) > 1:
        console.print()
    numbers = figures(summaries)
    print_rows(console, numbers.heads, numbers.rows, numbers=numbers.numbers, most=None)
    for summary in summaries:
        if len(summaries) > 1:
            console.print(f"\n[bold underline]{literal(summary.name)}[/]")
        for section in sections(summary):
            console.print(f"\n[bold]{section.title}[/bold]")
            print_rows(console, section.heads, section.rows, numbers=section.numbers)
        console.print(f"\n{ending(summary)}")
