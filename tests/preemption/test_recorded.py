"""Decisions recorded from kube-scheduler 1.36: random clusters, and small ones that are each about one rule.

It does not preempt for devices. For the records with devices its own plugin and allocator were told which pods are
removed, so that the victims' devices are free.
"""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from tests.preemption.building import as_data, decided

DATA = Path(__file__).parent / "data"
SMALL_FILES = (DATA / "micro.jsonl.gz", DATA / "devices" / "named.jsonl.xz")
RANDOM = sorted({*DATA.glob("*.jsonl.gz"), *DATA.glob("devices/*.jsonl.xz")} - set(SMALL_FILES))
COUNTS = {"bigmix": 20, "csilimits": 20, "resize": 20, "sidecars": 20, "taints": 20, "volumes": 20}
"""How many clusters a file without devices holds if not 40; one with devices holds 12."""

DIFFERING = {
    "inline_gce_disk": "conflicts of disks that pods name themselves are not known (docs/decision.md)",
}
"""Small clusters on which the decision differs from kube-scheduler's, and why it may."""


def recorded(path):
    """Clusters, each with what was decided."""
    with (gzip if path.suffix == ".gz" else lzma).open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["input"], row["kubeScheduler" if path.suffix == ".gz" else "expected"]) for row in rows]


def comparable(decision):
    """The decision with the reasons of each node as a set: kube-scheduler names them in no fixed order."""
    reasons = {node: set(text.split(", ")) for node, text in (decision.get("nodeReasons") or {}).items()}
    return {"reason": "", **decision, "nodeReasons": reasons}


def agrees(cluster, expected):
    """Whether the whole decision is the recorded one, and of equally good nodes the first goes."""
    decision, best = decided(cluster), sorted(expected["selected"] or ())
    first = (decision.selected.node if decision.selected else None) == (best[0] if best else None)
    return first and comparable({"name": cluster["name"], **as_data(decision)}) == comparable(expected)


@pytest.mark.parametrize("path", RANDOM, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
@pytest.mark.slow
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster fits, reasons, candidates, and victims in their order are the recorded ones."""
    rows = recorded(path)
    assert len(rows) == (12 if path.parent != DATA else COUNTS.get(path.name.split(".")[0], 40))
    assert [cluster["name"] for cluster, expected in rows if not agrees(cluster, expected)] == []


SMALL = {row[0]["name"]: row for path in SMALL_FILES for row in recorded(path)}


@pytest.mark.parametrize("name", SMALL)
def test_each_rule_by_itself_is_kube_schedulers(name):
    """On each small cluster, too, except for those that are known to differ: these must go on differing."""
    assert agrees(*SMALL[name]) is (name not in DIFFERING), DIFFERING.get(name)


def test_the_records_are_all_there():
    """All files are replayed, and every exception is one of the small clusters."""
    assert (len(RANDOM), len(SMALL)) == (16 + 15, 73 + 20)
    assert set(DIFFERING) < set(SMALL)
