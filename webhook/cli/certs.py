"""`giveway certs`: issue, show and rotate the webhook's certificates, as files or in a Secret."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from cryptography.hazmat.primitives import hashes

from certs.authority import names_of, service_names
from certs.bundle import SERVED, Bundle, BundleError
from certs.client import write_client_files
from certs.files import maintain_files, read_bundle, write_files
from certs.rotation import SETTLE, CertificateSettings
from certs.secret import maintain, read_secret
from webhook.cli.options import name_in_namespace, options
from webhook.cli.running import runs
from webhook.component_base.logs import LogWriter, log_records
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.client import Client
from webhook.kube.errors import ApiError

log = logging.getLogger(__name__)

_DAYS = click.FloatRange(min=0, max=36_500, min_open=True)
"""How long a certificate may be valid: a certificate names no date after year 9999."""
_PLACES = itemgetter("directory", "secret", "service", "configurations")
_PERIOD = 60.0
"""Seconds between two looks at what is due."""


def _now() -> datetime:
    return datetime.now(UTC)


@click.group()
def command() -> None:
    """Issue, show and rotate the webhook's certificates.

    With --dir they are PEM files, with --secret they are kept in a Secret; with both, the Secret decides and the
    directory gets what a server needs of it.
    """


@command.command()
@options("dir", "secret", "kubeconfig")
@click.option(
    "--webhook-config",
    "configurations",
    multiple=True,
    help="A webhook configuration that is to trust them. May be repeated.",
)
@click.option(
    "--service",
    type=name_in_namespace,
    metavar="NAMESPACE/NAME",
    help="The Service through which the API server reaches the webhook.",
)
@click.option("--name", "names", multiple=True, help="A further DNS name or IP address. May be repeated.")
@click.option("--days", type=_DAYS, default=90, help="How long serving certificates are valid, in days.")
@click.option("--ca-days", type=_DAYS, default=3650, help="How long authorities are valid, in days.")
@click.option("--keep", is_flag=True, help="Stay, and renew whatever falls due.")
@click.option(
    "--rotate",
    is_flag=False,
    flag_value="serving",
    type=click.Choice(["serving", "ca"]),
    help="Renew the serving certificate now, due or not; with ca begin with a new authority.",
)
@click.option("--log", "logs", is_flag=True, help="Write a log, as the servers do, instead of a table; as with --keep.")
@runs(BundleError)
async def issue(*, keep: bool, rotate: str | None, logs: bool, **values: Any) -> None:
    """Make the certificates, or renew those that are due.

    A new authority is trusted first; the serving certificate it signs follows after ten minutes, by `--keep` or
    another `--rotate`.
    """
    directory, secret, service, configurations = _PLACES(values)
    names = (*(service_names(service[1], service[0]) if service else ()), *values["names"])
    _need_one(directory, secret)
    for wrong, text in (
        (keep and rotate, "--keep renews what falls due; --rotate renews once, and ends"),
        (not names, "for which names? Give --service NAMESPACE/NAME, --name NAME or both"),
        (configurations and not secret, "--webhook-config goes with --secret: the certificates must be there"),
        (keep and not secret, "--keep goes with --secret; for files, call `giveway certs issue` now and then"),
    ):
        if wrong:
            raise click.UsageError(text)
    try:
        settings = CertificateSettings(names, timedelta(days=values["days"]), timedelta(days=values["ca_days"]))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rotations = {"rotate": rotate == "serving", "rotate_authority": rotate == "ca"}
    with log_records(LogWriter(sys.stdout.buffer)) if keep or logs else nullcontext():
        if not secret:
            bundle = maintain_files(directory, settings, _now(), **rotations)
        else:
            async with await Client.connect(values["kubeconfig"]) as client:

                async def renew(**rotations: bool) -> Bundle:
                    bundle = await maintain(client, secret, configurations, settings, _now, **rotations)
                    if directory is not None:
                        files = bundle.files()
                        write_files(directory, {name: files[name] for name in SERVED})
                    return bundle

                if keep:
                    # Until SIGTERM, whatever goes wrong: beside a server, ending would take that out of service
                    keeping = asyncio.ensure_future(_keep(renew))
                    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, keeping.cancel)
                    with suppress(asyncio.CancelledError):
                        await keeping
                    return
                bundle = await renew(**rotations)
        if logs:
            log.info("serving certificate %s for %s", _validity(bundle.serving.certificate), ", ".join(names))
        else:
            _describe(bundle)


@command.command()
@options("dir", "secret", "kubeconfig")
@runs(BundleError)
async def show(directory: Path | None, secret: tuple[str, str] | None, kubeconfig: str | None) -> None:
    """Show what is served, what is trusted, and until when."""
    _need_one(directory, secret)
    bundle = read_bundle(directory) if directory and not secret else None
    if secret:
        async with await Client.connect(kubeconfig) as client:
            bundle = await read_secret(client, secret)
    if bundle is None:
        raise click.ClickException("there are no certificates yet; `giveway certs issue` makes them")
    _describe(bundle)


@command.command()
@options("dir", "system-namespace", "url", dir={"required": True, "help": "A new directory for the files."})
@click.option("--days", type=_DAYS, default=3650, help="How long the certificate is valid, in days.")
@runs()
async def client(directory: Path, system_namespace: str, url: str | None, days: float) -> None:
    """Make what an API server needs to show the webhook a client certificate.

    The files say where they go. Put ca.crt into a Secret for `giveway serve --client-ca-file` when every API server
    has the others.
    """
    host = urlsplit(url).netloc if url else f"{WEBHOOK}.{system_namespace}.svc"
    for path in write_client_files(directory, host, _now(), timedelta(days=days)):
        click.echo(path)


async def _keep(renew: Callable[[], Awaitable[Bundle]]) -> None:
    """Look for what is due in Secret, `caBundle` and directory, without end. Errors are logged."""
    while True:
        try:
            await renew()
        except (ApiError, BundleError, OSError) as error:
            log.error("certificates: %s; next try in about %d s", error, _PERIOD)  # noqa: TRY400 - it says all there is
        except Exception:
            log.exception("certificates: unexpected error; next try in about %d s", _PERIOD)
        await asyncio.sleep(_PERIOD * random.uniform(0.8, 1.2))  # noqa: S311 - spreads replicas


def _need_one(directory: Path | None, secret: tuple[str, str] | None) -> None:
    if not directory and not secret:
        raise click.UsageError("where? Give --dir DIR, --secret NAMESPACE/NAME or both")


def _describe(bundle: Bundle) -> None:
    serving = bundle.serving.certificate
    print(f"serving   {_validity(serving)}")
    print(f"          for {', '.join(sorted(names_of(serving)))}")
    for authority in bundle.authorities:
        signs = "signs what is served" if authority == bundle.issuer() else "trusted"
        print(f"authority {_validity(authority)}, {signs}")
    if bundle.issuer() != bundle.authority.certificate:
        print(f"the newest authority signs from {SETTLE.seconds // 60} minutes after its beginning on")


def _validity(certificate: Any) -> str:
    until = certificate.not_valid_after_utc
    left = (until - _now()) / timedelta(days=1)
    rest = f"{left:.1f} days left" if left > 0 else "EXPIRED"
    return f"{certificate.fingerprint(hashes.SHA256()).hex()[:16]}  until {until:%Y-%m-%d %H:%M} UTC ({rest})"
