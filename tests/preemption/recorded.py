"""Decisions recorded from kube-scheduler 1.36: random clusters, small ones that are each about one rule, and groups."""

import gzip
import json
import lzma
from functools import cache
from pathlib import Path

from tests.preemption.building import Json, as_data, decided

DATA = Path(__file__).parent / "data"


@cache
def recorded(path: Path) -> list[tuple[Json, Json]]:
    """Clusters, each with what was decided; nobody changes them."""
    with (gzip if path.suffix == ".gz" else lzma).open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["input"], row["kubeScheduler" if path.suffix == ".gz" else "expected"]) for row in rows]


def differing(path: Path) -> list[str]:
    """The recorded clusters on which the whole decision is another one, or not the first of equally good nodes goes."""
    return [cluster["name"] for cluster, expected in recorded(path) if not _agrees(cluster, expected)]


def _agrees(cluster: Json, expected: Json) -> bool:
    decision, best = decided(cluster), sorted(expected["selected"] or ())
    first = (decision.selected.node if decision.selected else None) == (best[0] if best else None)
    return first and _comparable({"name": cluster["name"], **as_data(decision)}) == _comparable(expected)


def _comparable(decision: Json) -> Json:
    """The decision with the reasons of each node as a set: kube-scheduler names them in no fixed order."""
    reasons = {node: set(text.split(", ")) for node, text in (decision.get("nodeReasons") or {}).items()}
    return {"reason": "", **decision, "nodeReasons": reasons}
