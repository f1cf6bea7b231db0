"""`giveway cluster`: a control plane in this process, for trying and testing."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import click

from webhook.cli.running import runs
from webhook.clusters.embedded.admission_chain.chain import PLUGINS
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS

_PATH = click.Path(path_type=Path)


def _listed(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Names given one by one or separated by commas."""
    del context, parameter
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _services(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    del context, parameter
    addresses = {}
    for value in values:
        service, equals, address = value.partition("=")
        if not equals or "/" not in service or ":" not in service or ":" not in address:
            raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME:PORT=HOST:PORT")
        addresses[service] = address
    return addresses


@click.command("cluster")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(min=0), help="Nodes to start with.")
@click.option("--cpu", default="8", show_default=True, help="CPUs of each node.")
@click.option("--memory", default="32Gi", show_default=True, help="Memory of each node.")
@click.option("--port", default=0, help="The API server's port on 127.0.0.1; 0 takes a free one.")
@click.option("--kubeconfig", type=_PATH, help="Where to write the kubeconfig; else into a temporary directory.")
@click.option(
    "--disable-admission-plugins", multiple=True, callback=_listed, metavar="NAME", help=f"Any of {', '.join(PLUGINS)}."
)
@click.option(
    "--disable-stand-in", multiple=True, callback=_listed, metavar="NAME", help=f"Any of {', '.join(STAND_INS)}."
)
@click.option(
    "--service",
    multiple=True,
    callback=_services,
    metavar="NS/NAME:PORT=HOST:PORT",
    help="Where webhooks that name this service are called.",
)
@click.option("--termination-seconds", default=1.0, show_default=True, help="How long a pod takes to end.")
@runs(OSError, ValueError)
async def command(kubeconfig: Path | None, **options: Any) -> None:
    """Start a control plane that kubectl can talk to, and stay until SIGINT or SIGTERM.

    It runs no containers: pods are said to run. Its state ends with the process.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    cluster = EmbeddedCluster(
        nodes=options["nodes"],
        cpu=options["cpu"],
        memory=options["memory"],
        port=options["port"],
        disabled_plugins=options["disable_admission_plugins"],
        without=options["disable_stand_in"],
        services=options["service"],
        termination_seconds=options["termination_seconds"],
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with cluster:
        path = cluster.kubeconfig
        if kubeconfig is not None:
            path = cluster.write_kubeconfig("admin", cluster.token, kubeconfig)
        click.echo(f"export KUBECONFIG={path.absolute()}")
        click.echo(f"# the API server is at {cluster.url}; end with Ctrl-C", err=True)
        await stop.wait()
