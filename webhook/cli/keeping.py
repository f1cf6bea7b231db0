"""The options by which a server keeps its webhook configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.cli.targets import target_from, target_options
from webhook.registration.keeper import KeeperSettings

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
        "--static-entries",
        "An administrator applies the entries of the configurations: write none, and look whether they are in force.",
        {"is_flag": True},
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


def keeper_settings_from(values: Mapping[str, Any]) -> KeeperSettings | None:
    """Which configurations are kept or looked at, by a command's values; None if none are."""
    if values["webhook_configuration"] is None and not values["static_entries"]:
        return None
    if values["webhook_configuration"] is not None and values["static_entries"]:
        raise click.UsageError("--webhook-configuration has the server write the entries; --static-entries does not")
    return KeeperSettings(
        name=values["webhook_configuration"] or "",
        target=target_from(values),
        deployment=values["deployment"],
        owns_trust=values["sync_ca_bundle"],
        period=values["sync_period"],
    )
