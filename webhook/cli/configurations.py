"""`giveway configurations`: print the webhook configurations that `giveway serve` keeps."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import click

from webhook.cli.output import print_yaml
from webhook.cli.targets import reconciler_option, target_from, target_options
from webhook.policy.files.loading import load_or_raise
from webhook.policy.shapes.findings import PolicyError
from webhook.registration.applied import applied_entries

_PATH = click.Path(path_type=Path)


@click.command("configurations")
@click.option("--policies", required=True, type=_PATH, help="The directory of the policy files.")
@click.option("--webhook-configuration", "name", default="giveway", show_default=True, help="The objects' name.")
@click.option("--ca-file", type=_PATH, help="PEM file of what the API server is to trust, for the caBundle.")
@target_options
@reconciler_option
def command(*, policies: Path, name: str, ca_file: Path | None, **values: Any) -> None:
    """Print the two webhook configurations as YAML, as `giveway serve --webhook-configuration` fills them in.

    To be read; or to be applied by an administrator, for servers with --static-entries, which may not write them. Make
    them again whenever the policies change: the server and `giveway doctor` tell if they are old.
    """
    target = target_from(values)
    try:
        entries = applied_entries(load_or_raise(policies), target)
        trust = ca_file.read_bytes() if ca_file else b""
    except (PolicyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for kind, webhooks in entries.items():
        for webhook in webhooks if trust else ():
            webhook["clientConfig"]["caBundle"] = base64.b64encode(trust).decode()
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        print_yaml([{**head, "webhooks": webhooks}])
