"""`giveway run`: serve the webhook and reconcile in one process."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from webhook.cli.keeping import keeping_options
from webhook.cli.reconcile import add_reconciler, reconciler_options
from webhook.cli.running import runs
from webhook.cli.serve import STARTUP_ERRORS, add_webhook, kept_policies_from, manager_options_from, serving_options
from webhook.kube.client import Client
from webhook.manager.manager import Manager, run_until_signalled
from webhook.preemption.snapshot.amounts import ClusterError


@click.command()
@serving_options
@keeping_options
@reconciler_options
@click.pass_context
@runs(*STARTUP_ERRORS, ClusterError, ValueError)
async def command(context: click.Context, /, *, kubeconfig: str | None, **values: Any) -> None:
    """Serve the admission webhook and preempt for the pods it marks, in one process, until SIGTERM or SIGINT.

    Without --reconciler-service-account it asks the API server as whom it acts, and lets that user's writes pass.
    """
    told_who = context.get_parameter_source("reconciler_service_account") is not ParameterSource.DEFAULT
    async with await Client.connect(kubeconfig) as client:
        if not told_who:
            values = {**values, "reconciler_user": await client.user_name()}
        manager = Manager(manager_options_from(values), sys.stdout.buffer, kept=kept_policies_from(values, client))
        webhook = add_webhook(manager, client, values)
        add_reconciler(manager, client, values, webhook.certificates)
        await run_until_signalled(manager)
