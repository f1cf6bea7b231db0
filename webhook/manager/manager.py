"""One process, whatever its parts: it starts them, gives them new policies, answers probes, and ends by a signal."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

import msgspec
from prometheus_client.exposition import generate_latest

from webhook.component_base.component import Component, ReadinessCheck
from webhook.component_base.file_watcher import FollowedFiles, follow
from webhook.component_base.logs import LogWriter, log_records
from webhook.component_base.probes import ProcessMetrics, plain_port, probes
from webhook.component_base.supervision import Supervisor, cancelled
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.policy_chooser import PolicyChooser
from webhook.policy.files.loading import PolicySource, texts_in

log = logging.getLogger(__name__)


class ManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of any process; a port of 0 takes a free one, `poll_interval` is in seconds."""

    policies: Path
    allow_removal: bool = False
    bind_address: str = "::"
    health_port: int = 8081
    poll_interval: float = 0.5


class Manager:
    """Runs the components of one process. Add them, then enter it: it runs until it is left.

    Policies come from `options.policies`. With `kept`, those in force are kept there; a process that does not `judge`
    the files follows what is kept. Entering raises PolicyError, OSError, or what a component raises.
    """

    def __init__(
        self,
        options: ManagerOptions,
        stream: BinaryIO,
        *,
        kept: KeptPolicies | None = None,
        judge: bool = True,
    ) -> None:
        self.options = options
        self.metrics = ProcessMetrics()
        self.log = LogWriter(stream, self.metrics.lines_dropped.inc)
        self.supervisor = Supervisor(lambda name: self.metrics.task_failures.labels(name).inc())
        self.health_port = options.health_port
        self.policies: PolicyChooser
        """The policies in use, once the manager is entered."""
        self._kept, self._judge = kept, judge
        self._components: list[Component] = []
        self._running: AsyncExitStack

    def add(self, component: Component) -> None:
        """Add a part before the manager is entered; parts start in this order and end in the other."""
        self._components.append(component)

    def policies_problem(self) -> str:
        """Why nothing can be judged by the policies yet; empty if it can."""
        return self.policies.unready()

    def ready(self) -> bool:
        """Whether all conditions of readiness hold."""
        return all(check.ok for check in self.checks())

    def checks(self) -> list[ReadinessCheck]:
        """The conditions of readiness."""
        policies = ReadinessCheck("policies", not self.policies_problem(), self.policies.describe())
        return [
            policies,
            *(check for component in self._components for check in component.checks()),
        ]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as running:
            await self._start(running)
            self._running = running.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._running.aclose()

    async def drain(self) -> None:
        """Let every part let go of what others send here."""
        await asyncio.gather(*(component.drain() for component in self._components))

    async def _start(self, running: AsyncExitStack) -> None:
        """Log first, then policies, probes, components and tasks; they end in the other order."""
        options = self.options
        running.enter_context(log_records(self.log))
        # Files are followed as they are before they are first loaded:
        # a change meanwhile is not missed.
        files = [FollowedFiles([options.policies], self._reload_policies)]
        tasks: dict[str, Callable[[], Awaitable[object]]] = {}
        tasks["files"] = partial(follow, files, options.poll_interval)
        for component in self._components:
            files += component.files()
            tasks.update(component.tasks())
        self.policies = PolicyChooser(
            PolicySource(str(options.policies), partial(texts_in, options.policies)),
            self.metrics.registry,
            kept=self._kept,
            judge=self._judge,
            allow_removal=options.allow_removal,
            changed=self._use_policies,
        )
        if self._kept is not None:
            tasks["policies"] = self.policies.follow
        if not self.policies.unready():
            self._use_policies()
        app = probes(self.checks, self._expose, self.supervisor.problem)
        port = plain_port(app, options.bind_address, options.health_port, option="--health-port")
        self.health_port = await running.enter_async_context(port)
        running.push_async_callback(cancelled, work := [])
        for component in self._components:
            await running.enter_async_context(component.running())
        for name, task in tasks.items():
            kept = self.supervisor.keep(name, task)
            work.append(asyncio.create_task(kept, name=name))
        ports = [*filter(None, (component.listens() for component in self._components))]
        ports.append(f"probes on port {self.health_port}")
        log.info("%s; %s", ", ".join(ports), self.policies.describe())

    def _use_policies(self) -> None:
        for component in self._components:
            component.use(self.policies.engine)

    async def _reload_policies(self) -> bool:
        return await self.policies.reload()

    def _expose(self) -> bytes:
        """The metrics as text, with cache ages as of now."""
        for component in self._components:
            for resource, age in component.ages().items():
                self.metrics.cache_age.labels(resource).set(age)
        return generate_latest(self.metrics.registry)


async def run_until_signalled(manager: Manager) -> None:
    """Run a process until SIGTERM or SIGINT. Raises what entering the manager raises."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with manager:
        gc.collect()
        gc.freeze()  # what is there now stays: the collector need not walk it again and again
        await stop.wait()
        await manager.drain()
