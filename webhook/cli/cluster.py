"""`giveway cluster`: a control plane in this process, for trying and testing."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.cli.options import policies_option
from webhook.cli.running import runs
from webhook.clusters.embedded.admission_chain.chain import PLUGINS
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.component_base.probes import LOOPBACK, plain_port
from webhook.component_base.supervision import Supervisor
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler.debug import pages
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)


def _any_of(flag: str, name: str, known: Iterable[str]) -> Callable[[F], F]:
    """An option for names, given one by one or with commas between them."""

    def listed(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, ",".join(texts).split(","))))

    help_ = f"Any of {', '.join(known)}."
    return click.option(flag, name, multiple=True, callback=listed, metavar="NAME,…", help=help_)


def _service(text: str) -> tuple[str, str]:
    service, equals, address = text.partition("=")
    if not equals or "/" not in service or ":" not in service or ":" not in address:
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME:PORT=HOST:PORT")
    return service, address


@click.command("cluster")
@click.option("--nodes", default=3, type=click.IntRange(min=0), help="Nodes to start with.")
@click.option("--cpu", default="8", help="CPUs of each node.")
@click.option("--memory", default="32Gi", help="Memory of each node.")
@click.option("--port", default=0, help="The API server's port on 127.0.0.1; 0 takes a free one.")
@click.option("--kubeconfig", type=_PATH, help="Where to write the kubeconfig; else into a temporary directory.")
@_any_of("--disable-admission-plugins", "disabled_plugins", PLUGINS)
@_any_of("--disable-stand-in", "without", STAND_INS)
@click.option(
    "--service",
    "services",
    multiple=True,
    type=_service,
    metavar="NS/NAME:PORT=HOST:PORT",
    help="Where webhooks that name this service are called.",
)
@click.option(
    "--page",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Show priorities, pending pods, plans and decisions as a web page on this port of 127.0.0.1; 0: a free one.",
)
@policies_option("With --page: the policies by which the page tells who may be evicted.")
@click.option("--termination-seconds", default=1.0, help="How long a pod takes to end.")
@runs(ClusterError, ValueError)
async def command(
    kubeconfig: Path | None, page: int | None, policies: Path | None, services: tuple[tuple[str, str], ...], **size: Any
) -> None:
    """Start a control plane that kubectl can talk to, and stay until SIGINT or SIGTERM.

    It runs no containers: pods are said to run. Its state ends with the process.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    cluster = EmbeddedCluster(services=dict(services), **size)
    loaded = load_or_raise(policies) if policies else Policies()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with cluster:
        path = cluster.write_kubeconfig("admin", cluster.token, kubeconfig) if kubeconfig else cluster.kubeconfig
        click.echo(f"export KUBECONFIG={path.absolute()}")
        click.echo(f"# the API server is at {cluster.url}; end with Ctrl-C", err=True)
        async with _shown(cluster, page, loaded) if page is not None else nullcontext():
            await stop.wait()


@asynccontextmanager
async def _shown(cluster: EmbeddedCluster, port: int, policies: Policies) -> AsyncIterator[None]:
    """Show the cluster on a page, by a reconciler that only watches and never leads."""
    supervisor = Supervisor()
    async with cluster.client() as client:
        service = ReconcilerService(
            client, policies, ReconcilerOptions(leader_elect=False, dry_run=True), tell=lambda *_, **_fields: None
        )
        watching = asyncio.create_task(supervisor.keep("caches", service.state.run))
        try:
            async with plain_port(pages(service, port), LOOPBACK, port, option="--page") as bound:
                click.echo(f"# the page is at http://127.0.0.1:{bound}/", err=True)
                yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
