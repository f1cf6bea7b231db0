"""`giveway scan`: which running pods, templates and classes the policies would refuse; one pass, reads only."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from itertools import groupby
from pathlib import Path

import click
import msgspec
from rich.console import Console

from webhook.cli.inspecting import FOUND, INCOMPLETE, inspection_options, inspects
from webhook.cli.output import literal, people_console, print_rows, shown_progress
from webhook.cli.verdicts import JUDGED, FailOn, fail_on_option, print_verdict
from webhook.inspection.cluster_findings import counted
from webhook.inspection.judge import CANNOT_BE_JUDGED, MEANINGS
from webhook.inspection.policy_reports import REPORT_GROUPS, write_policy_reports
from webhook.inspection.reading import read_policies
from webhook.inspection.scan import Row, scan
from webhook.kube.client import Client


@click.command("scan")
@inspection_options
@fail_on_option(*JUDGED, default="refused")
@click.option(
    "--report",
    "reports",
    is_flag=True,
    help="Also write PolicyReports (wgpolicyk8s.io) and Reports (openreports.io), if the cluster has them.",
)
@inspects
async def command(
    kubeconfig: str | None, policies: Path | None, system_namespace: str, layout: str, fail_on: FailOn, *, reports: bool
) -> None:
    """Judge what runs as if it were made again now: pods, pod templates and PriorityClasses, by rule and owner.

    Run it before a rule is enforced, and after the webhook was away. It reads only, unless --report is given. The exit
    code is 1 if something would be refused, and 2 if the cluster could not be read completely.
    """
    async with await Client.connect(kubeconfig) as client:
        in_force = await read_policies(client, policies, system_namespace)
        with shown_progress("reading") as progress:
            report = await scan(client, in_force, system_namespace, progress)
        written = await write_policy_reports(client, report, time.time()) if reports else None
    if layout == "json":
        click.echo(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        console = people_console()
        for (group_verdict, rule), rows in groupby(report.rows, key=lambda row: (row.verdict, row.rule)):
            _print_rule(console, group_verdict, rule, list(rows))
        for problem in report.problems:
            console.print(f"[red]not judged[/red]  {literal(problem)}")
        if report.more_problems:
            console.print(f"and {report.more_problems} more that could not be judged")
        judged = ", ".join(counted(count, kind) for kind, count in report.judged.items())
        console.print(f"Judged: {judged or 'nothing'}.")
        if report.passed_over:
            passed_over = ", ".join(f"{count} {why}" for why, count in report.passed_over.items())
            console.print(f"Not judged: {passed_over}.")
        if not report.rows:
            console.print("[green]The policies would refuse nothing of this.[/green]" if judged else "")
    if written is not None and written.groups:
        where = " and ".join(written.groups)
        click.echo(f"{counted(written.reports, 'report')} written to {where}, {written.removed} taken away", err=True)
    elif written is not None:
        click.echo(f"No report was written: this cluster has neither {' nor '.join(REPORT_GROUPS)}.", err=True)
    incomplete = INCOMPLETE if report.problems else 0
    sys.exit(FOUND if any(map(report.count, fail_on)) else incomplete)


def _print_rule(console: Console, verdict: str, rule: str, rows: list[Row]) -> None:
    """What one rule says of the cluster: how much, an example, and by owner."""
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds[row.kind] += row.objects
    total = ", ".join(counted(count, kind) for kind, count in kinds.items())
    example = "" if verdict == CANNOT_BE_JUDGED else "For example: "
    about = f"[bold]{literal(rule)}[/bold]  {total}: {MEANINGS[verdict]}"
    print_verdict(console, verdict, about, f"{example}{literal(rows[0].message)}")
    cells = []
    for row in rows:
        what = counted(row.objects, row.kind)
        if row.kind not in ("Pod", "PriorityClass") and row.objects == 1:
            what = "its template"
        cells.append((row.namespace or "-", row.owner, what, row.examples[0]))
    print_rows(console, ("namespace", "owner", "what", "for example"), cells, indent=2)
    console.print()
