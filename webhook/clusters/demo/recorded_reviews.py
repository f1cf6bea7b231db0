"""What the webhook makes of reviews a real API server sent, in a table."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from webhook.admission.context import Context, Objects
from webhook.admission.webhook import Phase, ask
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION

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
    """Let the webhook answer every recorded review, and show what became of each. True if all is as it must be."""
    from rich.table import Table  # noqa: PLC0415 - only if it prints
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold", expand=True)
    table.add_column("verdict", no_wrap=True, min_width=7)
    table.add_column("request", overflow="fold", ratio=4)
    table.add_column("by", no_wrap=True, overflow="ellipsis", max_width=12)
    table.add_column("patch, rule or warning", overflow="fold", ratio=4)
    colours = {"patched": "cyan", "denied": "red", "allowed": "green"}
    context = Context(Engine(load_or_raise(policies)), recorded_objects())
    group, refusals, well = "", dict[str, str](), True
    for row in recorded():
        answer = ask(context, cast("Phase", row.path.partition("?")[0].strip("/")), row.review)
        got = Expected(answer.verdict, list(answer.ids.get("rule", ())), answer.patch, answer.warnings)
        well &= got == row.expect
        if len(got.rules) == 1:
            refusals[got.rules[0]] = "; ".join(answer.refusals)
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
    for message in refusals.values():
        console.print(Text(f"\n{message}", "dim"))
    return well
