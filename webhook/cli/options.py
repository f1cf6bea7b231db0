"""The table of the options that commands share: flags, type, default and help of each stand here once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from webhook.component_base.own_names import SYSTEM_NAMESPACE, WEBHOOK, reconciler_user
from webhook.registration.entries import WebhookTarget

F = TypeVar("F", bound=Callable[..., Any])

KEEP, STATIC, NONE = "keep", "static", "none"
"""Who writes the entries of the webhook configurations: the server, an administrator, or nobody that it knows of."""
_PATH = click.Path(path_type=Path)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_EXISTING = click.Path(path_type=Path, exists=True)


def name_in_namespace(text: str) -> tuple[str, str]:
    """Split `NAMESPACE/NAME`. Raises BadParameter."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise click.BadParameter(f"{text!r} is not of the form NAMESPACE/NAME")
    return namespace, name


def _webhook_url(text: str) -> str:
    """Where the API server reaches a webhook without a Service, within what it accepts (`ValidateWebhookURL`)."""
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.startswith("https://") or any(char.isspace() or char in "@?#" for char in text):
        raise click.BadParameter(
            f"{text!r} is not of the form https://HOST:PORT; the API server calls webhooks by https only, and takes no"
            " user, query or fragment"
        )
    return text.rstrip("/")


def _row(flag: str, help_: str, *names: str, environment: bool = True, **more: Any) -> partial[Callable[[F], F]]:
    """An option, by further `names`, too; with `environment` it can also be given as GIVEWAY_… there."""
    if environment:
        more |= {"envvar": f"GIVEWAY_{flag.removeprefix('--').replace('-', '_').upper()}", "show_envvar": True}
    return partial(click.option, flag, *names, help=help_, **more)


_ROWS = [
    # Of every command about a cluster
    _row("--kubeconfig", "How to reach the cluster. By default: KUBECONFIG, ~/.kube/config, or the pod's own account."),
    _row("--system-namespace", "The namespace that giveway runs in.", default=SYSTEM_NAMESPACE),
    _row("--policies", "The directory of the policy files.", type=_PATH, required=True),
    # Of every process that stays
    _row("--bind-address", "The address to listen on; :: is every one, IPv4 and IPv6.", default="::"),
    _row("--health-port", "The plain port of /healthz, /readyz and /metrics; 0 takes a free one.", default=8081),
    # Of the webhook
    _row("--secure-port", "The port of /mutate and /validate; 0 takes a free one.", default=9443),
    _row("--tls-cert-file", "The serving certificate with its chain, PEM.", required=True, type=_PATH),
    _row("--tls-private-key-file", "The certificate's private key, PEM.", required=True, type=_PATH),
    _row("--client-ca-file", "Only clients with a certificate of this CA get in.", type=_PATH),
    _row(
        "--entries",
        "Who writes the entries of the webhook configurations: keep: this server; static: an administrator, and it"
        " looks whether they are in force. Either way the policies in force are kept in the cluster. none: nobody.",
        type=click.Choice([KEEP, STATIC, NONE]),
        default=NONE,
    ),
    _row(
        "--ca-file", "PEM file of what the API server is to trust, for entries that have no caBundle yet.", type=_PATH
    ),
    _row(
        "--sync-ca-bundle",
        "Keep every caBundle equal to --ca-file, as always with --url: nobody else renews it.",
        is_flag=True,
    ),
    _row(
        "--url",
        "Where the webhook is reached if not through its Service.",
        type=_webhook_url,
        metavar="HTTPS://HOST:PORT",
    ),
    _row(
        "--failure-policy",
        "What happens to pods and PriorityClasses if no replica answers.",
        type=click.Choice(["Fail", "Ignore"]),
        default="Fail",
    ),
    _row(
        "--priority-plugin-off",
        "The API server runs without its Priority plugin: resolve pods of kube-system and incomplete updates as well.",
        is_flag=True,
    ),
    # Of the reconciler
    _row("--dry-run", "Decide and report, touch nothing.", is_flag=True),
    _row(
        "--debug-port",
        "The port of the page, /debug/queue and /debug/plans on 127.0.0.1 only; 0 takes a free one, -1 none.",
        type=click.IntRange(-1, 65535),
        default=6060,
    ),
    # Earlier spellings of what --entries and --system-namespace say, which scripts still give
    _row("--webhook-configuration", "", hidden=True),
    _row("--kept-policies", "", hidden=True, expose_value=False),
    _row("--allow-removal", "", hidden=True, is_flag=True),
    # Of certificates
    _row("--dir", "The directory of the PEM files.", "directory", environment=False, type=_DIRECTORY),
    _row(
        "--secret", "The Secret that keeps them.", environment=False, type=name_in_namespace, metavar="NAMESPACE/NAME"
    ),
    # Of installing
    _row(
        "--wait",
        "Seconds to wait until the webhook has answered; 0 does not wait.",
        environment=False,
        type=click.FloatRange(min=0),
        default=300,
    ),
    # Of commands that judge and tell
    _row(
        "--objects",
        "A file or directory of objects of the cluster, YAML or JSON: PriorityClasses, and Namespaces."
        " May be repeated.",
        environment=False,
        multiple=True,
        type=_EXISTING,
    ),
    _row("--namespace", "Of what is named without one.", "-n", environment=False, default="default"),
]
"""The options in the order of their groups."""
_TABLE = {row.args[0].removeprefix("--"): row for row in _ROWS}

PROCESS = ("kubeconfig", "system-namespace", "policies", "bind-address", "health-port")
ENTRIES = ("ca-file", "url", "failure-policy", "priority-plugin-off")
SERVER = (
    *("secure-port", "tls-cert-file", "tls-private-key-file", "client-ca-file", "entries", "sync-ca-bundle"),
    *(*ENTRIES, "webhook-configuration", "kept-policies", "allow-removal"),
)


def options(*names: str, **changed: Mapping[str, Any]) -> Callable[[F], F]:
    """Add options of the table, in this order; `changed` says by name what differs for this command."""

    def add(function: F) -> F:
        for name in reversed(names):
            function = _TABLE[name](**changed.get(name.replace("-", "_"), {}))(function)
        return function

    return add


def policies_option(help_: str, **more: Any) -> Callable[[F], F]:
    """Add `--policies` to a command that reads no others."""
    return click.option("--policies", type=_EXISTING, metavar="DIR", help=help_, **more)


IN_FORCE_BY_DEFAULT = {
    "type": _EXISTING,
    "required": False,
    "help": "A directory of policy files. By default: the policies in force in the cluster.",
}
"""How `--policies` differs for commands that can read them from the cluster."""


def format_option(*layouts: str, help_: str = "For people or for programs.") -> Callable[[F], F]:
    """Add `--format`; the first layout is the default."""
    return click.option("--format", "layout", type=click.Choice(layouts), default=layouts[0], help=help_)


def target_from(values: Mapping[str, Any]) -> WebhookTarget:
    """Where the API server sends reviews, by a command's values."""
    namespace = values["system_namespace"]
    return WebhookTarget(
        namespace=namespace,
        service=WEBHOOK,
        url=values["url"],
        failure_policy=values["failure_policy"],
        reconciler=values.get("reconciler") or reconciler_user(namespace),
        priority_plugin=not values["priority_plugin_off"],
    )
