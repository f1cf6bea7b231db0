"""`giveway run`: serve the webhook and reconcile in one process."""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.options import PROCESS, SERVER, options
from webhook.cli.reconcile import RECONCILER, add_reconciler
from webhook.cli.running import runs
from webhook.cli.serve import manager_from
from webhook.kube.client import Client
from webhook.manager.manager import run_until_signalled
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.serving.server import TlsError


@click.command()
@options(*PROCESS, *SERVER, *RECONCILER)
@runs(ClusterError, TlsError, ValueError)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Serve the admission webhook and preempt for the pods it marks, in one process, until SIGTERM or SIGINT.

    It asks the API server as whom it acts, and lets that user's writes pass.
    """
    async with await Client.connect(kubeconfig) as client:
        values["reconciler"] = await client.user_name()
        manager, webhook = manager_from(client, values)
        add_reconciler(manager, client, values, webhook.certificates)
        await run_until_signalled(manager)
