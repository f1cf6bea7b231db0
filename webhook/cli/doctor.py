"""`giveway doctor`: what in a cluster gets round the policies, is broken, or will be; reads only, but for --canary."""

from __future__ import annotations

import json
import sys
import time
from itertools import groupby
from pathlib import Path

import click
import msgspec
from rich.padding import Padding

from webhook.cli.inspecting import FOUND, INCOMPLETE, inspection_options, inspects
from webhook.cli.output import literal, people_console, progress_display
from webhook.inspection.canary import CanaryError, examine_nominations
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.doctor import CHECKS, examine, left_out
from webhook.inspection.observed import observe
from webhook.inspection.scope import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError

_COLOURS = {
    FindingSeverity.ERROR: "red",
    FindingSeverity.WARNING: "yellow",
    FindingSeverity.INFO: "cyan",
    FindingSeverity.NOT_CHECKED: "magenta",
}
_ORDER = list(_COLOURS)
_CANARY = "canary"
_MOST_ALIKE = 20
"""Findings of one kind that are shown to people."""


@click.command("doctor")
@inspection_options
@click.option(
    "--canary",
    is_flag=True,
    help="Also find out whether the scheduler keeps an outside nomination, with a pod of our own for some seconds.",
)
@inspects
async def command(
    kubeconfig: str | None, policies: Path | None, system_namespace: str, layout: str, canary: bool
) -> None:
    """Look for what gets round the policies, for what is broken and for what will break; say why and what to do.

    It reads only, but for --canary, which makes a pod that can be scheduled nowhere and its PriorityClass, and deletes
    both however it ends. The exit code is 1 if there is an error or a warning, else 2 if something could not be
    checked.
    """
    async with await Client.connect(kubeconfig) as client:
        unknown = ""
        try:
            in_force = await read_policies(client, policies, system_namespace)
        except (NoPoliciesError, PolicyError) as error:
            if policies is not None:
                raise
            in_force, unknown = Policies(), error.why if isinstance(error, NoPoliciesError) else str(error)
        with progress_display("reading") as progress:
            observed = await observe(client, in_force, system_namespace, time.time(), progress, no_policies=unknown)
        findings = list(examine(observed))
        if canary:
            if sys.stderr.isatty():
                click.echo("nominating a pod of our own, for some seconds", err=True)
            where = system_namespace if system_namespace in observed.namespaces else "default"
            try:
                findings += await examine_nominations(client, where)
            except CanaryError as error:
                raise click.ClickException(str(error)) from error
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    made = [check.name for check in CHECKS if check.name not in left_out(observed)]
    names = made + [_CANARY] * canary
    if layout == "json":
        click.echo(json.dumps({"checks": names, "findings": msgspec.to_builtins(findings)}, indent=2))
    else:
        _print(findings, names)
    severities = {finding.severity for finding in findings}
    if severities & {FindingSeverity.ERROR, FindingSeverity.WARNING}:
        raise SystemExit(FOUND)
    if FindingSeverity.NOT_CHECKED in severities:
        raise SystemExit(INCOMPLETE)


def _print(findings: list[ClusterFinding], checks: list[str]) -> None:
    """The findings as text, gravest first, and how many there are of each kind."""
    console = people_console()

    def indented(text: str, columns: int) -> None:
        console.print(Padding(text, (0, 0, 0, columns), expand=False))

    def alike(finding: ClusterFinding) -> tuple[str, str, str]:
        return finding.severity, finding.check, finding.why

    for (severity, check, why), group in groupby(findings, key=alike):
        console.print(f"[bold {_COLOURS[FindingSeverity(severity)]}]{severity}[/]  [bold]{check}[/bold]")
        alike_findings = list(group)
        shared = len({finding.fix for finding in alike_findings}) == 1
        for finding in alike_findings[:_MOST_ALIKE]:
            indented(literal(finding.what), 2)
            if not shared:
                indented(f"[green]Fix:[/green] {literal(finding.fix)}", 4)
        if len(alike_findings) > _MOST_ALIKE:
            console.print(f"  and {len(alike_findings) - _MOST_ALIKE} more like this; --format json lists all of them")
        indented(f"[dim]Why it matters: {literal(why)}[/dim]", 2)
        if shared:
            indented(f"[green]Fix:[/green] {literal(alike_findings[0].fix)}", 2)
        console.print()
    quiet = [check for check in checks if all(finding.check != check for finding in findings)]
    if quiet:
        console.print(f"[green]Nothing found:[/green] {', '.join(quiet)}.")
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in _ORDER}
    console.print(
        ", ".join(
            f"{count} {severity}{'s' * (count > 1 and severity is not FindingSeverity.NOT_CHECKED)}"
            for severity, count in counts.items()
            if count
        )
        or "All is well."
    )
