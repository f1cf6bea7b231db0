"""The reconciler as a part of a process: leadership and control loop, and the debug pages."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from webhook.component_base.component import Component, ReadinessCheck
from webhook.component_base.probes import LOOPBACK, plain_port
from webhook.component_base.supervision import cancelled
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339_micro
from webhook.manager.manager import Manager
from webhook.page.model import Certificate
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies
from webhook.reconciler import debug
from webhook.reconciler.overview.overview import Surroundings
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService

log = logging.getLogger(__name__)


class Reconciliation(Component):
    """One reconciler, with its page and debug tables on the loopback.

    `debug_port` 0 takes a free one, which the attribute says then; a negative one is none. `certificates` are shown.
    """

    def __init__(
        self,
        manager: Manager,
        client: Client,
        options: ReconcilerOptions,
        *,
        debug_port: int = -1,
        certificates: Callable[[], tuple[Certificate, ...]] = tuple,
    ) -> None:
        self._manager, self.debug_port, self._certificates = manager, debug_port, certificates
        self.service = ReconcilerService(
            client,
            Policies(),
            options,
            tell=lambda message, **fields: manager.log.write(
                {"time": rfc3339_micro(time.time()), "level": "info", "message": message, **fields},
            ),
            registry=manager.metrics.registry,
            supervisor=manager.supervisor,
        )

    def checks(self) -> list[ReadinessCheck]:
        """Whether its caches are filled; one that waits for the lease is ready."""
        synced = self.service.state.synced
        problem = "" if synced else "the caches have not been filled yet"
        return [ReadinessCheck("reconciler", synced, problem)]

    def ages(self) -> dict[str, float]:
        """Those of what it watches."""
        return self.service.state.ages()

    def use(self, engine: Engine) -> None:
        """Preempt by these policies. Raises ClusterError if one of them cannot be compiled."""
        self.service.use(engine.policies)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Show what it does, and reconcile once there are policies: else earlier plans would go."""

        async def reconcile() -> None:
            await self._manager.policies.settled.wait()
            await self.service.run()

        async with AsyncExitStack() as running:
            port = self.debug_port
            if port >= 0:
                pages = debug.pages(self.service, port or debug.DEBUG_PORT, self._surroundings)
                served = plain_port(pages, LOOPBACK, port, option="--debug-port")
                self.debug_port = await running.enter_async_context(served)
                log.info("the page and the debug tables are on http://%s:%d/", LOOPBACK, self.debug_port)
            running.push_async_callback(cancelled, [asyncio.create_task(reconcile())])
            yield

    def _surroundings(self) -> Surroundings:
        return Surroundings(self._manager.policies.problem, self._certificates())
