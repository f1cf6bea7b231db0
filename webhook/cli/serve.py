"""`giveway serve`: the admission webhook over TLS."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import click
import msgspec

from webhook.cli.options import KEEP, NONE, PROCESS, SERVER, STATIC, options, target_from
from webhook.cli.running import runs
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.client import Client
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.manager import Manager, ManagerOptions, run_until_signalled
from webhook.manager.policy_uses import USES
from webhook.manager.webhook_component import add_keeper, add_webhook
from webhook.registration.keeper import Keeper
from webhook.serving.cluster_objects import CachedObjects
from webhook.serving.server import ReviewServer, ServingOptions, TlsError

_DELAY = 8.0
"""Seconds to go on serving after SIGTERM: a Service, or what balances load at a URL, takes a moment to learn of it."""


def manager_from(client: Client, values: Mapping[str, Any]) -> tuple[Manager, ReviewServer]:
    """A process with the server, and with what keeps the entries or looks at them, if anybody writes them."""
    entries = KEEP if values["webhook_configuration"] else values["entries"]
    target, source = target_from(values), CachedObjects(client)
    kept = None if entries == NONE else KeptPolicies(client, target.namespace)
    manager = Manager(msgspec.convert(values, ManagerOptions), sys.stdout.buffer, kept=kept)
    serving = msgspec.structs.replace(
        msgspec.convert(values, ServingOptions),
        reconciler=target.reconciler,
        namespace=target.namespace,
        uses=USES,
        shutdown_delay_duration=0.0 if entries == NONE else _DELAY,
    )
    webhook = add_webhook(manager, serving, source)
    if entries != NONE:
        keeper = Keeper(
            client,
            target,
            # One that runs outside the cluster has no Deployment whose end would be its own
            deployment=WEBHOOK if target.url is None else None,
            owns_trust=values["sync_ca_bundle"],
            static=entries == STATIC,
            ready=manager.ready,
            trust=lambda: values["ca_file"].read_bytes() if values["ca_file"] else b"",
            terminating=partial(source.terminating, target.namespace),
        )
        add_keeper(manager, keeper, webhook)
    return manager, webhook


@click.command()
@options(*PROCESS, *SERVER)
@runs(TlsError)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Serve the admission webhook over TLS until SIGTERM or SIGINT."""
    async with await Client.connect(kubeconfig) as client:
        manager, _ = manager_from(client, values)
        await run_until_signalled(manager)
