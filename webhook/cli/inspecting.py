"""What the commands that look at a running cluster share: their options, exit codes, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from webhook.cli.options import IN_FORCE_BY_DEFAULT, format_option, options
from webhook.cli.running import runs
from webhook.inspection.reading import NoPoliciesError

F = TypeVar("F", bound=Callable[..., Any])

FOUND, INCOMPLETE = 1, 2
"""Exit codes: something was found; not everything could be looked at, or nothing at all."""


def inspection_options(function: F) -> F:
    """Add the options."""
    shared = options("kubeconfig", "policies", "system-namespace", policies=IN_FORCE_BY_DEFAULT)
    return shared(format_option("text", "json")(function))


inspects = runs(NoPoliciesError, exit_code=INCOMPLETE, stopped="stopped before the end", cleans_up=True)
"""Makes a command of a coroutine function that looks at a cluster."""
