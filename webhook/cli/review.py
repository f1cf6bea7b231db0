"""`giveway review`: what the policies say of manifests, or answer to AdmissionReviews; from files, offline."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.admission.context import Context
from webhook.admission.objectfiles import ObjectsError, read_documents, read_objects
from webhook.admission.webhook import Phase, Reviewed, review
from webhook.cli.options import format_option, options
from webhook.cli.output import UnusableError, literal, people_console, print_rows, warn
from webhook.cli.verdicts import JUDGED, JudgedCase, fail_on_option, junit_option, print_verdict, write_junit
from webhook.inspection.judge import CANNOT_BE_JUDGED
from webhook.inspection.manifests import ManifestReport, author, review_manifests
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.rules import Verdict, without_name
from webhook.policy.files.loading import load_or_raise
from webhook.policy.shapes.findings import PolicyError

REFUSED, UNUSABLE = 1, UnusableError.exit_code
"""Exit codes: a manifest would be refused; a file is no review or object."""


@click.command()
@click.argument(
    "files", metavar="[FILE|DIR…|-]", nargs=-1, type=click.Path(exists=True, allow_dash=True, path_type=Path)
)
@options("policies", "objects")
@click.option("--as", "user", metavar="USER", help="Who applies the manifests; nobody in particular if absent.")
@click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="A group of that user. May be repeated.")
@options("namespace", namespace={"help": "Of manifests that name none."})
@format_option("text", "json", help_="What is said of manifests, for people or for programs.")
@junit_option
@fail_on_option(*JUDGED, default="refused")
@click.option(
    "--phase",
    type=click.Choice(["mutate", "validate"]),
    help="FILE holds AdmissionReviews (JSON): print the answer of this webhook to each.",
)
@click.option("--explain", is_flag=True, help="Say on stderr of every rule whether it applied, and why or why not.")
def command(
    files: tuple[Path, ...], policies: Path, objects: tuple[Path, ...], phase: Phase | None, **more: Any
) -> None:
    """Say of every manifest in FILE…, below DIR…, or on standard input what the policies would, were it created.

    Pods, workloads with a pod template and PriorityClasses are judged as the webhook does it. PriorityClasses and
    Namespaces among the manifests count as there. Exits with 1 if something would be refused, and with 2 if a file
    cannot be read.

    With --phase, FILE… are AdmissionReviews; it exits with 0 if each has a verdict, whatever it is.
    """
    paths = files or (Path("-"),)
    user, groups = more["user"] or "", more["groups"]
    if groups and not user:
        raise click.UsageError("--as-group is a group of the user that --as names")
    if more["explain"] and phase is None:
        raise click.UsageError("--explain is about one AdmissionReview; name its --phase")
    try:
        if phase is not None:
            sys.exit(_answer(paths, policies, objects, phase, explain=more["explain"]))
        loaded = load_or_raise(policies)
        documents = read_documents(paths, sys.stdin.buffer.read() if Path("-") in paths else b"")
        if any(document.kind == "AdmissionReview" for document in documents):
            raise click.UsageError("an AdmissionReview is for one of two webhooks; say --phase mutate or validate")
        known = read_documents(objects)
        report = review_manifests(
            loaded, documents, known, maker=author(user, groups), namespace=more["namespace"], own="giveway-system"
        )
    except (PolicyError, ObjectsError, OSError) as error:
        raise UnusableError(str(error)) from error
    if more["layout"] == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        print_report(report, named=bool(user))
    if more["junit"] is not None:
        write_junit(more["junit"], cases_of(report, more["fail_on"]))
    refused = REFUSED if any(verdict.has(more["fail_on"]) for verdict in report.judged) else 0
    sys.exit(UNUSABLE if any(verdict.problem for verdict in report.judged) else refused)


def _answer(files: tuple[Path, ...], policies: Path, objects: tuple[Path, ...], phase: Phase, *, explain: bool) -> int:
    """Print the answers to AdmissionReviews; returns the exit code. Raises as the policies and objects are read."""
    engine, lookup = Engine(load_or_raise(policies)), read_objects(objects, warn)
    codes = []
    for file in files:
        with click.open_file(str(file), "rb") as stream:
            body: bytes = stream.read()
        trace: list[Verdict] | None = [] if explain else None
        reviewed = review(Context(engine, lookup, trace), phase, body)
        click.echo(msgspec.json.format(reviewed.body, indent=2))
        if trace is not None:
            print_trace(phase, reviewed, trace)
        codes.append(reviewed.answer.code)
    return UNUSABLE if any(code != 200 for code in codes) else 0


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
        console.print(f"[yellow]Assumed[/yellow]: {literal(text)}. If the cluster has them, name them with --objects.")
    if not named and any(verdict.has((CANNOT_BE_JUDGED,)) for verdict in report.judged):
        console.print("What cannot be judged depends on who applies it; say who with --as and --as-group.")
    refused = sum(verdict.has(("refused",)) for verdict in report.judged)
    unread = sum(bool(verdict.problem) for verdict in report.judged)
    more = f", {unread} could not be judged" if unread else ""
    console.print(f"{len(report.judged) - unread} judged, {refused} refused{more}")
    for why, count in report.passed_over.items():
        console.print(f"{count} not judged, {literal(why)}")


def cases_of(report: ManifestReport, failing: Collection[str]) -> Iterator[JudgedCase]:
    """A suite for each file, a case for each object."""
    for verdict in report.judged:
        lines = [f"{said.verdict} by {said.rule}: {without_name(said.rule, said.message)}" for said in verdict.said]
        failures, said = (lines, []) if verdict.has(failing) else ([], lines)
        yield JudgedCase(verdict.file, verdict.title, failures, said, verdict.problem)


def print_trace(phase: Phase, reviewed: Reviewed, trace: list[Verdict]) -> None:
    """Print on standard error of every rule whether it applied to an AdmissionReview, and why or why not."""
    traced, rows = {row.id for row in trace}, []
    for row in (*(verdict for verdict in reviewed.answer.verdicts if verdict.id not in traced), *trace):
        rule, why = row.id if row.rule else "every rule", row.message or "it allows the request"
        # Mutation refuses nothing, so there it is what validation would say of the object as sent
        later = ", at validation" if phase == "mutate" and row.outcome in ("deny", "error") else ""
        rows.append((rule, "no" if row.outcome == "skip" else "yes", f"{row.outcome}{later}", without_name(rule, why)))
    console = people_console(stderr=True)
    print_rows(console, ("rule", "applied", "outcome", "why"), rows, most=None)
    console.print(f"{phase}: {reviewed.answer.verdict}")
