"""The options by which a server keeps its webhook configurations, and the keeper they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.cli.targets import target_from, target_options
from webhook.kube.client import Client
from webhook.registration.keeper import Keeper, Settings, Situation
from webhook.serving.cluster import Cluster
from webhook.serving.server import Server

__all__ = ["keep_configurations", "keeping_options"]

F = TypeVar("F", bound=Callable[..., Any])

_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "--webhook-configuration",
        "Keep the Mutating- and the ValidatingWebhookConfiguration of this name, if they exist.",
        {},
    ),
    (
        "--ca-file",
        "PEM file of what the API server is to trust, for entries that have no caBundle yet.",
        {"type": click.Path(path_type=Path)},
    ),
    (
        "--sync-ca-bundle",
        "Keep every caBundle equal to --ca-file, as always with --url: nobody else renews it.",
        {"is_flag": True},
    ),
    (
        "--sync-period",
        "Seconds between two looks at the configurations.",
        {"type": click.FloatRange(min=0.1), "default": 10.0, "show_default": True},
    ),
    (
        "--deployment",
        "The server's own Deployment; if it is gone when the server ends, the configurations are emptied.",
        {},
    ),
]


def keeping_options(function: F) -> F:
    """Add the options; each can be given as GIVEWAY_… in the environment."""
    function = target_options(function)
    for name, help_, more in reversed(_ROWS):
        variable = f"GIVEWAY_{name.removeprefix('--').replace('-', '_').upper()}"
        function = click.option(name, envvar=variable, show_envvar=True, help=help_, **more)(function)
    return function


def keep_configurations(server: Server, source: Cluster, client: Client, values: Mapping[str, Any]) -> None:
    """Have the server keep the configurations that a command's values name, if they name any."""
    if values["webhook_configuration"] is None:
        return
    target, ca_file = target_from(values), values["ca_file"]

    def terminating() -> bool:
        found = source.namespace(target.namespace)
        return found is not None and found.metadata.deletion_timestamp is not None

    situation = Situation(
        policies=lambda: server.policies,
        ready=lambda: all(check.ok for check in server.checks()),
        trust=lambda: ca_file.read_bytes() if ca_file else b"",
        terminating=terminating,
    )
    settings = Settings(
        name=values["webhook_configuration"],
        target=target,
        deployment=values["deployment"],
        owns_trust=values["sync_ca_bundle"],
        period=values["sync_period"],
    )
    keeper = Keeper(client, settings, situation)
    source.on_namespace(target.namespace, keeper.wake)
    server.keep(keeper)
