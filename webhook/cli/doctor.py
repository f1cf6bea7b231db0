"""`giveway doctor`: what in a cluster gets round the policies, is broken, or will be; reads only, but for --canary."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import click
import msgspec

from webhook.cli.inspecting import FOUND, INCOMPLETE, inspection_options, inspects
from webhook.cli.output import literal, people_console, shown_progress
from webhook.cli.verdicts import FailOn, fail_on_option, print_verdict
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.doctor import CHECKS, CanaryError, examine, examine_nominations, left_out
from webhook.inspection.observed import observe
from webhook.inspection.reading import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError

_ORDER = list(FindingSeverity)
_GRAVE = tuple(severity.value for severity in FindingSeverity if severity is not FindingSeverity.NOT_CHECKED)
_CANARY = "canary"
_MOST_ALIKE = 20
"""Findings of one kind that are shown to people."""


@click.command("doctor")
@inspection_options
@fail_on_option(*_GRAVE, default="warning")
@click.option(
    "--canary",
    is_flag=True,
    help="Also find out whether the scheduler keeps an outside nomination, with a pod of our own for some seconds.",
)
@inspects
async def command(
    kubeconfig: str | None, policies: Path | None, system_namespace: str, layout: str, fail_on: FailOn, *, canary: bool
) -> None:
    """Look for what gets round the policies, for what is broken and for what will break; say why and what to do.

    It reads only, but for --canary, which makes a pod that can be scheduled nowhere and its PriorityClass, and deletes
    both however it ends. It exits with 1 for an error or a warning (--fail-on), else with 2 for what was not checked.
    """
    async with await Client.connect(kubeconfig) as client:
        unknown = ""
        try:
            in_force = await read_policies(client, policies, system_namespace)
        except (NoPoliciesError, PolicyError) as error:
            if policies is not None:
                raise
            in_force, unknown = Policies(), error.why if isinstance(error, NoPoliciesError) else str(error)
        with shown_progress("reading") as progress:
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
    names = [check.name for check in CHECKS if check.name not in left_out(observed)] + [_CANARY] * canary
    if layout == "json":
        click.echo(json.dumps({"checks": names, "findings": msgspec.to_builtins(findings)}, indent=2))
    else:
        _print(findings, names)
    severities = {finding.severity for finding in findings}
    incomplete = INCOMPLETE if FindingSeverity.NOT_CHECKED in severities else 0
    sys.exit(FOUND if severities & fail_on else incomplete)


def _print(findings: list[ClusterFinding], checks: list[str]) -> None:
    """The findings as text, gravest first, and how many there are of each kind."""
    console = people_console()
    for (severity, check, why), group in groupby(findings, key=attrgetter("severity", "check", "why")):
        together = list(group)
        by_fix = len({finding.fix for finding in together}) > 1
        lines = []
        for finding in together[:_MOST_ALIKE]:
            lines += [literal(finding.what), *([f"  {_fix(finding)}"] if by_fix else [])]
        if len(together) > _MOST_ALIKE:
            lines.append(f"and {len(together) - _MOST_ALIKE} more like this; --format json lists all of them")
        lines.append(f"[dim]Why it matters: {literal(why)}[/dim]")
        lines += [] if by_fix else [_fix(together[0])]
        print_verdict(console, severity, f"[bold]{check}[/bold]", *lines)
        console.print()
    if quiet := [check for check in checks if all(finding.check != check for finding in findings)]:
        console.print(f"[green]Nothing found:[/green] {', '.join(quiet)}.")
    counts = Counter(finding.severity for finding in findings)
    texts = [
        f"{counts[severity]} {severity}{'s' * (counts[severity] > 1 and severity is not FindingSeverity.NOT_CHECKED)}"
        for severity in _ORDER
        if counts[severity]
    ]
    console.print(", ".join(texts) or "All is well.")


def _fix(finding: ClusterFinding) -> str:
    return f"[green]Fix:[/green] {literal(finding.fix)}"
