"""`giveway test`: the declarative tests beside the policies, as a table, an exit code and JUnit XML."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

import click
from rich.table import Table
from rich.text import Text

from webhook.admission.policytest import CaseResult, run
from webhook.admission.policytest_files import TestFileError, find
from webhook.cli.output import people_console

FAILED, UNUSABLE = 1, 2
"""Exit codes: a case failed; a test file cannot be run, or there is none."""


@click.command()
@click.argument("paths", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the results to this file as JUnit XML."
)
def command(paths: tuple[Path, ...], junit: Path | None) -> None:
    """Run the PolicyTests in DIR… and below. Exits with 1 if a case fails, 2 if a file cannot be run."""
    try:
        results = [result for test in find(paths) for result in run(test)]
    except TestFileError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(UNUSABLE)
    if not results:
        click.echo(f"Error: no PolicyTest in {', '.join(map(str, paths))}", err=True)
        sys.exit(UNUSABLE)
    console = people_console()
    table = Table("test", "case", "verdict", "result", box=None, header_style="bold")
    for result in results:
        mark = Text("FAILED", "red") if result.failures else Text("ok", "green")
        table.add_row(Text(result.test), Text(result.case), result.verdict, mark)
    console.print(table)
    failed = [result for result in results if result.failures]
    for result in failed:
        console.print(Text(f"\n{result.place or result.file}: {result.test}: {result.case}", "bold"))
        for failure in result.failures:
            console.print(Text(f"  {failure}"))
    console.print(f"\n{len(results) - len(failed)} passed, {len(failed)} failed")
    if junit is not None:
        junit.write_bytes(_junit(results))
    sys.exit(FAILED if failed else 0)


def _junit(results: list[CaseResult]) -> bytes:
    """The format that CI systems read: one suite for each PolicyTest."""
    root = ET.Element("testsuites")
    suites: dict[tuple[Path, str], list[CaseResult]] = defaultdict(list)
    for result in results:
        suites[result.file, result.test].append(result)
    for (file, name), cases in suites.items():
        suite = ET.SubElement(root, "testsuite", name=name, file=str(file), tests=str(len(cases)))
        suite.set("failures", str(sum(bool(case.failures) for case in cases)))
        for case in cases:
            row = ET.SubElement(suite, "testcase", name=case.case, classname=name, time=f"{case.seconds:.6f}")
            if case.failures:
                ET.SubElement(row, "failure", message=case.failures[0]).text = "\n".join(case.failures)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text
