"""Commands that are coroutines, most of them about a cluster: what may fail ends them with a sentence."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import click

from webhook.kube.endpoint import ConfigError
from webhook.kube.errors import ApiError
from webhook.policy.shapes.findings import PolicyError

P = ParamSpec("P")
T = TypeVar("T")


_REFUSALS = {0: "the cluster does not answer", 401: "the cluster does not know who you are", 403: "a right is missing"}


def refusal(error: Exception) -> str:
    """What a cluster refused, or what else went wrong. A 403 of an admission webhook says no user that cannot."""
    if not isinstance(error, ApiError) or (error.status == 403 and " cannot " not in error.message):
        return str(error)
    return f"{_REFUSALS[error.status]}: {error.message or 'Unauthorized'}" if error.status in _REFUSALS else str(error)


def runs(
    *errors: type[Exception],
    says: Callable[[Any], str] = refusal,
    exit_code: int = 1,
    stopped: str | None = None,
    cleans_up: bool = False,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, T]]:
    """Make a function of a coroutine function.

    What may fail in any command, and these further `errors`, end it with what `says` makes of them and `exit_code`.

    With a text for `stopped`, Ctrl-C says it and the exit code is 130. With `cleans_up`, SIGTERM does the same: the
    coroutine is cancelled, and cleans up what it has begun.
    """
    ends: tuple[type[Exception], ...] = (ApiError, ConfigError, OSError, PolicyError, *errors)

    def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        async def until_told(*args: P.args, **kwargs: P.kwargs) -> T:
            task = asyncio.current_task()
            if cleans_up and task is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await function(*args, **kwargs)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return asyncio.run(until_told(*args, **kwargs))
            except BrokenPipeError:
                raise  # whoever read the output has gone: click ends quietly
            except ends as error:
                ended = click.ClickException(says(error))
                vars(ended)["exit_code"] = exit_code
                raise ended from error
            except (KeyboardInterrupt, asyncio.CancelledError):
                if stopped is None:
                    raise
                click.echo(stopped, err=True)
                raise SystemExit(130) from None

        return run

    return decorate
