"""`giveway schema`: print the JSON schema of policy files or scenarios, or the reference made of the first."""

from __future__ import annotations

import json

import click
import msgspec

from webhook.cli.options import format_option
from webhook.policy.files.schema import json_schema, markdown


@click.command("schema")
@click.argument("what", type=click.Choice(["policies", "scenario"]), default="policies")
@format_option("json", "markdown", help_="What to print.")
def command(what: str, layout: str) -> None:
    """Print the JSON schema (draft 7) of policy files, as committed in policies/schema.json.

    Editors with a YAML language server complete and check policy files by it. As markdown it is the page
    docs/policy-reference.md. `giveway schema scenario` prints that of the files for `giveway simulate --scenario`.
    """
    if what == "scenario":
        from webhook.simulation.whatif import Scenario  # noqa: PLC0415 - it brings the simulation

        if layout == "markdown":
            raise click.UsageError("the reference in markdown is of policies")
        click.echo(json.dumps(msgspec.json.schema(Scenario), indent=2, ensure_ascii=False))
    elif layout == "markdown":
        click.echo(markdown(), nl=False)
    else:
        click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
