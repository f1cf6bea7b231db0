"""Asking the API server under admission webhooks."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.webhook_server import configuration
from webhook.kube.errors import ApiError
from webhook.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATION,
    POD,
    VALIDATING_WEBHOOK_CONFIGURATION,
)

PODS = POD.path("default")


PATHS = {"Mutating": MUTATING_WEBHOOK_CONFIGURATION.path(), "Validating": VALIDATING_WEBHOOK_CONFIGURATION.path()}


async def register(admin, kind: str, *hooks, name: str = "test") -> None:
    """Have these webhooks asked, by a `Mutating` or `Validating` configuration."""
    await admin.create(PATHS[kind], configuration(kind, name, *hooks))


async def refused(call) -> ApiError:
    """The error that a call ends with."""
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def denying(status=None):
    """An answer that denies."""
    return lambda _: {"allowed": False, **({"status": status} if status else {})}
