"""`giveway lint`: check policy files and show everything that is wrong in them."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.admission.context import SYSTEM_CLASSES
from webhook.admission.objectfiles import ObjectsError, read_documents, readable
from webhook.cli.options import format_option, options
from webhook.cli.output import people_console, print_rows, warn
from webhook.cli.verdicts import COLOURS, FailOn, fail_on_option
from webhook.manager.policy_uses import USES
from webhook.policy.example_requests.findings import example_findings
from webhook.policy.files.loading import Loaded, load_texts, texts_in
from webhook.policy.model.policies import Policies
from webhook.policy.reports import ended_findings, exceptions, rights_of
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.example_pods import example_pod_findings

_SEVERITIES = [severity.value for severity in Severity]


@click.command("lint")
@click.argument("paths", metavar="DIR…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@format_option("text", "json", "github", help_="For people, for programs, or as annotations of a GitHub workflow.")
@options("objects")
@click.option(
    "--known-class",
    "known",
    metavar="NAME",
    multiple=True,
    help="A PriorityClass, or a glob of several, that something else makes. May be repeated.",
)
@fail_on_option(*_SEVERITIES, default="error")
@click.option("--explain", is_flag=True, help="Show who may use and define which range, and change which annotations.")
def command(paths: tuple[Path, ...], layout: str, *, fail_on: FailOn, explain: bool, **there: Any) -> None:
    """Check the policy files directly in each DIR (or one file), each DIR as a set of its own.

    Exits with 1 when there are errors, or findings of the severity of --fail-on.
    """
    now = time.time()
    classes = _known_classes(**there)
    results = [_checked(path, classes, now) for path in paths]
    findings = [finding for loaded in results for finding in loaded.findings]
    match layout:
        case "json":
            rows = [row for loaded in results for row in exceptions(loaded.policies, now)]
            counts = Counter(finding.severity for finding in findings)
            body = {
                **{f"{severity}s": counts[severity] for severity in Severity},
                "findings": [_as_json(finding) for finding in findings],
                "rights": [msgspec.to_builtins(row) for loaded in results for row in rights_of(loaded.policies)],
                "exceptions": [{**msgspec.to_builtins(row), "source": str(row.source)} for row in rows],
            }
            click.echo(json.dumps(body, indent=2))
        case "github":
            for finding in findings:
                # `::error file=…,line=…,col=…::text` is shown by GitHub beside the line of a pull request
                source = finding.source
                place = {"file": source.file, "line": source.line, "col": source.column}
                escaped = {name: _escaped(str(value), ":,") for name, value in place.items() if value}
                properties = ",".join(f"{name}={text}" for name, text in escaped.items())
                notes = "".join(f"\n{related.source}: {related.message}" for related in finding.related)
                click.echo(f"::{finding.severity.value} {properties}::{_escaped(finding.message + notes)}")
        case _:
            for path, loaded in zip(paths, results, strict=True):
                _print(path, loaded, now)
            for loaded in results if explain else ():
                _explain(loaded.policies)
    sys.exit(1 if any(finding.severity in fail_on for finding in findings) else 0)


def _known_classes(objects: tuple[Path, ...], known: tuple[str, ...]) -> set[str] | None:
    """The classes that policies may name; None if nothing was said of them."""
    if not objects and not known:
        return None
    try:
        documents = readable(read_documents(objects), warn)
    except ObjectsError as error:
        raise click.UsageError(str(error)) from error
    names = {str(document.metadata.get("name")) for document in documents if document.kind == "PriorityClass"}
    return names | SYSTEM_CLASSES.keys() | {*known}


def _checked(path: Path, classes: set[str] | None, now: float) -> Loaded:
    """A policy set with all that is wrong in it: in its files, with its exceptions."""
    loaded = load_texts(*texts_in(path), known_classes=classes, uses=USES)
    findings = [*loaded.findings, *ended_findings(loaded.policies, now)]
    if loaded.policies == Policies() and not loaded.errors:
        text = "there is no policy here; sub-folders are not read, name the directory that holds the files"
        findings.append(Finding(severity=Severity.ERROR, source=SourcePosition(str(path)), message=text))
    if not loaded.errors:
        findings += example_findings(loaded.policies, now, str(path))
        findings += example_pod_findings(loaded.policies, now)
    return Loaded(loaded.policies, findings)


def _print(path: Path, loaded: Loaded, now: float) -> None:
    """The findings and exceptions of a policy set, and how many there are of what."""
    policies = loaded.policies
    for finding in loaded.findings:
        severity, colour = finding.severity.value, COLOURS[finding.severity]
        head, *rest = str(finding).split("\n")
        click.echo(head.replace(f" {severity}: ", f" {click.style(severity, fg=colour, bold=True)}: ", 1))
        for line in rest:
            is_caret = line.lstrip().startswith("|") and line.rstrip().endswith("^")
            click.echo(click.style(line, fg=colour) if is_caret else line)
        click.echo()
    for state in exceptions(policies, now):
        click.echo(f"{state.source}: exception: {state}")
    rules = sum(len(policy.rules) for policy in policies.priority)
    summary = f"{_number(len(policies.priority) + len(policies.preemption), 'policy')} with {_number(rules, 'rule')}"
    counts = Counter(finding.severity for finding in loaded.findings)
    errors, warnings, notices = (counts[severity] for severity in Severity)
    if errors:
        summary = f"{_number(errors, 'error')}, {_number(warnings, 'warning')}; this set is not usable"
    else:
        summary += f", {_number(warnings, 'warning') if warnings else 'nothing wrong'}"
        summary += f", {_number(notices, 'notice')}" if notices else ""
    click.echo(f"{path}: {summary}")


def _explain(policies: Policies) -> None:
    """Print every right of a policy set, for those who ask for themselves and for what is made for somebody."""
    rows = []
    for row in rights_of(policies):
        by = row.rule if row.enforcement == "enforce" else f"{row.rule} ({row.enforcement}: it gives nothing)"
        by += "" if row.holds == "everywhere" else f"; {row.holds}"
        rows.append((row.about, row.right, row.people, row.controllers, by))
    heads = ("what", "right", "who asks for themselves", "what controllers and service accounts make", "by rule")
    if rows:
        print_rows(people_console(), heads, rows, title="Who may", most=None, ruled=True)
    else:
        click.echo("No rule gives a right.")


def _as_json(finding: Finding) -> dict[str, Any]:
    row = {**_said(finding), "severity": finding.severity.value}
    if finding.related:
        row["related"] = [_said(related) for related in finding.related]
    return row


def _said(finding: Finding) -> dict[str, Any]:
    source = finding.source
    row = {"file": source.file, "line": source.line, "column": source.column, "message": finding.message}
    return {**row, "field": finding.source.field} if finding.source.field else row


def _escaped(text: str, more: str = "") -> str:
    """A text in which what has a meaning for GitHub, and these characters, are a percent sign and their code."""
    meaning = f"%\r\n{more}"
    return "".join(f"%{ord(char):02X}" if char in meaning else char for char in text)


def _number(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
