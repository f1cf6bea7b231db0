"""What the webhook makes of reviews a real API server sent: the server started, asked over TLS, shown in a table."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
import tempfile
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from certs.files import maintain_files
from certs.rotation import CertificateSettings
from webhook.admission.context import Objects
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.manager.manager import Manager, ManagerOptions
from webhook.manager.webhook_component import add_webhook
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.serving.cluster_objects import ObjectSource
from webhook.serving.server import ServingOptions

if TYPE_CHECKING:
    from rich.console import Console

POLICIES = Path(__file__).parents[3] / "policies"
"""The shipped policies, in a checkout."""


class Expected(msgspec.Struct, frozen=True):
    """What must become of a review under the shipped policies (docs/semantics.md A to C)."""

    verdict: str
    rules: list[str]
    patch: list[dict[str, Any]]
    warnings: list[str]


class Recorded(msgspec.Struct, frozen=True):
    """A review as kube-apiserver 1.36 sent it, with its Priority plugin `on` or `off`."""

    plugin: str
    name: str
    path: str
    expect: Expected
    review: dict[str, Any]


def effect_of(got: Expected) -> str:
    """The rules that denied it; or what was set, without the prefixes of annotations' keys, and the warnings."""
    texts = []
    for operation in got.patch:
        path, value = operation["path"].replace("~1", "/"), operation["value"]
        wanted = value if isinstance(value, dict) else {path: value}
        texts.append(", ".join(f"{key.rpartition('/')[2]}={text}" for key, text in wanted.items()))
    return ", ".join(got.rules) or "; ".join([*texts, *got.warnings])


def recorded() -> list[Recorded]:
    """The recorded reviews, each with what must become of it."""
    text = files("webhook.clusters.demo").joinpath("recorded_reviews.jsonl").read_bytes()
    return [msgspec.json.decode(line, type=Recorded) for line in text.splitlines()]


def recorded_objects() -> Objects:
    """The PriorityClasses and the Namespace of the cluster that was recorded."""
    annotations = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
    high = PriorityClass(metadata=ObjectMeta(name="high-priority"), value=1_000_000, preemption_policy="Never")
    low = PriorityClass(metadata=ObjectMeta(name="low-priority", annotations=annotations), value=80)
    labels = {"env": "dev", "kubernetes.io/metadata.name": "team-a"}
    return Objects([high, low], [Namespace(metadata=ObjectMeta(name="team-a", labels=labels))])


def show_reviews(console: Console, policies: Path = POLICIES) -> bool:
    """Start the TLS server, send it every recorded review, show what became of each. True if all is as it must be."""
    from rich.table import Table  # noqa: PLC0415 - only if it prints
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold", expand=True)
    table.add_column("verdict", no_wrap=True, min_width=7)
    table.add_column("request", overflow="fold", ratio=4)
    table.add_column("by", no_wrap=True, overflow="ellipsis", max_width=12)
    table.add_column("patch, rule or warning", overflow="fold", ratio=4)
    colours = {"patched": "cyan", "denied": "red", "allowed": "green"}
    outcomes = asyncio.run(_answers(policies))
    group = ""
    for row, got, _ in outcomes:
        effect = effect_of(got) if got == row.expect else f"WRONG, expected {row.expect}"
        if group != (group := f"Priority plugin {row.plugin}, {row.path.partition('?')[0]}"):
            table.add_row("", Text(f"\n{group}", "bold"))
        verdict = Text(got.verdict, colours[got.verdict])
        request = row.review["request"]
        metadata = (request.get("object") or {}).get("metadata") or {}
        name = request.get("name") or f"{metadata.get('generateName', '')}*"
        kind = request["kind"]["kind"] + (f"/{request['subResource']}" if request.get("subResource") else "")
        table.add_row(
            verdict,
            Text(f"{request['operation']} {kind} {name}"),
            Text(request["userInfo"]["username"].rpartition(":")[2]),
            Text(effect),
        )
    console.print(table)
    refusals = {got.rules[0]: message for _, got, message in outcomes if len(got.rules) == 1}
    for message in refusals.values():
        console.print(Text(f"\n{message}", "dim"))
    return all(got == row.expect for row, got, _ in outcomes)


async def _answers(policies: Path) -> list[tuple[Recorded, Expected, str]]:
    """Every recorded review with what a server answered that was started for it, and the message of a refusal."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="giveway-") as directory:
        serving, trust = loopback_serving(Path(directory))
        options = ManagerOptions(policies=policies, bind_address="127.0.0.1", health_port=0)
        manager = Manager(options, io.BytesIO())
        webhook = add_webhook(manager, serving, ObjectSource(recorded_objects()))
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=trust.decode()))
        async with manager, aiohttp.ClientSession(connector=connector) as session:
            for row in recorded():
                url = f"https://127.0.0.1:{webhook.secure_port}{row.path}"
                async with session.post(url, json=row.review) as answer:
                    response = (await answer.json())["response"]
                patch = msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
                verdict = "denied" if not response["allowed"] else "patched" if patch else "allowed"
                denied_by = response.get("auditAnnotations", {}).get("denied-by", "")
                rules = denied_by.split(",") if denied_by else []
                got = Expected(verdict, rules, patch, response.get("warnings", []))
                outcomes.append((row, got, response.get("status", {}).get("message", "")))
    return outcomes


def loopback_serving(directory: Path) -> tuple[ServingOptions, bytes]:
    """Options of a server on the loopback, with its certificate in `directory`, and what clients are to trust, PEM."""
    bundle = maintain_files(directory, CertificateSettings(("127.0.0.1",)), datetime.now(UTC))
    options = ServingOptions(
        tls_cert_file=directory / "tls.crt",
        tls_private_key_file=directory / "tls.key",
        bind_address="127.0.0.1",
        secure_port=0,
    )
    return options, bundle.trust()
