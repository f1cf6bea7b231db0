"""`giveway reconcile`: preempt for the pods the webhook marked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.cli.running import kubeconfig_option, runs
from webhook.cli.serve import kept_policies_from, manager_options_from
from webhook.cli.targets import NameInNamespace
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
_SECONDS = {"type": click.FloatRange(min=0.1)}
_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("--leader-elect/--no-leader-elect", "Act only while holding the lease.", {"default": True}),
    ("--lease-namespace", "The namespace of the lease.", {"default": "giveway-system"}),
    ("--lease-name", "The name of the lease.", {"default": "giveway-reconciler"}),
    ("--leader-elect-lease-duration", "Seconds until others may take a silent lease.", {"default": 15.0, **_SECONDS}),
    ("--leader-elect-renew-deadline", "Seconds without renewal after which to stop.", {"default": 10.0, **_SECONDS}),
    ("--leader-elect-retry-period", "Seconds between renewals.", {"default": 2.0, **_SECONDS}),
    ("--dry-run", "Decide and report, touch nothing.", {"is_flag": True}),
    (
        "--debug-port",
        "The port of the page, /debug/queue and /debug/plans on 127.0.0.1 only; 0 takes a free one, -1 none.",
        {"default": debug.DEBUG_PORT, "type": click.IntRange(-1, 65535)},
    ),
]


def reconciler_options(function: F) -> F:
    """Add the options of a command that reconciles; each can be given as GIVEWAY_… in the environment."""
    hidden = click.option(
        "--fault-point",
        envvar="GIVEWAY_FAULT_POINT",
        type=click.Choice(FAULT_POINTS + NOTICE_FAULT_POINTS),
        hidden=True,
    )
    function = hidden(function)
    for name, help_, more in reversed(_ROWS):
        variable = "GIVEWAY_" + name.partition("/")[0].removeprefix("--").replace("-", "_").upper()
        function = click.option(name, envvar=variable, show_envvar=True, show_default=True, help=help_, **more)(
            function
        )
    return function


def add_reconciler(
    manager: Manager,
    client: Client,
    values: Mapping[str, Any],
    certificates: Callable[[], tuple[Certificate, ...]] = tuple,
) -> None:
    """Add the reconciler that a command's values ask for."""
    options = ReconcilerOptions(
        leader_elect=values["leader_elect"],
        lease_namespace=values["lease_namespace"],
        lease_name=values["lease_name"],
        lease_duration=values["leader_elect_lease_duration"],
        renew_deadline=values["leader_elect_renew_deadline"],
        retry_period=values["leader_elect_retry_period"],
        dry_run=values["dry_run"],
    )
    manager.add(
        Reconciliation(
            manager,
            client,
            options,
            debug_port=values["debug_port"],
            fault_point=values["fault_point"],
            certificates=certificates,
        )
    )


@click.command()
@kubeconfig_option
@click.option(
    "--policies",
    envvar="GIVEWAY_POLICIES",
    show_envvar=True,
    required=True,
    type=click.Path(path_type=Path),
    help="The directory of the policy files.",
)
@click.option(
    "--kept-policies",
    envvar="GIVEWAY_KEPT_POLICIES",
    show_envvar=True,
    type=NameInNamespace(),
    help="NAMESPACE/NAME of the ConfigMap in which the webhook keeps the policies in force: they are followed.",
)
@click.option(
    "--allow-removal",
    envvar="GIVEWAY_ALLOW_REMOVAL",
    show_envvar=True,
    is_flag=True,
    help="Without --kept-policies: take policies into use that give up rules or rights in force.",
)
@click.option(
    "--bind-address",
    envvar="GIVEWAY_BIND_ADDRESS",
    show_envvar=True,
    default="::",
    show_default=True,
    help="The address to listen on; :: is every one, IPv4 and IPv6.",
)
@click.option(
    "--health-port",
    envvar="GIVEWAY_HEALTH_PORT",
    show_envvar=True,
    show_default=True,
    default=8082,
    help="The plain port of /healthz, /readyz and /metrics; 0 takes a free one.",
)
@click.option(
    "--log-format",
    envvar="GIVEWAY_LOG_FORMAT",
    show_envvar=True,
    default="json",
    show_default=True,
    type=click.Choice(["json", "text"]),
    help="How a log line looks.",
)
@reconciler_options
@runs(ApiError, ClusterError, ConfigError, OSError, PolicyError, ValueError)
async def command(*, kubeconfig: str | None, **values: Any) -> None:
    """Preempt for the pods the webhook marked, next to a stock kube-scheduler, until SIGTERM or SIGINT."""
    async with await Client.connect(kubeconfig) as client:
        options, kept = manager_options_from(values), kept_policies_from(values, client)
        manager = Manager(options, sys.stdout.buffer, kept=kept, judge=False)
        add_reconciler(manager, client, values)
        await run_until_signalled(manager)
