"""`giveway schema`: print the JSON schema of the policy files, or the reference made of it."""

from __future__ import annotations

import json

import click

from webhook.policy.files.schema import json_schema, markdown


@click.command("schema")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "markdown"]),
    default="json",
    show_default=True,
    help="What to print.",
)
def command(form: str) -> None:
    """Print the JSON schema (draft 7) of policy files, as committed in policies/schema.json.

    Editors with a YAML language server complete and check policy files by it. As markdown it is the page
    docs/policy-reference.md.
    """
    if form == "markdown":
        click.echo(markdown(json_schema()), nl=False)
        return
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
