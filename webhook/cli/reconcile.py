"""`giveway reconcile`: preempt for the pods the webhook marked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from logging import INFO, getLogger
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from webhook.cli.targets import NameInNamespace
from webhook.kube.client import ApiError, Client, ConfigError
from webhook.kube.instants import rfc3339_micro
from webhook.kube.supervision import Supervisor
from webhook.policy.files.loading import PolicyError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler import debug
from webhook.reconciler.evict.executor import FAULT_POINTS, no_checkpoint
from webhook.reconciler.overview.overview import Surroundings
from webhook.reconciler.reporting import Tell
from webhook.reconciler.service import Options, Service
from webhook.serving.kept import KeptPolicies
from webhook.serving.logs import Handler, Lines
from webhook.serving.metrics import Metrics
from webhook.serving.options import LogFormat
from webhook.serving.plain import LOOPBACK, plain_port
from webhook.serving.policies import PolicyFiles
from webhook.serving.probes import Check, probes
from webhook.serving.watching import Follower

__all__ = ["checkpoint_at", "command", "debug_port", "reconciler_options", "reconciler_options_from", "telling"]

log = getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
_POLL_SECONDS = 0.5
_SECONDS = {"type": click.FloatRange(min=0.1)}
_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("--leader-elect/--no-leader-elect", "Act only while holding the lease.", {"default": True}),
    ("--lease-namespace", "The namespace of the lease.", {"default": "giveway-system"}),
    ("--lease-name", "The name of the lease.", {"default": "giveway-reconciler"}),
    ("--leader-elect-lease-duration", "Seconds until others may take a silent lease.", {"default": 15.0, **_SECONDS}),
    ("--leader-elect-renew-deadline", "Seconds without renewal after which to stop.", {"default": 10.0, **_SECONDS}),
    ("--leader-elect-retry-period", "Seconds between renewals.", {"default": 2.0, **_SECONDS}),
    ("--dry-run", "Decide and report, touch nothing.", {"is_flag": True}),
    (
        "--debug-port",
        "The port of the page, /debug/queue and /debug/plans on 127.0.0.1 only; 0 takes a free one, -1 none.",
        {"default": debug.DEBUG_PORT, "type": click.IntRange(-1, 65535)},
    ),
]


class Ports(NamedTuple):
    """Where a reconciler listens: probes and metrics on `address`, debug pages on the loopback."""

    address: str
    health: int
    debug: int


def reconciler_options(function: F) -> F:
    """Add the options of a command that reconciles; each can be given as GIVEWAY_… in the environment."""
    hidden = click.option("--fault-point", envvar="GIVEWAY_FAULT_POINT", type=click.Choice(FAULT_POINTS), hidden=True)
    function = hidden(function)
    for name, help_, more in reversed(_ROWS):
        variable = "GIVEWAY_" + name.partition("/")[0].removeprefix("--").replace("-", "_").upper()
        function = click.option(name, envvar=variable, show_envvar=True, show_default=True, help=help_, **more)(
            function
        )
    return function


def reconciler_options_from(values: Mapping[str, Any]) -> Options:
    """The reconciler's options among a command's values."""
    return Options(
        leader_elect=values["leader_elect"],
        lease_namespace=values["lease_namespace"],
        lease_name=values["lease_name"],
        lease_duration=values["leader_elect_lease_duration"],
        renew_deadline=values["leader_elect_renew_deadline"],
        retry_period=values["leader_elect_retry_period"],
        dry_run=values["dry_run"],
    )


def checkpoint_at(fault_point: str | None) -> Callable[[str], Awaitable[None]]:
    """A checkpoint that ends the process at one step as `kill -9` would: how crash recovery is tested."""
    if fault_point is None:
        return no_checkpoint

    async def reach(step: str) -> None:
        if step == fault_point:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


def telling(lines: Lines) -> Tell:
    """Structured log lines to where the others go."""
    return lambda fields: lines.write({"time": rfc3339_micro(time.time()), "level": "info", **fields})


@click.command()
@click.option("--kubeconfig", envvar="GIVEWAY_KUBECONFIG", show_envvar=True, help="How to reach the cluster.")
@click.option(
    "--policies",
    envvar="GIVEWAY_POLICIES",
    show_envvar=True,
    required=True,
    type=click.Path(path_type=Path),
    help="The directory of the policy files.",
)
@click.option(
    "--kept-policies",
    envvar="GIVEWAY_KEPT_POLICIES",
    show_envvar=True,
    type=NameInNamespace(),
    help="NAMESPACE/NAME of the ConfigMap in which the webhook keeps the policies in force: they are followed.",
)
@click.option(
    "--allow-removal",
    envvar="GIVEWAY_ALLOW_REMOVAL",
    show_envvar=True,
    is_flag=True,
    help="Without --kept-policies: take policies into use that give up rules or rights in force.",
)
@click.option("--bind-address", envvar="GIVEWAY_BIND_ADDRESS", show_envvar=True, default="::", show_default=True)
@click.option(
    "--health-port",
    envvar="GIVEWAY_HEALTH_PORT",
    show_envvar=True,
    show_default=True,
    default=8082,
    help="The plain port of /healthz, /readyz and /metrics; 0 takes a free one.",
)
@click.option(
    "--log-format",
    envvar="GIVEWAY_LOG_FORMAT",
    show_envvar=True,
    default="json",
    show_default=True,
    type=click.Choice(["json", "text"]),
    help="How a log line looks.",
)
@reconciler_options
def command(
    *,
    kubeconfig: str | None,
    policies: Path,
    kept_policies: tuple[str, str] | None,
    allow_removal: bool,
    bind_address: str,
    health_port: int,
    log_format: LogFormat,
    fault_point: str | None,
    **values: Any,
) -> None:
    """Preempt for the pods the webhook marked, next to a stock kube-scheduler, until SIGTERM or SIGINT."""
    try:
        options = reconciler_options_from(values)
        ports = Ports(bind_address, health_port, values["debug_port"])
        sources = policies, kept_policies, allow_removal
        asyncio.run(_reconcile(kubeconfig, sources, ports, log_format, options, fault_point))
    except (ApiError, ClusterError, ConfigError, OSError, PolicyError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _reconcile(  # noqa: PLR0917 - the command's values, handed on
    kubeconfig: str | None,
    sources: tuple[Path, tuple[str, str] | None, bool],
    ports: Ports,
    log_format: LogFormat,
    options: Options,
    fault_point: str | None,
) -> None:
    metrics = Metrics()
    supervisor = Supervisor(lambda name: metrics.task_failures.labels(name).inc())
    async with _logging(log_format, metrics) as lines:
        policies, kept_policies, allow_removal = sources
        follower = Follower(_POLL_SECONDS)
        follower.add([policies], lambda: _reload(files))
        async with await Client.connect(kubeconfig) as client:
            kept = KeptPolicies(client, *kept_policies) if kept_policies else None
            files = PolicyFiles(policies, metrics, kept=kept, judge=False, allow_removal=allow_removal)
            service = Service(
                client,
                files.engine.policies,
                options,
                tell=telling(lines),
                registry=metrics.registry,
                checkpoint=checkpoint_at(fault_point),
                supervisor=supervisor,
            )
            files.changed = lambda: service.use(files.engine.policies)
            tasks = {"files": follower.run, **({"policies": files.follow} if kept else {})}
            async with (
                _private_port(ports, service, files, metrics, supervisor),
                debug_port(service, ports.debug, supervisor, lambda: Surroundings(files.problem)),
            ):
                supervised = [supervisor.keep(name, work) for name, work in tasks.items()]
                await _until_stopped([_run(service, files), *supervised])


async def _run(service: Service, files: PolicyFiles) -> None:
    """Reconcile as soon as the policies are known: without any, an earlier leader's plans would be dropped."""
    await files.settled.wait()
    await service.run()


async def _until_stopped(kept: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Keep these running until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = [asyncio.create_task(one) for one in kept]
    await stop.wait()
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def _reload(files: PolicyFiles) -> bool:
    await files.reload()
    return not files.problem


@asynccontextmanager
async def debug_port(
    service: Service, port: int, supervisor: Supervisor, surroundings: Callable[[], Surroundings] = Surroundings
) -> AsyncIterator[int]:
    """Show the page and the debug tables on a port of the loopback, which is yielded; nowhere if it is negative."""
    if port < 0:
        yield port
        return
    async with plain_port(
        debug.pages(service, port or debug.DEBUG_PORT, surroundings), LOOPBACK, port, supervisor, "debug port"
    ) as bound:
        log.info("the page and the debug tables are on http://%s:%d/", LOOPBACK, bound)
        yield bound


@asynccontextmanager
async def _private_port(
    ports: Ports, service: Service, files: PolicyFiles, metrics: Metrics, supervisor: Supervisor
) -> AsyncIterator[None]:
    def checks() -> list[Check]:
        problem = service.problem()
        note = files.describe() + (f"; the files are broken: {files.problem}" if files.problem else "")
        return [Check("caches", not problem, problem), Check("policies", files.settled.is_set(), note)]

    app = probes(checks, metrics, service.ages, supervisor.problem)
    async with plain_port(app, ports.address, ports.health, supervisor, "private port"):
        yield


@asynccontextmanager
async def _logging(log_format: LogFormat, metrics: Metrics) -> AsyncIterator[Lines]:
    lines = Lines(sys.stdout.buffer, log_format, metrics.lines_dropped.inc)
    handler, logger = Handler(lines), getLogger("webhook")
    logger.addHandler(handler)
    logger.setLevel(INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        lines.close()
