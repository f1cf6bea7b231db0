"""The table of the options that commands share: flags, type, default and help of each stand here once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
_EXISTING = click.Path(path_type=Path, exists=True)


class NameInNamespace(click.ParamType[tuple[str, str]]):
    """`NAMESPACE/NAME`."""

    name = "namespace/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split it."""
        if isinstance(value, tuple):
            return value
        namespace, slash, name = str(value).partition("/")
        if not (namespace and slash and name) or "/" in name:
            self.fail(f"{value!r} is not of the form NAMESPACE/NAME", param, ctx)
        return namespace, name


class WebhookUrl(click.ParamType[str]):
    """Where the API server reaches a webhook without a Service, within what it accepts (`ValidateWebhookURL`)."""

    name = "https://host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        text = str(value)
        try:
            parts = urlsplit(text)
            usable = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or not text.startswith("https://") or any(char.isspace() or char in "@?#" for char in text):
            self.fail(
                f"{value!r} is not of the form https://HOST:PORT; the API server calls webhooks by https only, and"
                " takes no user, query or fragment",
                param,
                ctx,
            )
        return text.rstrip("/")


def _from_environment(flag: str, help_: str, **more: Any) -> tuple[list[str], dict[str, Any]]:
    """An option that can also be given as GIVEWAY_… in the environment."""
    variable = f"GIVEWAY_{flag.removeprefix('--').replace('-', '_').upper()}"
    return [flag], {"envvar": variable, "show_envvar": True, "show_default": True, "help": help_, **more}


_ROWS: list[tuple[list[str], dict[str, Any]]] = [
    # Of every command about a cluster
    _from_environment(
        "--kubeconfig", "How to reach the cluster. By default: KUBECONFIG, ~/.kube/config, or the pod's own account."
    ),
    _from_environment("--system-namespace", "The namespace that giveway runs in.", default=SYSTEM_NAMESPACE),
    _from_environment("--policies", "The directory of the policy files.", type=_PATH, required=True),
    # Of every process that stays
    _from_environment("--bind-address", "The address to listen on; :: is every one, IPv4 and IPv6.", default="::"),
    _from_environment(
        "--health-port", "The plain port of /healthz, /readyz and /metrics; 0 takes a free one.", default=8081
    ),
    # Of the webhook
    _from_environment("--secure-port", "The port of /mutate and /validate; 0 takes a free one.", default=9443),
    _from_environment("--tls-cert-file", "The serving certificate with its chain, PEM.", required=True, type=_PATH),
    _from_environment("--tls-private-key-file", "The certificate's private key, PEM.", required=True, type=_PATH),
    _from_environment("--client-ca-file", "Only clients with a certificate of this CA get in.", type=_PATH),
    _from_environment(
        "--entries",
        "Who writes the entries of the webhook configurations: keep: this server; static: an administrator, and it"
        " looks whether they are in force. Either way the policies in force are kept in the cluster. none: nobody.",
        type=click.Choice([KEEP, STATIC, NONE]),
        default=NONE,
    ),
    _from_environment(
        "--ca-file", "PEM file of what the API server is to trust, for entries that have no caBundle yet.", type=_PATH
    ),
    _from_environment(
        "--sync-ca-bundle",
        "Keep every caBundle equal to --ca-file, as always with --url: nobody else renews it.",
        is_flag=True,
    ),
    _from_environment(
        "--url", "Where the webhook is reached if not through its Service: https://HOST:PORT.", type=WebhookUrl()
    ),
    _from_environment(
        "--failure-policy",
        "What happens to pods and PriorityClasses if no replica answers.",
        type=click.Choice(["Fail", "Ignore"]),
        default="Fail",
    ),
    _from_environment(
        "--priority-plugin-off",
        "The API server runs without its Priority plugin: resolve pods of kube-system and incomplete updates as well.",
        is_flag=True,
    ),
    # Of the reconciler
    _from_environment("--dry-run", "Decide and report, touch nothing.", is_flag=True),
    _from_environment(
        "--debug-port",
        "The port of the page, /debug/queue and /debug/plans on 127.0.0.1 only; 0 takes a free one, -1 none.",
        type=click.IntRange(-1, 65535),
    ),
    # Earlier spellings of what --entries and --system-namespace say, which scripts still give
    _from_environment("--webhook-configuration", "", hidden=True),
    _from_environment("--kept-policies", "", hidden=True, expose_value=False),
    _from_environment("--allow-removal", "", hidden=True, is_flag=True),
    # Of certificates
    (
        ["directory", "--dir"],
        {"type": click.Path(path_type=Path, file_okay=False), "help": "The directory of the PEM files."},
    ),
    (["--secret"], {"type": NameInNamespace(), "help": "The Secret that keeps them."}),
    # Of installing
    (
        ["--wait"],
        {
            "type": click.FloatRange(min=0),
            "default": 300,
            "show_default": True,
            "help": "Seconds to wait until the webhook has answered; 0 does not wait.",
        },
    ),
    # Of commands that judge and tell
    (
        ["--objects"],
        {
            "multiple": True,
            "type": _EXISTING,
            "help": "A file or directory of objects of the cluster, YAML or JSON: PriorityClasses, and Namespaces."
            " May be repeated.",
        },
    ),
    (["-n", "--namespace"], {"default": "default", "show_default": True, "help": "Of what is named without one."}),
]
"""The options in the order of their groups."""
_TABLE = {flags[-1].removeprefix("--"): (flags, more) for flags, more in _ROWS}

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
            flags, more = _TABLE[name]
            function = click.option(*flags, **{**more, **changed.get(name.replace("-", "_"), {})})(function)
        return function

    return add


IN_FORCE_BY_DEFAULT = {
    "type": _EXISTING,
    "required": False,
    "help": "A directory of policy files. By default: the policies in force in the cluster.",
}
"""How `--policies` differs for commands that can read them from the cluster."""


def format_option(*layouts: str, help_: str = "For people or for programs.") -> Callable[[F], F]:
    """Add `--format`; the first layout is the default."""
    return click.option(
        "--format", "layout", type=click.Choice(layouts), default=layouts[0], show_default=True, help=help_
    )


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
