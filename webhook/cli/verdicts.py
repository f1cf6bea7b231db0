"""How commands tell verdicts: on a terminal, as JUnit XML for CI systems, and from which one on they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree as ET

import click
from rich.console import Console
from rich.padding import Padding

from webhook.component_base.logs import visible

F = TypeVar("F", bound=Callable[..., Any])
FailOn = frozenset[str]
"""The verdicts that make the exit code 1."""
_NEVER = "never"
JUDGED = ("refused", "warned", "audited")
"""What rules say of an object, the gravest first."""
COLOURS = {
    **dict.fromkeys(("refused", "not judged", "FAILED", "error"), "red"),
    **dict.fromkeys(("warned", "warning"), "yellow"),
    **dict.fromkeys(("audited", "notice", "info"), "cyan"),
    **dict.fromkeys(("cannot be judged", "not checked"), "magenta"),
    **dict.fromkeys(("allowed", "ok"), "green"),
}


class JudgedCase(NamedTuple):
    """One thing that was judged: in which suite, by what name, and the lines of what is said against it or for it.

    `error` says why there is no verdict.
    """

    suite: str
    name: str
    failures: Sequence[str] = ()
    said: Sequence[str] = ()
    error: str = ""
    seconds: float | None = None


def fail_on_option(*verdicts: str, default: str) -> Callable[[F], F]:
    """Add `--fail-on`, of these verdicts from the gravest down; the command gets those that make the exit code 1."""

    def failing(context: click.Context, parameter: click.Parameter, mildest: str) -> FailOn:
        del context, parameter
        return frozenset(() if mildest == _NEVER else verdicts[: verdicts.index(mildest) + 1])

    choice, help_ = click.Choice([*verdicts, _NEVER]), "From which verdict on the exit code is 1."
    return click.option("--fail-on", type=choice, default=default, callback=failing, help=help_)


_FILE = click.Path(path_type=Path, dir_okay=False)
junit_option = click.option("--junit", type=_FILE, help="Write it to this file as JUnit XML, too.")


def print_verdict(console: Console, verdict: str, about: str, *lines: str) -> None:
    """Print a verdict with what it is about, and the lines below it, which are all markup of rich."""
    console.print(f"[bold {COLOURS[verdict]}]{verdict}[/]  {about}")
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2), expand=False))


def write_junit(file: Path, cases: Iterable[JudgedCase]) -> None:
    """Write the format that CI systems read: a suite for each run of cases of one name. Raises OSError."""
    root = ET.Element("testsuites")
    for name, group in groupby(cases, key=lambda case: case.suite):
        members = list(group)
        suite = ET.SubElement(root, "testsuite", name=name, tests=str(len(members)))
        suite.set("failures", str(sum(bool(case.failures) for case in members)))
        suite.set("errors", str(sum(bool(case.error) for case in members)))
        for case in members:
            row = ET.SubElement(suite, "testcase", name=visible(case.name), classname=name)
            if case.seconds is not None:
                row.set("time", f"{case.seconds:.6f}")
            if case.error:
                ET.SubElement(row, "error", message=visible(case.error))
            if case.failures:
                lines = [visible(line) for line in case.failures]
                ET.SubElement(row, "failure", message=lines[0]).text = "\n".join(lines)
            elif case.said:
                ET.SubElement(row, "system-out").text = "\n".join(visible(line) for line in case.said)
    ET.indent(root)
    file.write_bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))
