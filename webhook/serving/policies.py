"""The policies in use: loaded and compiled as a whole before they replace those that are."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from webhook.policy.engine import Engine
from webhook.policy.loading import PolicyError, load
from webhook.policy.model import Policies
from webhook.serving.metrics import Metrics

__all__ = ["PolicyFiles"]

log = logging.getLogger(__name__)


class PolicyFiles:
    """The engine of a directory. `problem` says why the files as they are now are not in use, or is empty.

    Raises PolicyError where the very first load fails: there is nothing to fall back to.
    """

    def __init__(self, directory: Path, metrics: Metrics) -> None:
        self._directory, self._metrics = directory, metrics
        self.engine = self._load()
        self.problem = ""
        metrics.policies_current.set(1)

    async def reload(self) -> None:
        """Take the files as they are now into use; broken ones leave the last good ones where they are."""
        try:
            engine = await asyncio.to_thread(self._load)
        except PolicyError as error:
            self.problem = str(error)
        else:
            self.problem = self._replace(engine)
        if self.problem:
            log.error("policies not reloaded, the last good ones stay: %s", self.problem)
        else:
            log.info("policies reloaded from %s", self._directory)
        self._metrics.policies_current.set(not self.problem)
        self._metrics.reloads.labels("failure" if self.problem else "success").inc()

    def _replace(self, engine: Engine) -> str:
        """Take an engine into use; not one that lost every policy at once: rather a broken mount than a wish."""
        if engine.policies == Policies() != self.engine.policies:
            return f"{self._directory} holds no policies any more; restart to serve without any"
        self.engine = engine
        return ""

    def describe(self) -> str:
        """How many policies are in use, in words."""
        policies = self.engine.policies
        return f"{len(policies.priority)} PriorityPolicies and {len(policies.preemption)} PreemptionPolicies in use"

    def _load(self) -> Engine:
        loaded = load(self._directory)
        if loaded.errors:
            raise PolicyError(loaded.findings)
        for finding in loaded.findings:
            log.warning("%s", finding)
        return Engine(loaded.policies)
