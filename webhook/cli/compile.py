"""`giveway compile`: policies as the API server's own, or as entries of the webhook; printed, or kept in step."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from webhook.admission.kubectl_yaml import write_yaml
from webhook.admission.objectfiles import ObjectsError, read_objects
from webhook.cli.options import ENTRIES, options, target_from
from webhook.cli.output import warn
from webhook.cli.running import runs
from webhook.component_base.logs import LogWriter, log_records
from webhook.component_base.own_names import CONFIGURATION, reconciler_user
from webhook.kube.client import Client
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import PRIORITY_CLASS
from webhook.native.compiler import compile_policies, write
from webhook.native.objects import Settings
from webhook.native.policy_keeper import PolicyKeeper
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.registration.entries import entries

INCOMPLETE = 1
"""The exit code if a rule cannot be expressed and --partial was not said."""


@click.command("compile")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@options("objects", objects={"help": "PriorityClasses from a file, YAML or JSON."})
@click.option("--cluster", is_flag=True, help="Read the PriorityClasses from the cluster.")
@options("kubeconfig", "system-namespace")
@click.option("--partial", is_flag=True, help="Leave out what cannot be expressed; it is named all the same.")
@click.option(
    "--without-mutation",
    is_flag=True,
    help="For clusters without MutatingAdmissionPolicies (before 1.36): refuse what would stay unmarked.",
)
@click.option(
    "--watch", is_flag=True, help="Keep what is applied in step with the classes and the time; print nothing."
)
@click.option("--webhook", is_flag=True, help="Print the webhook configurations, as `giveway serve` fills them in.")
@options(*ENTRIES, ca_file={"help": "PEM file of what the API server is to trust, for the caBundle."})
@runs(ObjectsError)
async def command(
    directory: Path, objects: tuple[Path, ...], kubeconfig: str | None, *, cluster: bool, partial: bool, **values: Any
) -> None:
    """Turn the policy files of DIR into ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings.

    The API server enforces them by itself (docs/native-policies.md). What is filled in and copied needs the cluster's
    PriorityClasses: --objects or --cluster. Exits with 1 if a rule cannot be expressed, unless --partial is said.

    With --webhook it prints the two webhook configurations: to be read, or to be applied by an administrator for
    servers with --entries=static, which may not write them. Make them again whenever the policies change;
    `giveway doctor` tells if they are old. The last options say where the API server sends reviews.
    """
    policies, watch = load_or_raise(directory), values["watch"]
    if values["webhook"]:
        _print_configurations(policies, values)
        return
    namespace = values["system_namespace"]
    settings = Settings(
        namespace=namespace, reconciler=reconciler_user(namespace), mutates=not values["without_mutation"], kept=watch
    )
    classes = list(read_objects(objects, warn).classes.values()) if objects and not (cluster or watch) else None
    if cluster or watch:
        async with await Client.connect(kubeconfig) as client:
            if watch:
                # Ctrl-C ends it
                with log_records(LogWriter(sys.stdout.buffer)), suppress(asyncio.CancelledError):
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


def _print_configurations(policies: Policies, values: Mapping[str, Any]) -> None:
    """Print what an administrator can apply, with the caBundle of a file if there is one. Raises OSError."""
    trust = values["ca_file"].read_bytes() if values["ca_file"] else b""
    for kind, webhooks in entries(policies, target_from(values)).items():
        for webhook in webhooks if trust else ():
            webhook["clientConfig"]["caBundle"] = base64.b64encode(trust).decode()
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": CONFIGURATION}}
        write_yaml([{**head, "webhooks": webhooks}], sys.stdout)
