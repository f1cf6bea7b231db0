"""`giveway serve`: the admission webhook over TLS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.admission.objectfiles import ObjectsError, read_objects
from webhook.cli.keeping import keeper_settings_from, keeping_options
from webhook.cli.output import warn
from webhook.cli.running import runs
from webhook.cli.targets import NameInNamespace, reconciler_from, reconciler_option
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.manager import Manager, ManagerOptions, run_until_signalled
from webhook.manager.policy_uses import USES
from webhook.manager.webhook_component import AdmissionWebhook, Registration
from webhook.policy.shapes.findings import PolicyError
from webhook.serving.cluster_objects import CachedObjects, GivenObjects
from webhook.serving.server import ServingOptions
from webhook.serving.tls import TlsError

STARTUP_ERRORS = (ApiError, ConfigError, ObjectsError, OSError, PolicyError, TlsError)
"""What can keep a server from starting, each with a text for whoever starts it."""

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)


_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("--bind-address", "The address to listen on; :: is every one, IPv4 and IPv6.", {"default": "::"}),
    ("--secure-port", "The port of /mutate and /validate; 0 takes a free one.", {"default": 9443, "type": int}),
    ("--health-port", "The plain port of /healthz, /readyz and /metrics.", {"default": 8081, "type": int}),
    ("--tls-cert-file", "The serving certificate with its chain, PEM.", {"required": True, "type": _FILE}),
    ("--tls-private-key-file", "The certificate's private key, PEM.", {"required": True, "type": _FILE}),
    ("--client-ca-file", "Only clients with a certificate of this CA get in.", {"type": _FILE}),
    ("--policies", "The directory of the policy files.", {"required": True, "type": _FILE}),
    (
        "--kept-policies",
        "NAMESPACE/NAME of the ConfigMap in which the policies in force are kept, and found again after a restart.",
        {"type": NameInNamespace()},
    ),
    ("--allow-removal", "Take policies into use that give up rules or rights in force.", {"is_flag": True}),
    (
        "--shutdown-delay-duration",
        "Seconds to go on serving after SIGTERM, not ready any more, until nobody is sent here.",
        {"default": 0.0, "type": click.FloatRange(min=0)},
    ),
    ("--kubeconfig", "How to reach the cluster; else KUBECONFIG, ~/.kube/config or the pod's own account.", {}),
    ("--log-format", "How a log line looks.", {"default": "json", "type": click.Choice(["json", "text"])}),
]


def serving_options(function: F) -> F:
    """Add the options of a command that serves; each can be given as GIVEWAY_… in the environment."""
    for name, help_, more in reversed(_ROWS):
        variable = f"GIVEWAY_{name.removeprefix('--').replace('-', '_').upper()}"
        option = click.option(name, envvar=variable, show_envvar=True, show_default=True, help=help_, **more)
        function = option(function)
    return reconciler_option(function)


def manager_options_from(values: Mapping[str, Any]) -> ManagerOptions:
    """The process's options among a command's values."""
    return ManagerOptions(**{field: values[field] for field in ManagerOptions.__struct_fields__ if field in values})


def options_from(values: Mapping[str, Any]) -> ServingOptions:
    """The server's options among a command's values."""
    known = {field: values[field] for field in ServingOptions.__struct_fields__ if field in values}
    return ServingOptions(**known, reconciler=reconciler_from(values), namespace=values["service"][0], uses=USES)


def kept_policies_from(values: Mapping[str, Any], client: Client) -> KeptPolicies | None:
    """Where the policies in force are kept, by a command's values; None if they are not."""
    return KeptPolicies(client, *values["kept_policies"]) if values["kept_policies"] else None


def add_webhook(manager: Manager, client: Client, values: Mapping[str, Any]) -> AdmissionWebhook:
    """Add the server, and the registration if a command's values name configurations."""
    source = CachedObjects(client)
    webhook = manager.add(AdmissionWebhook(manager, options_from(values), source))
    settings = keeper_settings_from(values)
    if settings is not None:
        static, ca_file = values["static_entries"], values["ca_file"]
        manager.add(Registration(manager, webhook, client, source, settings, ca_file=ca_file, static=static))
    return webhook


@click.command()
@serving_options
@keeping_options
@click.option(
    "--objects",
    envvar="GIVEWAY_OBJECTS",
    show_envvar=True,
    multiple=True,
    type=_FILE,
    help="PriorityClasses and Namespaces from this file, instead of a cluster; may be repeated.",
)
@runs(*STARTUP_ERRORS)
async def command(*, kubeconfig: str | None, objects: tuple[Path, ...], **values: Any) -> None:
    """Serve the admission webhook over TLS until SIGTERM or SIGINT."""
    for needed in ("webhook_configuration", "static_entries", "kept_policies"):
        if objects and values[needed]:
            raise click.UsageError(f"--{needed.replace('_', '-')} needs a cluster; --objects does without")
    options, stream = manager_options_from(values), sys.stdout.buffer
    if objects:
        manager = Manager(options, stream)
        manager.add(AdmissionWebhook(manager, options_from(values), GivenObjects(read_objects(objects, warn))))
        await run_until_signalled(manager)
        return
    async with await Client.connect(kubeconfig) as client:
        manager = Manager(options, stream, kept=kept_policies_from(values, client))
        add_webhook(manager, client, values)
        await run_until_signalled(manager)
