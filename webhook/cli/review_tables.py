"""What `giveway review` prints for people, and the JUnit XML that CI systems read."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.table import Table
from rich.text import Text

from webhook.admission.webhook import Phase, Reviewed
from webhook.cli.output import literal, people_console, print_table
from webhook.component_base.logs import visible
from webhook.inspection.judge import CANNOT_BE_JUDGED
from webhook.inspection.manifests import ManifestReport, ManifestVerdict
from webhook.policy.evaluation.rules import RuleTrace, without_name

FAILING = {"refused": ("refused",), "warned": ("refused", "warned"), "audited": ("refused", "warned", "audited")}
"""The verdicts that count as failures, by the mildest of them."""
COLOURS = {"refused": "red", "warned": "yellow", "audited": "cyan", CANNOT_BE_JUDGED: "magenta"}


def print_report(report: ManifestReport, *, named: bool) -> None:
    """Print the verdicts of each file, and how many there are; `named` says whether somebody applies the manifests."""
    console = people_console()
    for file, verdicts in groupby(report.judged, key=lambda verdict: verdict.file):
        console.print(f"[bold]{literal(file)}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for verdict in verdicts:
            if verdict.problem:
                table.add_row("[red]not judged[/red]", f"{literal(verdict.title)}\n{literal(verdict.problem)}")
            elif not verdict.said:
                table.add_row("[green]allowed[/green]", literal(verdict.title))
            for said in verdict.said:
                what = f"[{COLOURS[said.verdict]}]{said.verdict}[/]"
                table.add_row(what, f"{literal(verdict.title)} by {literal(said.rule)}\n{literal(said.message)}")
        print_table(console, table)
        console.print()
    for text in report.warnings:
        console.print(f"[yellow]Warning[/yellow]: {literal(text)}")
    for text in report.assumed:
        console.print(
            f"[yellow]Assumed[/yellow]: {literal(text)}. If the cluster has them, name a file with --objects."
        )
    if not named and any(verdict.has((CANNOT_BE_JUDGED,)) for verdict in report.judged):
        console.print("What cannot be judged depends on who applies it; say who with --as and --as-group.")
    refused = sum(verdict.has(("refused",)) for verdict in report.judged)
    unread = sum(bool(verdict.problem) for verdict in report.judged)
    more = f", {unread} could not be judged" if unread else ""
    console.print(f"{len(report.judged) - unread} judged, {refused} refused{more}")
    for why, count in report.passed_over.items():
        console.print(f"{count} not judged, {literal(why)}")


def write_junit(file: Path, report: ManifestReport, failing: tuple[str, ...]) -> None:
    """Write the format that CI systems read: a suite for each file, a case for each object. Raises OSError."""
    root = ET.Element("testsuites")
    for name, group in groupby(report.judged, key=lambda verdict: verdict.file):
        verdicts = list(group)
        suite = ET.SubElement(root, "testsuite", name=name, tests=str(len(verdicts)))
        suite.set("failures", str(sum(verdict.has(failing) for verdict in verdicts)))
        suite.set("errors", str(sum(bool(verdict.problem) for verdict in verdicts)))
        for verdict in verdicts:
            _case(ET.SubElement(suite, "testcase", name=visible(verdict.title), classname=name), verdict, failing)
    ET.indent(root)
    file.write_bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _case(case: ET.Element, verdict: ManifestVerdict, failing: tuple[str, ...]) -> None:
    if verdict.problem:
        ET.SubElement(case, "error", message=visible(verdict.problem))
    lines = [
        f"{said.verdict} by {said.rule}: {visible(without_name(said.rule, said.message))}" for said in verdict.said
    ]
    if verdict.has(failing):
        ET.SubElement(case, "failure", message=lines[0]).text = "\n".join(lines)
    elif lines:
        ET.SubElement(case, "system-out").text = "\n".join(lines)


def trace_table(phase: Phase, reviewed: Reviewed, trace: list[RuleTrace]) -> None:
    """Print on standard error of every rule whether it applied to an AdmissionReview, and why or why not."""
    table = Table("rule", "applied", "outcome", "why", box=None, header_style="bold", title_justify="left")
    traced = {f"{row.policy}/{row.rule}" for row in trace}
    for verdict in reviewed.answer.verdicts:
        if verdict.id not in traced:
            why = without_name(verdict.id, verdict.message)
            table.add_row(verdict.id, "yes", verdict.outcome, Text(visible(why)))
    for row in trace:
        rule = f"{row.policy}/{row.rule}" if row.rule else "every rule"
        # Mutation refuses nothing, so there it is what validation would say of the object as sent
        refuses = row.outcome in ("deny", "error")
        table.add_row(
            rule,
            "yes" if row.applied else "no",
            f"{row.outcome}, at validation" if phase == "mutate" and refuses else row.outcome,
            Text(visible(without_name(rule, row.why))),
        )
    console = people_console(stderr=True)
    print_table(console, table)
    console.print(f"{phase}: {reviewed.answer.verdict}")
