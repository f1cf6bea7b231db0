"""The `giveway` command: a table of sub-commands, each imported only when it is called."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import PurePath

import click

GROUPS = {
    "Write policies": {
        "lint": "Check policy files.",
        "test": "Run the declarative tests beside the policies.",
        "review": "Say what the policies would of manifests, or answer AdmissionReviews, from files.",
        "schema": "Print the JSON schema of policy files, or of scenarios of `simulate`.",
        "compile": "Turn policies into the API server's own admission policies, or into entries of the webhook.",
    },
    "Look at a cluster": {
        "doctor": "Say what in a cluster gets round the policies or is broken, and what to do.",
        "scan": "Say what of a running cluster the policies would refuse.",
        "explain": "Say why a live pod is pending and what preemption would do.",
    },
    "Think ahead": {
        "snapshot": "Write a live cluster to a file, without anything secret.",
        "simulate": "Say what policies, classes, workloads or lost nodes would do to whom.",
        "decide": "Decide preemption for clusters given as JSON lines.",
    },
    "Install and run": {
        "install": "Install giveway in a cluster, or upgrade it.",
        "uninstall": "Take giveway out of a cluster.",
        "certs": "Issue, show and rotate the webhook's certificates.",
        "serve": "Serve the admission webhook over TLS.",
        "reconcile": "Preempt for the pods the webhook marked.",
        "run": "Serve and reconcile in one process.",
    },
    "Try it": {
        "cluster": "Start a control plane in one process, for trying and testing.",
        "demo": "Show the six scenarios on an embedded cluster.",
    },
}
"""Sub-commands by what they are for, each with its help in one sentence."""
COMMANDS = {name: help_ for group in GROUPS.values() for name, help_ in group.items()}
"""Sub-command to its help. `webhook/cli/NAME.py` holds the click command `command`."""


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
        """List the sub-commands by group without importing them; all groups have one column of names."""
        installed = self.list_commands(ctx)
        widest = max(map(len, installed), default=0)
        for title, commands in GROUPS.items():
            rows = [(name.ljust(widest), help_) for name, help_ in commands.items() if name in installed]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _is_installed(name: str) -> bool:
    """Whether the sub-command is there; .dockerignore leaves some out of the image."""
    return find_spec(f"webhook.cli.{name}") is not None


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(package_name="giveway", prog_name="giveway")
def main() -> None:
    """Priority and preemption policy for Kubernetes."""


def called_as(program: str) -> str:
    """What people typed, by the path of the program that runs."""
    return "kubectl giveway" if PurePath(program).name.removesuffix(".exe") == "kubectl-giveway" else "giveway"


def run() -> None:
    """Run the command under the name by which it was called; the entry point of both console scripts."""
    main(prog_name=called_as(sys.argv[0]))
