"""The admission webhook as parts of a process: the server, and the webhook configurations that send reviews to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from webhook.component_base.probes import ReadinessCheck
from webhook.kube.client import Client
from webhook.manager.manager import Component, Manager
from webhook.page.model import Certificate
from webhook.policy.evaluation.engine import Engine
from webhook.registration.applied import AppliedEntries
from webhook.registration.keeper import EntriesLoop, Keeper, KeeperSettings, ServerState
from webhook.serving.cluster_objects import CachedObjects, ObjectSource
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.server import ReviewServer, ServingOptions


class AdmissionWebhook(ReviewServer, Component):
    """The server as a part of a process; the objects of its source are kept current, and its certificate as the files.

    `reloaded` is called when another certificate is in use.
    """

    def __init__(self, manager: Manager, options: ServingOptions, source: ObjectSource) -> None:
        self.metrics = AdmissionMetrics(manager.metrics.registry)
        problem = manager.policies_problem
        super().__init__(options, source, self.metrics, manager.log, manager.supervisor, policies_problem=problem)
        self.reloaded: Callable[[], None] = lambda: None

    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate in use, as the page shows it."""
        certificate = self.certificate
        return (Certificate(f"webhook, {certificate.subject}", certificate.expires),) if certificate else ()

    def listens(self) -> str:
        """Its port."""
        return f"serving on port {self.secure_port}"

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Keeping the objects current."""
        return {"cluster": self.source.run}

    def files(self) -> Iterable[tuple[list[Path], Callable[[], Awaitable[bool]]]]:
        """The certificate."""
        return [(self.options.certificate_files(), self.reload_certificate)]

    def ages(self) -> dict[str, float]:
        """Those of the objects that reviews are judged by."""
        return self.source.ages()

    async def reload_certificate(self) -> bool:
        """Take the certificate files into use, and tell of it; False if they are broken."""
        done = await super().reload_certificate()
        if done:
            self.reloaded()
        return done


class Registration(Component):
    """The two webhook configurations, kept as the policies need them; `ca_file` is what the API server is to trust.

    With `static` an administrator applies them, and they are only looked at.
    """

    def __init__(
        self,
        manager: Manager,
        webhook: AdmissionWebhook,
        client: Client,
        source: CachedObjects,
        settings: KeeperSettings,
        *,
        ca_file: Path | None,
        static: bool,
    ) -> None:
        namespace = settings.target.namespace

        def terminating() -> bool:
            obj = source.lookup.namespace(namespace)
            return obj is not None and obj.metadata.deletion_timestamp is not None

        state = ServerState(
            policies=lambda: manager.engine.policies,
            ready=manager.ready,
            trust=lambda: ca_file.read_bytes() if ca_file else b"",
            terminating=terminating,
        )
        self._keeper: EntriesLoop
        if static:
            self._keeper = applied = AppliedEntries(client, settings, state)
            webhook.metrics.entries_old(lambda: applied.old)
        else:
            self._keeper = Keeper(client, settings, state)
            webhook.metrics.entries_old(bool)
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
