"""The options that say where the API server sends its reviews, shared by the commands that register webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from webhook.registration.entries import WebhookTarget

F = TypeVar("F", bound=Callable[..., Any])


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


_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "--service",
        "The Service through which the API server reaches the webhook; its namespace is giveway's own.",
        {"type": NameInNamespace(), "default": "giveway-system/giveway-webhook"},
    ),
    ("--service-port", "The Service's port.", {"type": click.IntRange(1, 65535), "default": 443}),
    ("--url", "Where the webhook is reached if not through a Service: https://HOST:PORT.", {"type": WebhookUrl()}),
    (
        "--failure-policy",
        "What happens to pods and PriorityClasses if no replica answers.",
        {"type": click.Choice(["Fail", "Ignore"]), "default": "Fail"},
    ),
    (
        "--priority-plugin-off",
        "The API server runs without its Priority plugin: resolve pods of kube-system and incomplete updates as well.",
        {"is_flag": True},
    ),
]


def reconciler_option(function: F) -> F:
    """Add the option that says who the reconciler is."""
    return click.option(
        "--reconciler-service-account",
        envvar="GIVEWAY_RECONCILER_SERVICE_ACCOUNT",
        show_envvar=True,
        type=NameInNamespace(),
        default="giveway-system/giveway-reconciler",
        show_default=True,
        help="The reconciler's service account: on pods that exist only it writes giveway's own annotations.",
    )(function)


def reconciler_from(values: Mapping[str, Any]) -> str:
    """The user name of the reconciler among a command's values: that of `reconciler_user`, if it has that one."""
    if user := values.get("reconciler_user"):
        return str(user)
    namespace, name = values["reconciler_service_account"]
    return f"system:serviceaccount:{namespace}:{name}"


def target_options(function: F) -> F:
    """Add the options; each can be given as GIVEWAY_… in the environment."""
    for name, help_, more in reversed(_ROWS):
        variable = f"GIVEWAY_{name.removeprefix('--').replace('-', '_').upper()}"
        option = click.option(name, envvar=variable, show_envvar=True, show_default=True, help=help_, **more)
        function = option(function)
    return function


def target_from(values: Mapping[str, Any]) -> WebhookTarget:
    """The target among a command's values."""
    namespace, service = values["service"]
    return WebhookTarget(
        namespace=namespace,
        service=service,
        port=values["service_port"],
        url=values["url"],
        failure_policy=values["failure_policy"],
        reconciler=reconciler_from(values),
        priority_plugin=not values["priority_plugin_off"],
    )
