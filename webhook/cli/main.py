"""The `giveway` command: a table of sub-commands, each imported only when it is called."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec

import click

from webhook.cli.called import called_as

__all__ = ["main", "run"]

COMMANDS = {
    "serve": "serve the admission webhook over TLS",
    "reconcile": "preempt for the pods the webhook marked",
    "run": "serve and reconcile in one process",
    "review": "say what the policies would of manifests, or answer AdmissionReviews, from files",
    "lint": "check policy files",
    "test": "run the declarative tests beside the policies",
    "schema": "print the JSON schema of the policy files",
    "decide": "decide preemption for clusters given as JSON lines",
    "explain": "say why a live pod is pending and what preemption would do",
    "install": "install giveway in a cluster, or upgrade it",
    "uninstall": "take giveway out of a cluster",
    "scan": "say what of a running cluster the policies would refuse",
    "doctor": "say what in a cluster gets round the policies or is broken, and what to do",
    "snapshot": "write a live cluster to a file, without anything secret",
    "simulate": "say what policies, classes, workloads or lost nodes would do to whom",
    "compile": "turn policies into the API server's own admission policies",
    "configurations": "print the webhook configurations that `serve` keeps",
    "certs": "issue, show and rotate the webhook's certificates",
    "cluster": "start a control plane in one process, for trying and testing",
    "demo": "show the six scenarios on an embedded cluster",
}
"""Sub-command to its one-line help. `webhook/cli/NAME.py` holds the click command `command`."""


class LazyGroup(click.Group):
    """Imports a sub-command's module when it runs, so that `giveway lint` never pays for aiohttp."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The sub-commands in the order of their table."""
        del ctx
        return [name for name in COMMANDS if _is_installed(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command of that name, or None if there is none. Raises UsageError if it is not part of the image."""
        if cmd_name not in COMMANDS:
            return None
        if not _is_installed(cmd_name):
            raise click.UsageError(
                f"{cmd_name} is for trying, testing and installing, and not part of this image; run it from a checkout",
                ctx,
            )
        command: click.Command = importlib.import_module(f"webhook.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the sub-commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _is_installed(name: str) -> bool:
    """Whether the sub-command is there; .dockerignore leaves some out of the image."""
    return find_spec(f"webhook.cli.{name}") is not None


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="giveway", prog_name="giveway")
def main() -> None:
    """Priority and preemption policy for Kubernetes."""


def run() -> None:
    """Run the command under the name by which it was called; the entry point of both console scripts."""
    main(prog_name=called_as(sys.argv[0]))
