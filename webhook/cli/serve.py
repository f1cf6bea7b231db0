"""`giveway serve`: the admission webhook over TLS."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from webhook.cli.options import KEEP, NONE, PROCESS, SERVER, STATIC, options, target_from
from webhook.cli.running import runs
from webhook.component_base.own_names import CONFIGURATION, IN_FORCE, WEBHOOK
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.manager import Manager, ManagerOptions, run_until_signalled
from webhook.manager.policy_uses import USES
from webhook.manager.webhook_component import Registration, add_webhook
from webhook.policy.shapes.findings import PolicyError
from webhook.registration.keeper import KeeperSettings
from webhook.serving.cluster_objects import CachedObjects, ObjectSource
from webhook.serving.server import ReviewServer, ServingOptions
from webhook.serving.tls import TlsError

STARTUP_ERRORS = (ApiError, ConfigError, OSError, PolicyError, TlsError)
"""What can keep a server from starting, each with a text for whoever starts it."""
_DELAY = 8.0
"""Seconds to go on serving after SIGTERM: a Service, or what balances load at a URL, takes a moment to learn of it."""


def manager_options_from(values: Mapping[str, Any]) -> ManagerOptions:
    """The process's options among a command's values."""
    return ManagerOptions(**{field: values[field] for field in ManagerOptions.__struct_fields__ if field in values})


def kept_policies_from(values: Mapping[str, Any], client: Client) -> KeptPolicies:
    """Where the policies in force are kept."""
    return KeptPolicies(client, values["system_namespace"], IN_FORCE)


def entries_from(values: Mapping[str, Any]) -> str:
    """Who writes the entries: "keep", "static" or "none"."""
    return KEEP if values["webhook_configuration"] else str(values["entries"])


def webhook_from(manager: Manager, source: ObjectSource, values: Mapping[str, Any]) -> ReviewServer:
    """Add the server that a command's values ask for."""
    target, known = target_from(values), ServingOptions.__struct_fields__
    serving = ServingOptions(
        **{field: values[field] for field in known if field in values and field != "reconciler"},
        reconciler=target.reconciler,
        namespace=target.namespace,
        uses=USES,
        shutdown_delay_duration=0.0 if entries_from(values) == NONE else _DELAY,
    )
    return add_webhook(manager, serving, source)


def manager_from(client: Client, values: Mapping[str, Any]) -> tuple[Manager, ReviewServer]:
    """A process with the server, and with what keeps the entries or looks at them, if anybody writes them."""
    entries, source = entries_from(values), CachedObjects(client)
    kept = None if entries == NONE else kept_policies_from(values, client)
    manager = Manager(manager_options_from(values), sys.stdout.buffer, kept=kept)
    webhook, target = webhook_from(manager, source, values), target_from(values)
    if entries != NONE:
        settings = KeeperSettings(
            name=CONFIGURATION,
            target=target,
            # One that runs outside the cluster has no Deployment whose end would be its own
            deployment=WEBHOOK if target.url is None else None,
            owns_trust=values["sync_ca_bundle"],
            static=entries == STATIC,
        )
        manager.add(Registration(manager, webhook, client, source, settings, ca_file=values["ca_file"]))
    return manager, webhook


@click.command()
@options(*PROCESS, *SERVER)
@runs(*STARTUP_ERRORS)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Serve the admission webhook over TLS until SIGTERM or SIGINT."""
    async with await Client.connect(kubeconfig) as client:
        manager, _ = manager_from(client, values)
        await run_until_signalled(manager)
