"""What `giveway review` tells of manifests, and of each rule about one AdmissionReview."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby

from webhook.admission.webhook import Phase, Reviewed
from webhook.cli.output import literal, people_console, print_rows
from webhook.cli.verdicts import Case, print_verdict
from webhook.inspection.judge import CANNOT_BE_JUDGED
from webhook.inspection.manifests import ManifestReport
from webhook.policy.evaluation.rules import RuleTrace, without_name


def print_report(report: ManifestReport, *, named: bool) -> None:
    """Print the verdicts of each file, and how many there are; `named` says whether somebody applies the manifests."""
    console = people_console()
    for file, verdicts in groupby(report.judged, key=lambda verdict: verdict.file):
        console.print(f"[bold]{literal(file)}[/bold]")
        for verdict in verdicts:
            title = literal(verdict.title)
            if verdict.problem:
                print_verdict(console, "not judged", title, literal(verdict.problem))
            elif not verdict.said:
                print_verdict(console, "allowed", title)
            for said in verdict.said:
                print_verdict(console, said.verdict, f"{title} by {literal(said.rule)}", literal(said.message))
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


def cases_of(report: ManifestReport, failing: Collection[str]) -> Iterator[Case]:
    """A suite for each file, a case for each object."""
    for verdict in report.judged:
        lines = [f"{said.verdict} by {said.rule}: {without_name(said.rule, said.message)}" for said in verdict.said]
        failures, said = (lines, []) if verdict.has(failing) else ([], lines)
        yield Case(verdict.file, verdict.title, failures, said, verdict.problem)


def print_trace(phase: Phase, reviewed: Reviewed, trace: list[RuleTrace]) -> None:
    """Print on standard error of every rule whether it applied to an AdmissionReview, and why or why not."""
    traced = {f"{row.policy}/{row.rule}" for row in trace}
    rows: list[tuple[str, ...]] = [
        (verdict.id, "yes", verdict.outcome, without_name(verdict.id, verdict.message))
        for verdict in reviewed.answer.verdicts
        if verdict.id not in traced
    ]
    for row in trace:
        rule = f"{row.policy}/{row.rule}" if row.rule else "every rule"
        # Mutation refuses nothing, so there it is what validation would say of the object as sent
        later = ", at validation" if phase == "mutate" and row.outcome in ("deny", "error") else ""
        rows.append((rule, "yes" if row.applied else "no", f"{row.outcome}{later}", without_name(rule, row.why)))
    console = people_console(stderr=True)
    print_rows(console, ("rule", "applied", "outcome", "why"), rows, most=len(rows))
    console.print(f"{phase}: {reviewed.answer.verdict}")
