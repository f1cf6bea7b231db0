"""`giveway reconcile`: preempt for the pods the webhook marked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from webhook.cli.options import PROCESS, options
from webhook.cli.running import runs
from webhook.component_base.own_names import RECONCILER as LEASE
from webhook.kube.client import Client
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.manager import Manager, ManagerOptions, run_until_signalled
from webhook.manager.reconciler_component import Reconciliation
from webhook.page.model import Certificate
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler.service import ReconcilerOptions

RECONCILER = ("dry-run", "debug-port")


def add_reconciler(
    manager: Manager,
    client: Client,
    values: Mapping[str, Any],
    certificates: Callable[[], tuple[Certificate, ...]] = tuple,
) -> None:
    """Add the reconciler that a command's values ask for."""
    namespace, dry_run = values["system_namespace"], values["dry_run"]
    settings = ReconcilerOptions(lease_namespace=namespace, lease_name=LEASE, dry_run=dry_run)
    manager.add(Reconciliation(manager, client, settings, debug_port=values["debug_port"], certificates=certificates))


@click.command()
@options(*PROCESS, *RECONCILER, "kept-policies", health_port={"default": 8082})
@runs(ClusterError, ValueError)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Preempt for the pods the webhook marked, next to a stock kube-scheduler, until SIGTERM or SIGINT.

    The policies are those that the webhook keeps in the cluster; those of the directory count as long as it keeps none.
    """
    async with await Client.connect(kubeconfig) as client:
        kept = KeptPolicies(client, values["system_namespace"])
        manager = Manager(msgspec.convert(values, ManagerOptions), sys.stdout.buffer, kept=kept, judge=False)
        add_reconciler(manager, client, values)
        await run_until_signalled(manager)
