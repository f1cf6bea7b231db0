"""`giveway test`: the declarative tests beside the policies, as a table, an exit code and JUnit XML."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from webhook.admission.policytest import TestFileError, find, run
from webhook.cli.output import UnusableError, literal, people_console, print_rows
from webhook.cli.verdicts import JudgedCase, junit_option, print_verdict, write_junit


@click.command()
@click.argument("paths", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@junit_option
def command(paths: tuple[Path, ...], junit: Path | None) -> None:
    """Run the PolicyTests in DIR… and below. Exits with 1 if a case fails, 2 if a file cannot be run."""
    try:
        results = [result for test in find(paths) for result in run(test)]
    except TestFileError as error:
        raise UnusableError(str(error)) from error
    if not results:
        raise UnusableError(f"no PolicyTest in {', '.join(map(str, paths))}")
    console = people_console()
    rows = [(result.test, result.case, result.verdict, "FAILED" if result.failures else "ok") for result in results]
    print_rows(console, ("test", "case", "verdict", "result"), rows, most=None, on_one_line=True)
    failed = [result for result in results if result.failures]
    for result in failed:
        about = f"{result.place or result.file}: {result.test}: {result.case}"
        console.print()
        print_verdict(console, "FAILED", literal(about), *(literal(failure) for failure in result.failures))
    console.print(f"\n{len(results) - len(failed)} passed, {len(failed)} failed")
    if junit is not None:
        cases = [
            JudgedCase(result.test, result.case, result.failures, seconds=result.seconds)
            for result in sorted(results, key=lambda result: (result.file, result.test))
        ]
        write_junit(junit, cases)
    sys.exit(1 if failed else 0)
