"""`giveway uninstall`: take giveway out of the cluster and leave nothing behind."""

from __future__ import annotations

import signal
import sys

import click

from webhook.cli.install import installs, rendered_base
from webhook.cli.options import options
from webhook.installation.applier import ObjectApplier
from webhook.installation.install import keys_to_remove, remove
from webhook.installation.kustomize import all_components
from webhook.kube.client import Client

_AFTERWARDS = """\
giveway is gone. What stays, because it is yours: PriorityClasses (those that were made while giveway managed them keep
preemptionPolicy Never, so their pods preempt nobody), labels and annotations of pods that run, and the label
giveway.dev/exempt on namespaces."""


@click.command("uninstall")
@options("kubeconfig", "system-namespace")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, in that order, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@options("wait", wait={"default": 120, "help": "Seconds to wait until everything is gone."})
@installs
async def command(*, kubeconfig: str | None, system_namespace: str, dry_run: bool, yes: bool, wait: float) -> None:
    """Take giveway out of the cluster, however it was installed, in the order in which no pod is refused.

    First the webhook configurations, then the programs; then plans and nominations are taken off pods, and everything
    else goes with its namespace. A namespace in which others run pods is kept.
    """
    # Each component by itself: one may take away what another one changes.
    alone = [[], *([component] for component in all_components())]
    rendered = [obj for added in alone for obj in rendered_base(system_namespace, added)]
    async with await Client.connect(kubeconfig) as client:
        cluster = ObjectApplier(client, system_namespace)
        keys = await keys_to_remove(cluster, rendered)
        if not keys:
            click.echo("There is nothing of giveway in this cluster.")
        if dry_run:
            for key in keys:
                click.echo(f"{key} would be deleted")
        if dry_run or not keys:
            return
        if not yes and not sys.stdin.isatty():
            raise click.UsageError(
                f"there is no terminal to ask on; --yes deletes {len(keys)} objects from {client.url}"
            )
        if not yes:
            # While the event loop waits for the answer, its own handler would only note that Ctrl-C was pressed
            handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            click.confirm(f"delete {len(keys)} objects of giveway from {client.url}?", abort=True)
            signal.signal(signal.SIGINT, handler)
        left = await remove(cluster, keys, click.echo, wait)
    if left:
        raise click.ClickException(
            f"still there after {wait:.0f} s: {', '.join(left)}. Something may hold them with a finalizer; run the"
            " same command again"
        )
    click.echo(_AFTERWARDS)
