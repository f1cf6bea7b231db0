"""`giveway compile`: policies as the API server's own, printed or kept in step."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from webhook.admission.objectfiles import ObjectsError, read_objects
from webhook.cli.output import warn
from webhook.cli.running import kubeconfig_option, runs
from webhook.cli.targets import reconciler_from, reconciler_option
from webhook.component_base.logs import LogWriter, log_records
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import PRIORITY_CLASS
from webhook.native.compiler import compile_policies, write
from webhook.native.objects import Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.files.loading import load_or_raise
from webhook.policy.shapes.findings import PolicyError

_PATH = click.Path(path_type=Path)
INCOMPLETE = 1
"""The exit code if a rule cannot be expressed and --partial was not said."""


@click.command("compile")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--objects", multiple=True, type=_PATH, help="PriorityClasses from a file, YAML or JSON.")
@click.option("--cluster", is_flag=True, help="Read the PriorityClasses from the cluster.")
@kubeconfig_option
@click.option("--partial", is_flag=True, help="Leave out what cannot be expressed; it is named all the same.")
@click.option(
    "--without-mutation",
    is_flag=True,
    help="For clusters without MutatingAdmissionPolicies (before 1.36): refuse what would stay unmarked.",
)
@click.option(
    "--watch", is_flag=True, help="Keep what is applied in step with the classes and the time; print nothing."
)
@click.option("--namespace", default="giveway-system", show_default=True, help="giveway's own namespace.")
@reconciler_option
@runs(PolicyError, ObjectsError, ApiError, ConfigError, OSError)
async def command(  # noqa: PLR0917 - click gives the options
    directory: Path,
    objects: tuple[Path, ...],
    cluster: bool,
    kubeconfig: str | None,
    partial: bool,
    without_mutation: bool,
    watch: bool,
    namespace: str,
    **values: Any,
) -> None:
    """Turn the policy files of DIR into ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings.

    The API server enforces them by itself (docs/native-policies.md). What is filled in and copied needs the cluster's
    PriorityClasses: --objects or --cluster. Exits with 1 if a rule cannot be expressed, unless --partial is said.
    """
    settings = Settings(
        namespace=namespace, reconciler=reconciler_from(values), mutates=not without_mutation, kept=watch
    )
    policies = load_or_raise(directory)
    classes = list(read_objects(objects, warn).priority_classes()) if objects and not (cluster or watch) else None
    if cluster or watch:
        async with await Client.connect(kubeconfig) as client:
            if watch:
                # Ctrl-C ends it
                with log_records(LogWriter(sys.stdout.buffer, "json")), suppress(asyncio.CancelledError):
                    await PolicyKeeper(client, policies, settings).run()
                return
            classes, _ = await client.list(PRIORITY_CLASS.path(), PriorityClass)
    compiled = compile_policies(policies, classes, settings, time.time())
    for inexpressible in compiled.inexpressible:
        click.echo(inexpressible.told, err=True)
    if compiled.lacks and not partial:
        click.echo("Nothing was printed. The webhook can enforce all of it; --partial prints the rest.", err=True)
        raise SystemExit(INCOMPLETE)
    write(compiled, directory, sys.stdout)
