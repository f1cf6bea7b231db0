"""What the commands that look at a running cluster share: their options, exit codes and progress display."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from webhook.inspection.sources import NoPoliciesError
from webhook.kube.client import ApiError, ConfigError
from webhook.policy.shapes.findings import PolicyError

__all__ = ["FOUND", "INCOMPLETE", "inspection_options", "progress_display", "run_inspection"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

FOUND, INCOMPLETE = 1, 2
"""Exit codes: something was found; not everything could be looked at, or nothing at all."""

_ROWS: list[tuple[list[str], dict[str, Any]]] = [
    (["--kubeconfig"], {"envvar": "GIVEWAY_KUBECONFIG", "show_envvar": True, "help": "How to reach the cluster."}),
    (
        ["--policies"],
        {
            "envvar": "GIVEWAY_POLICIES",
            "show_envvar": True,
            "type": click.Path(path_type=Path, exists=True),
            "help": "A directory of policy files. By default: the policies in force in the cluster.",
        },
    ),
    (
        ["-n", "--namespace"],
        {
            "default": "giveway-system",
            "show_default": True,
            "help": "The namespace that giveway runs in, or will run in.",
        },
    ),
    (
        ["--format", "layout"],
        {
            "type": click.Choice(["text", "json"]),
            "default": "text",
            "show_default": True,
            "help": "For people or for programs.",
        },
    ),
]


def inspection_options(function: F) -> F:
    """Add the options."""
    for names, more in reversed(_ROWS):
        function = click.option(*names, **more)(function)
    return function


class _NotInspectedError(click.ClickException):
    """The cluster could not be looked at."""

    exit_code = INCOMPLETE


def run_inspection(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. What keeps it from looking at the cluster ends the command with INCOMPLETE and a sentence.

    SIGTERM ends it as Ctrl-C does: what it has begun is cleaned up first.
    """
    try:
        return asyncio.run(_until_told(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("stopped before the end", err=True)
        raise SystemExit(130) from None
    except ApiError as error:
        raise _NotInspectedError(_explained(error)) from error
    except (ConfigError, NoPoliciesError, OSError, PolicyError) as error:
        raise _NotInspectedError(str(error)) from error


async def _until_told(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _explained(error: ApiError) -> str:
    match error.status:
        case 401:
            return f"the cluster does not know who you are: {error.message or 'Unauthorized'}"
        case 403:
            return f"a right is missing: {error.message}"
        case 0:
            return f"the cluster does not answer: {error.message}"
    return str(error)


@contextmanager
def progress_display(what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on standard error if that is a terminal; a function that shows what was read, and how far."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - only if it is shown
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(label: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{what} {label}", completed=done, total=total)

        yield show
