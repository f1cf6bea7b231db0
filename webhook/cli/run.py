"""`giveway run`: serve the webhook and reconcile in one process."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import click

from webhook.cli.keeping import keep_configurations, keeping_options
from webhook.cli.reconcile import checkpoint_at, debug_port, reconciler_options, reconciler_options_from, telling
from webhook.cli.serve import STARTUP_ERRORS, kept_policies_from, options_from, serving_options
from webhook.kube.client import Client
from webhook.page.model import Certificate
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model import Policies
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler import service as reconciling
from webhook.reconciler.overview.overview import Surroundings
from webhook.serving.cluster import Cluster
from webhook.serving.kept import KeptPolicies
from webhook.serving.options import LogFormat, Options
from webhook.serving.probes import Check
from webhook.serving.server import Server

__all__ = ["Both", "command"]


class Both:
    """A webhook server and a reconciler on one client and one private port.

    The page is on `debug_port` of the loopback: 0 takes a free one, which the attribute says then; a negative is none.
    """

    def __init__(
        self,
        client: Client,
        serving: Options,
        reconciler: reconciling.Options,
        stream: BinaryIO,
        *,
        log_format: LogFormat = "json",
        fault_point: str | None = None,
        debug_port: int = -1,
        kept_policies: KeptPolicies | None = None,
    ) -> None:
        self._debug_port = self.debug_port = debug_port
        assert serving.policies is not None
        self.source = Cluster(client)
        self.server = Server(serving, self.source, stream, log_format=log_format)
        self.service = reconciling.Service(
            client,
            Policies() if kept_policies else load_or_raise(serving.policies),
            reconciler,
            tell=telling(self.server.lines),
            registry=self.server.metrics.registry,
            checkpoint=checkpoint_at(fault_point),
            supervisor=self.server.supervisor,
        )
        self.server.companion = self
        self.server.kept_policies = kept_policies

    def checks(self) -> list[Check]:
        """The reconciler's part of readiness."""
        problem = self.service.problem()
        return [Check("reconciler", not problem, problem)]

    def use(self, policies: Policies) -> None:
        """Hand new policies to the reconciler."""
        self.service.use(policies)

    def _surroundings(self) -> Surroundings:
        serving = self.server.certificate
        certificates = (Certificate(f"webhook, {serving.subject}", serving.expires),) if serving else ()
        return Surroundings(self.server.policies_problem, certificates)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run both; what fails is started again."""
        shown = debug_port(self.service, self._debug_port, self.server.supervisor, self._surroundings)
        async with self.server, shown as self.debug_port:
            work = asyncio.create_task(self._reconcile())
            try:
                yield
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _reconcile(self) -> None:
        """Reconcile as soon as the policies are known: without any, an earlier leader's plans would be dropped."""
        await self.server.policies_settled()
        await self.service.run()


@click.command()
@serving_options
@keeping_options
@reconciler_options
def command(*, kubeconfig: str | None, log_format: LogFormat, fault_point: str | None, **values: Any) -> None:
    """Serve the admission webhook and preempt for the pods it marks, in one process, until SIGTERM or SIGINT."""
    serving, reconciler = options_from(values), reconciler_options_from(values)
    try:
        asyncio.run(_run(kubeconfig, serving, reconciler, values, log_format, fault_point))
    except (*STARTUP_ERRORS, ClusterError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _run(  # noqa: PLR0917 - the command's values, handed on
    kubeconfig: str | None,
    serving: Options,
    reconciler: reconciling.Options,
    values: Mapping[str, Any],
    log_format: LogFormat,
    fault_point: str | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await Client.connect(kubeconfig) as client:
        both = Both(
            client,
            serving,
            reconciler,
            sys.stdout.buffer,
            log_format=log_format,
            fault_point=fault_point,
            debug_port=values["debug_port"],
            kept_policies=kept_policies_from(values, client),
        )
        keep_configurations(both.server, both.source, client, values)
        async with both.running():
            await both.server.serve_until(stop)
