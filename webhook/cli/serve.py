"""`giveway serve`: the admission webhook over TLS."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from webhook.admission.objectfiles import ObjectsError, read_objects
from webhook.kube.client import ApiError, Client, ConfigError
from webhook.policy.loading import PolicyError
from webhook.serving.cluster import Cluster, Given, Source
from webhook.serving.options import LogFormat, Options
from webhook.serving.server import Server
from webhook.serving.tls import TlsError

__all__ = ["command", "serving_options"]

_FILE = click.Path(path_type=Path)


def serving_options(function: click.decorators.FC) -> click.decorators.FC:
    """The options of every command that serves; each can be given as GIVEWAY_… in the environment."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _option(name: str, help_: str, **more: object) -> object:
    variable = f"GIVEWAY_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, envvar=variable, show_envvar=True, show_default=True, help=help_, **more)  # type: ignore[arg-type]  # click types its attributes one by one


_OPTIONS = [
    _option("--bind-address", "The address to listen on.", default="0.0.0.0"),  # noqa: S104 - called from other machines
    _option("--secure-port", "The port of /mutate and /validate; 0 takes a free one.", default=9443, type=int),
    _option("--health-port", "The plain port of /healthz, /readyz and /metrics.", default=8081, type=int),
    _option("--tls-cert-file", "The serving certificate with its chain, PEM.", required=True, type=_FILE),
    _option("--tls-private-key-file", "The certificate's private key, PEM.", required=True, type=_FILE),
    _option("--client-ca-file", "Only clients with a certificate of this CA get in.", type=_FILE),
    _option("--policies", "The directory of the policy files.", required=True, type=_FILE),
    _option("--kubeconfig", "How to reach the cluster; else KUBECONFIG, ~/.kube/config or the pod's own account."),
    _option("--objects", "PriorityClasses and Namespaces from this file, instead of a cluster.", multiple=True, type=_FILE),
    _option(
        "--shutdown-delay-duration",
        "Seconds to go on serving after SIGTERM, not ready any more, until nobody is sent here.",
        default=0.0,
        type=click.FloatRange(min=0),
    ),
    _option("--log-format", "How a log line looks.", default="json", type=click.Choice(["json", "text"])),
]


@click.command()
@serving_options
def command(
    bind_address: str,
    secure_port: int,
    health_port: int,
    tls_cert_file: Path,
    tls_private_key_file: Path,
    client_ca_file: Path | None,
    policies: Path,
    kubeconfig: str | None,
    objects: tuple[Path, ...],
    shutdown_delay_duration: float,
    log_format: LogFormat,
) -> None:
    """Serve the admission webhook over TLS until SIGTERM or SIGINT."""
    options = Options(
        bind_address=bind_address,
        secure_port=secure_port,
        health_port=health_port,
        tls_cert_file=tls_cert_file,
        tls_private_key_file=tls_private_key_file,
        client_ca_file=client_ca_file,
        policies=policies,
        shutdown_delay=shutdown_delay_duration,
    )
    try:
        asyncio.run(_serve(options, kubeconfig, objects, log_format))
    except (ApiError, ConfigError, ObjectsError, OSError, PolicyError, TlsError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(options: Options, kubeconfig: str | None, objects: tuple[Path, ...], log_format: LogFormat) -> None:
    if objects:
        await _until_stopped(options, Given(read_objects(objects)), log_format)
        return
    async with await Client.connect(kubeconfig) as client:
        await _until_stopped(options, Cluster(client), log_format)


async def _until_stopped(options: Options, source: Source, log_format: LogFormat) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Server(options, source, sys.stdout.buffer, log_format=log_format) as server:
        await server.serve_until(stop)
