"""`giveway lint`: check policy files and show everything that is wrong in them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.policy.exceptions import ExceptionState, ended_findings, exceptions
from webhook.policy.files.loading import Loaded, load
from webhook.policy.shapes.findings import Finding, Severity

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
    results = [(path, _checked(load(path), now)) for path in paths]
    findings = [finding for _, loaded in results for finding in loaded.findings]
    match layout:
        case "json":
            rows = [row for _, loaded in results for row in exceptions(loaded.policies, now)]
            click.echo(json.dumps({**_as_json(findings), "exceptions": list(map(_exception_row, rows))}, indent=2))
        case "github":
            for finding in findings:
                # `::error file=…,line=…,col=…::text` is shown by GitHub beside the line of a pull request
                source = finding.source
                place = {"file": source.file, "line": source.line, "col": source.column}
                properties = ",".join(f"{name}={_property(str(value))}" for name, value in place.items() if value)
                notes = "".join(f"\n{one.source}: {one.message}" for one in finding.related)
                click.echo(f"::{finding.severity.value} {properties}::{_data(finding.message + notes)}")
        case _:
            _print(results, now)
    if _count(findings, Severity.ERROR):
        context.exit(1)


def _checked(loaded: Loaded, now: float) -> Loaded:
    """What loading found, and the exceptions that have ended by now."""
    return Loaded(loaded.policies, [*loaded.findings, *ended_findings(loaded.policies, now)])


def _exception_row(state: ExceptionState) -> dict[str, Any]:
    row = msgspec.to_builtins(state)
    return {**row, "source": str(state.source)}


def _print(results: list[tuple[Path, Loaded]], now: float) -> None:
    for path, loaded in results:
        for finding in loaded.findings:
            text = str(finding)
            head, _, rest = text.partition("\n")
            severity = finding.severity.value
            head = head.replace(
                f" {severity}: ", f" {click.style(severity, fg=_COLOURS[finding.severity], bold=True)}: ", 1
            )
            click.echo("\n".join([head, *(_coloured_caret(line, finding) for line in rest.split("\n") if rest)]) + "\n")
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


def _coloured_caret(line: str, finding: Finding) -> str:
    is_caret = line.lstrip().startswith("|") and line.rstrip().endswith("^")
    return click.style(line, fg=_COLOURS[finding.severity]) if is_caret else line


def _as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    rows = [_row(finding) for finding in findings]
    return {
        "errors": sum(row["severity"] == "error" for row in rows),
        "warnings": sum(row["severity"] == "warning" for row in rows),
        "findings": rows,
    }


def _row(finding: Finding) -> dict[str, Any]:
    """A finding as JSON."""
    source = finding.source
    row: dict[str, Any] = {
        "file": source.file,
        "line": source.line,
        "column": source.column,
        "severity": finding.severity.value,
        "message": finding.message,
    }
    if finding.related:
        row["related"] = [
            {"file": one.source.file, "line": one.source.line, "column": one.source.column, "message": one.message}
            for one in finding.related
        ]
    return row


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _count(findings: Iterable[Finding], severity: Severity) -> int:
    return sum(finding.severity is severity for finding in findings)


def _number(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
