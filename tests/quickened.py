"""Shorter waits than the programs have, for tests that start them: times that no option of theirs sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.killing import KILL_AT, kill_at

DEPLOYMENT = "GIVEWAY_TEST_DEPLOYMENT"
"""In the environment: the Deployment of a server that is reached by a URL, as if it ran in the cluster."""
OPTIONS = {"lease_duration": 2.0, "renew_deadline": 1.5, "retry_period": 0.3}


def quicken(environment: Mapping[str, str]) -> None:
    """Let a lease lapse within seconds, look at configurations once a second, and end at once, or a second after."""
    from webhook.cli import reconcile, serve  # noqa: PLC0415 - imported in the fork server

    settings, options = serve.KeeperSettings, reconcile.ReconcilerOptions

    def keeper_settings(**given: Any) -> Any:
        deployment = environment.get(DEPLOYMENT) or given["deployment"]
        return settings(**{**given, "deployment": deployment, "period": 1.0})

    delay = 1.0 if environment.get(DEPLOYMENT) else 0.0
    vars(serve).update(KeeperSettings=keeper_settings, _DELAY=delay)
    if step := environment.get(KILL_AT):
        kill_at(step)
    vars(reconcile).update(ReconcilerOptions=lambda **given: options(**OPTIONS, **given))
