"""`giveway review`: answer AdmissionReviews from files, offline, as the server would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from webhook.admission.context import Context
from webhook.admission.objectfiles import ObjectsError, read_objects
from webhook.admission.webhook import Phase, review
from webhook.component_base.logs import visible
from webhook.policy.evaluation.engine import Engine, RuleTrace
from webhook.policy.files.loading import PolicyError, load_or_raise

__all__ = ["command"]

UNUSABLE = 2
"""Exit code if a file is no review, or policies and objects cannot be read. A refusal is an answer: 0."""


@click.command()
@click.argument("files", metavar="[FILE…|-]", nargs=-1, type=click.File("rb"))
@click.option("--policies", required=True, type=click.Path(path_type=Path), help="The directory of the policy files.")
@click.option(
    "--objects",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file of PriorityClasses and Namespaces, YAML or JSON, several documents or a List. May be repeated.",
)
@click.option("--phase", required=True, type=click.Choice(["mutate", "validate"]), help="The webhook that is asked.")
@click.option("--explain", is_flag=True, help="Say on stderr of every rule whether it applied, and why or why not.")
def command(
    files: tuple[BinaryIO, ...], policies: Path, objects: tuple[Path, ...], phase: Phase, explain: bool
) -> None:
    """Read AdmissionReviews (JSON) from FILE… or standard input and print the answers as JSON.

    Exits with 0 if every review has a verdict, whatever it is, and with 2 if one is none or nothing can be read.
    """
    try:
        engine = Engine(load_or_raise(policies))
        lookup = read_objects(objects)
    except (PolicyError, ObjectsError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(UNUSABLE)
    codes = []
    streams: tuple[BinaryIO, ...] = files or (sys.stdin.buffer,)
    for file in streams:
        trace: list[RuleTrace] | None = [] if explain else None
        reviewed = review(Context(engine, lookup, trace), phase, file.read())
        click.echo(msgspec.json.format(reviewed.body, indent=2))
        if trace is not None:
            from rich.console import Console  # noqa: PLC0415 - only if it prints
            from rich.table import Table  # noqa: PLC0415
            from rich.text import Text  # noqa: PLC0415

            table = Table("rule", "applied", "outcome", "why", box=None, header_style="bold", title_justify="left")
            traced = {f"{row.policy}/{row.rule}" for row in trace}
            for verdict in reviewed.answer.verdicts:
                if verdict.id not in traced:
                    table.add_row(verdict.id, "yes", verdict.outcome, Text(visible(verdict.message)))
            for row in trace:
                rule = f"{row.policy}/{row.rule}" if row.rule else "every rule"
                # Mutation refuses nothing, so there it is what validation would say of the object as sent
                refuses = row.outcome in ("deny", "error")
                table.add_row(
                    rule,
                    "yes" if row.applied else "no",
                    f"{row.outcome}, at validation" if phase == "mutate" and refuses else row.outcome,
                    Text(visible(row.why)),
                )
            console = Console(stderr=True, soft_wrap=not sys.stderr.isatty())
            console.print(table)
            console.print(f"{phase}: {reviewed.answer.verdict}")
        codes.append(reviewed.code)
    sys.exit(UNUSABLE if any(code != 200 for code in codes) else 0)
