"""`giveway reconcile`: preempt for the pods the webhook marked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from webhook.cli.options import PROCESS, options
from webhook.cli.running import runs
from webhook.cli.serve import kept_policies_from, manager_options_from
from webhook.component_base.own_names import RECONCILER
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError
from webhook.manager.manager import Manager, run_until_signalled
from webhook.manager.reconciler_component import Reconciliation
from webhook.page.model import Certificate
from webhook.policy.shapes.findings import PolicyError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler import debug
from webhook.reconciler.evict.executor import FAULT_POINTS, NOTICE_FAULT_POINTS
from webhook.reconciler.service import ReconcilerOptions

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--dry-run", envvar="GIVEWAY_DRY_RUN", show_envvar=True, is_flag=True, help="Decide and report, touch nothing."
    ),
    click.option(
        "--debug-port",
        envvar="GIVEWAY_DEBUG_PORT",
        show_envvar=True,
        default=debug.DEBUG_PORT,
        show_default=True,
        type=click.IntRange(-1, 65535),
        help="The port of the page, /debug/queue and /debug/plans on 127.0.0.1 only; 0 takes a free one, -1 none.",
    ),
    click.option(
        "--fault-point",
        envvar="GIVEWAY_FAULT_POINT",
        type=click.Choice(FAULT_POINTS + NOTICE_FAULT_POINTS),
        hidden=True,
    ),
)


def reconciler_options(function: F) -> F:
    """Add the options of a command that reconciles."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def add_reconciler(
    manager: Manager,
    client: Client,
    values: Mapping[str, Any],
    certificates: Callable[[], tuple[Certificate, ...]] = tuple,
) -> None:
    """Add the reconciler that a command's values ask for."""
    settings = ReconcilerOptions(
        lease_namespace=values["system_namespace"], lease_name=RECONCILER, dry_run=values["dry_run"]
    )
    port, fault_point = values["debug_port"], values["fault_point"]
    manager.add(
        Reconciliation(manager, client, settings, debug_port=port, fault_point=fault_point, certificates=certificates)
    )


@click.command()
@options(*PROCESS, "kept-policies", health_port={"default": 8082})
@reconciler_options
@runs(ApiError, ClusterError, ConfigError, OSError, PolicyError, ValueError)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Preempt for the pods the webhook marked, next to a stock kube-scheduler, until SIGTERM or SIGINT.

    The policies are those that the webhook keeps in the cluster; those of the directory count as long as it keeps none.
    """
    async with await Client.connect(kubeconfig) as client:
        kept = kept_policies_from(values, client)
        manager = Manager(manager_options_from(values), sys.stdout.buffer, kept=kept, judge=False)
        add_reconciler(manager, client, values)
        await run_until_signalled(manager)
