"""`giveway schema`: print the JSON schema of the policy files."""

from __future__ import annotations

import json

import click

from webhook.policy.files.schema import json_schema

__all__ = ["command"]


@click.command("schema")
def command() -> None:
    """Print the JSON schema (draft 7) of policy files, as committed in policies/schema.json.

    Editors with a YAML language server complete and check policy files by it.
    """
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
