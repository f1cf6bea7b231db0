"""The six scenarios, played at once on a control plane in this process, and shown while they run and afterwards."""

from __future__ import annotations

import asyncio
import base64
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from certs.files import maintain_files
from certs.rotation import CertificateSettings
from webhook.clusters.demo.scenarios import POLICIES, SCENARIOS, QuickstartScenario, ScenarioOutcome, Stage, prepare
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import MUTATING_WEBHOOK_CONFIGURATION, NAMESPACE, VALIDATING_WEBHOOK_CONFIGURATION
from webhook.manager.manager import Manager, ManagerOptions
from webhook.manager.reconciler_component import Reconciliation
from webhook.manager.webhook_component import add_webhook
from webhook.policy.files.loading import load_texts
from webhook.reconciler import service as reconciling
from webhook.registration.entries import WebhookTarget, entries
from webhook.serving.cluster_objects import CachedObjects
from webhook.serving.server import ServingOptions

if TYPE_CHECKING:
    from rich.console import Console

_SYSTEM, _RECONCILER = "giveway-system", "giveway-demo"


async def show_scenarios(console: Console, *, keep: bool) -> bool:
    """Play the scenarios and show what became of them; True if all went as documented. `keep` waits for Ctrl-C."""
    console.rule("Six scenarios, played with real API calls on a control plane in this process", align="left")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="giveway-demo-") as temporary:
        directory = Path(temporary)
        log = directory / "giveway.log"
        with log.open("wb") as stream:
            async with _cluster(directory, stream) as (cluster, page), cluster.client() as client:
                nodes = [f"node-{number}" for number in range(1, len(SCENARIOS) + 1)]
                await prepare(client, nodes)
                console.print(
                    f"[dim]API server, scheduler, controllers and kubelets are stand-ins, webhook and reconciler the"
                    f" real ones ({len(nodes)} nodes of 8 CPU, up after {time.monotonic() - begun:.1f} s)[/dim]\n"
                )
                outcomes = await _play(console, client)
                well = all(outcome.as_documented for outcome in outcomes)
                verdict = "[green]all as documented[/green]" if well else "[red]NOT all as documented[/red]"
                console.print(f"{verdict}, {time.monotonic() - begun:.0f} s in all")
                if keep:
                    stop = asyncio.Event()
                    for number in (signal.SIGTERM, signal.SIGINT):
                        asyncio.get_running_loop().add_signal_handler(number, stop.set)
                    policies = directory / "policies"
                    for line in (
                        f"\nIt is all still running, and shown live on {page}\nIn another terminal:\n",
                        f"  export KUBECONFIG={cluster.kubeconfig}",
                        "  kubectl get pods -A -o wide\n  kubectl get events -A",
                        f"  giveway explain scenario-4/nginx-preemptor --policies {policies}",
                        f"\n[dim]log: {log}[/dim]\nCtrl-C ends it.",
                    ):
                        console.print(line, soft_wrap=True)
                    await stop.wait()
    return well


@asynccontextmanager
async def _cluster(directory: Path, stream: BinaryIO) -> AsyncIterator[tuple[EmbeddedCluster, str]]:
    """A control plane with webhook and reconciler at work on it, and where their page is."""
    policies = directory / "policies"
    policies.mkdir()
    (policies / "demo.yaml").write_text(POLICIES)
    certs = directory / "certs"
    bundle = maintain_files(certs, CertificateSettings(("127.0.0.1",)), datetime.now(UTC))
    serving = ServingOptions(
        tls_cert_file=certs / "tls.crt",
        tls_private_key_file=certs / "tls.key",
        bind_address="127.0.0.1",
        secure_port=0,
        reconciler=_RECONCILER,
    )
    manager = Manager(ManagerOptions(policies=policies, bind_address="127.0.0.1", health_port=0), stream)
    # The reconciler alone may write giveway's own annotations
    async with (
        EmbeddedCluster(nodes=len(SCENARIOS)) as cluster,
        cluster.client(cluster.add_user(_RECONCILER, "system:masters")) as client,
    ):
        await client.create(NAMESPACE.path(), {"metadata": {"name": _SYSTEM}})
        webhook = add_webhook(manager, serving, CachedObjects(client))
        options = reconciling.ReconcilerOptions(lease_namespace=_SYSTEM)
        reconciliation = Reconciliation(manager, client, options, debug_port=0, certificates=webhook.certificates)
        manager.add(reconciliation)
        async with manager:
            url = f"https://127.0.0.1:{webhook.secure_port}"
            wanted = entries(
                load_texts([("demo.yaml", POLICIES)]).policies,
                WebhookTarget(namespace=_SYSTEM, url=url, reconciler=_RECONCILER),
            )
            for resource in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
                webhooks = wanted[resource.kind]
                for entry in webhooks:
                    entry["clientConfig"]["caBundle"] = base64.b64encode(bundle.trust()).decode()
                await client.create(resource.path(), {"metadata": {"name": "giveway"}, "webhooks": webhooks})
            yield cluster, f"http://127.0.0.1:{reconciliation.debug_port}/"


async def _play(console: Console, client: Client) -> list[ScenarioOutcome]:
    """Play all scenarios at once, and tell what happens while they run; then show what came of each."""
    from rich.table import Table  # noqa: PLC0415 - only if it prints
    from rich.text import Text  # noqa: PLC0415

    begun = time.monotonic()

    async def play(scenario: QuickstartScenario) -> ScenarioOutcome:
        def show(text: str) -> None:
            console.print(f"[dim]{time.monotonic() - begun:5.1f} s  scenario {scenario.number}: {text}[/dim]")

        try:
            outcome = await scenario.play(Stage(client, scenario.number, show))
        except (ApiError, TimeoutError) as error:
            outcome = ScenarioOutcome(str(error), as_documented=False)
        show("done")
        return outcome

    outcomes = await asyncio.gather(*map(play, SCENARIOS))
    report = Table.grid(padding=(0, 2))
    for scenario, outcome in zip(SCENARIOS, outcomes, strict=True):
        mark = ("as documented", "green") if outcome.as_documented else ("NOT AS DOCUMENTED", "bold red")
        report.add_row()
        report.add_row(str(scenario.number), "", Text.assemble((scenario.situation, "bold"), "   ", mark), style="bold")
        for head, text, style in (
            ("done", scenario.done, ""),
            ("happened", outcome.happened, ""),
            ("document", scenario.document, "dim"),
        ):
            report.add_row("", Text(head, "dim"), Text(text, style))
    console.print(report)
    return outcomes
