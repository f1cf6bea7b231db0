"""What `install` and `uninstall` share: how the cluster is reached, how errors are told, how waiting is shown."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from webhook.installation.applier import TooOldError, UnknownKindError
from webhook.kube.client import ApiError, ConfigError

__all__ = ["kubeconfig_option", "run_installation", "shown_progress"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def kubeconfig_option(function: F) -> F:
    """Add `--kubeconfig`."""
    return click.option(
        "--kubeconfig", envvar="GIVEWAY_KUBECONFIG", show_envvar=True, help="How to reach the cluster."
    )(function)


def run_installation(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what the cluster refuses ends the command with a sentence."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        click.echo("\nstopped; run the same command again to go on", err=True)
        raise SystemExit(130) from None
    except ApiError as error:
        missing = error.status == 403 and " cannot " in error.message
        text = f"a right is missing: {error.message}" if missing else str(error)
        raise click.ClickException(f"{text}. Run the same command again once that is mended") from error
    except (ConfigError, OSError, TooOldError, UnknownKindError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def shown_progress(what: str) -> Iterator[Callable[[str], None]]:
    """A line that turns and changes on a terminal; elsewhere a line for each change, on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - only if it is shown

        from webhook.cli.literal import literal  # noqa: PLC0415

        with Console(stderr=True).status(what) as status:
            yield lambda text: status.update(f"{what}: {literal(text)}" if text else what)
        return
    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text and text != last:
            click.echo(f"{what}: {text}", err=True)
        last = text

    yield show
