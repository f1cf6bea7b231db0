"""`giveway lint`: check policy files and show everything that is wrong in them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.policy.exceptions import ended_findings, exceptions
from webhook.policy.files.loading import Loaded, load
from webhook.policy.shapes.findings import Finding, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

__all__ = ["command"]

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


@click.command("lint")
@click.argument("paths", metavar="DIR…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "layout",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="For people, for programs, or as annotations of a GitHub workflow.",
)
@click.pass_context
def command(context: click.Context, paths: tuple[Path, ...], layout: str) -> None:
    """Check the policy files directly in each DIR (or one file), each DIR as a set of its own.

    Exits with 1 when there are errors; warnings alone leave it at 0.
    """
    now = time.time()
    results = []
    for path in paths:
        loaded = load(path)
        results.append((path, Loaded(loaded.policies, [*loaded.findings, *ended_findings(loaded.policies, now)])))
    findings = [finding for _, loaded in results for finding in loaded.findings]
    match layout:
        case "json":
            rows = [row for _, loaded in results for row in exceptions(loaded.policies, now)]
            body = {
                "errors": _count(findings, Severity.ERROR),
                "warnings": _count(findings, Severity.WARNING),
                "findings": [_as_json(finding) for finding in findings],
                "exceptions": [{**msgspec.to_builtins(row), "source": str(row.source)} for row in rows],
            }
            click.echo(json.dumps(body, indent=2))
        case "github":
            for finding in findings:
                # `::error file=…,line=…,col=…::text` is shown by GitHub beside the line of a pull request
                source = finding.source
                place = {"file": source.file, "line": source.line, "col": source.column}
                texts = {name: _data(str(value)) for name, value in place.items() if value}
                escaped = {name: text.replace(":", "%3A").replace(",", "%2C") for name, text in texts.items()}
                properties = ",".join(f"{name}={text}" for name, text in escaped.items())
                notes = "".join(f"\n{one.source}: {one.message}" for one in finding.related)
                click.echo(f"::{finding.severity.value} {properties}::{_data(finding.message + notes)}")
        case _:
            _print(results, now)
    if _count(findings, Severity.ERROR):
        context.exit(1)


def _print(results: list[tuple[Path, Loaded]], now: float) -> None:
    for path, loaded in results:
        for finding in loaded.findings:
            severity, colour = finding.severity.value, _COLOURS[finding.severity]
            head, *rest = str(finding).split("\n")
            click.echo(head.replace(f" {severity}: ", f" {click.style(severity, fg=colour, bold=True)}: ", 1))
            for line in rest:
                is_caret = line.lstrip().startswith("|") and line.rstrip().endswith("^")
                click.echo(click.style(line, fg=colour) if is_caret else line)
            click.echo()
        for state in exceptions(loaded.policies, now):
            click.echo(f"{state.source}: exception: {state}")
        policies = loaded.policies
        rules = sum(len(policy.rules) for policy in policies.priority)
        held = f"{_number(len(policies.priority) + len(policies.preemption), 'policy')} with {_number(rules, 'rule')}"
        errors, warnings = _count(loaded.findings, Severity.ERROR), _count(loaded.findings, Severity.WARNING)
        if errors:
            summary = f"{_number(errors, 'error')}, {_number(warnings, 'warning')}; this set is not usable"
        else:
            summary = f"{held}, {_number(warnings, 'warning') if warnings else 'nothing wrong'}"
        click.echo(f"{path}: {summary}")


def _as_json(finding: Finding) -> dict[str, Any]:
    row = {**_place(finding.source), "severity": finding.severity.value, "message": finding.message}
    if finding.related:
        row["related"] = [{**_place(one.source), "message": one.message} for one in finding.related]
    return row


def _place(source: SourcePosition) -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "column": source.column}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _count(findings: Iterable[Finding], severity: Severity) -> int:
    return sum(finding.severity is severity for finding in findings)


def _number(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
