"""The admission webhook as parts of a process: the server, and the webhook configurations that send reviews to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from webhook.component_base.probes import ReadinessCheck
from webhook.kube.client import Client
from webhook.manager.manager import Component, Manager
from webhook.policy.evaluation.engine import Engine
from webhook.registration.keeper import Keeper, KeeperSettings, ServerState
from webhook.serving.cluster_objects import CachedObjects, ObjectSource
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.server import ReviewServer, ServingOptions


def add_webhook(manager: Manager, options: ServingOptions, source: ObjectSource) -> ReviewServer:
    """Add the server to a process; the objects of its source are kept current, and its certificate as the files."""
    metrics, problem = AdmissionMetrics(manager.metrics.registry), manager.policies_problem
    server = ReviewServer(options, source, metrics, manager.log, manager.supervisor, policies_problem=problem)
    return manager.add(server)


class Registration(Component):
    """The two webhook configurations, kept as the policies need them; `ca_file` is what the API server is to trust."""

    def __init__(
        self,
        manager: Manager,
        webhook: ReviewServer,
        client: Client,
        source: CachedObjects,
        settings: KeeperSettings,
        *,
        ca_file: Path | None,
    ) -> None:
        namespace = settings.target.namespace

        def terminating() -> bool:
            obj = source.lookup.namespace(namespace)
            return obj is not None and obj.metadata.deletion_timestamp is not None

        state = ServerState(
            policies=lambda: manager.policies.engine.policies,
            ready=manager.ready,
            trust=lambda: ca_file.read_bytes() if ca_file else b"",
            terminating=terminating,
        )
        self._keeper = Keeper(client, settings, state)
        source.on_namespace(namespace, self._keeper.wake)
        webhook.reloaded = self._keeper.wake
        webhook.metrics.configurations_in_force(lambda: self._keeper.in_force)

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Keeping the configurations, or looking at them."""
        return {"configurations": self._keeper.run}

    def checks(self) -> list[ReadinessCheck]:
        """How the configurations are; a server is ready before they send anything to it."""
        return [ReadinessCheck("configurations", True, self._keeper.note)]

    def use(self, engine: Engine) -> None:
        """Look at once whether other entries are needed."""
        del engine
        self._keeper.wake()

    async def drain(self) -> None:
        """Take the entries away if giveway is being removed and they are its own."""
        await self._keeper.end()
