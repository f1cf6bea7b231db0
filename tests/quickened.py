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
    from webhook.registration import keeper  # noqa: PLC0415

    options, own = reconcile.ReconcilerOptions, environment.get(DEPLOYMENT)

    def keeper_of(*given: Any, **more: Any) -> Any:
        return keeper.Keeper(*given, **{**more, "deployment": own or more["deployment"]})

    vars(serve).update(Keeper=keeper_of, _DELAY=1.0 if own else 0.0)
    vars(keeper).update(_PERIOD=1.0)
    if step := environment.get(KILL_AT):
        kill_at(step)
    vars(reconcile).update(ReconcilerOptions=lambda **given: options(**OPTIONS, **given))
