"""Decisions recorded from kube-scheduler 1.36: 520 random clusters, and 73 small ones each about one rule."""

import gzip
import json
from pathlib import Path

import pytest

from tests.preemption.building import answer, as_data, decided

DATA = Path(__file__).parent / "data"
RANDOM = sorted(path for path in DATA.glob("*.jsonl.gz") if path.name != "micro.jsonl.gz")
COUNTS = {"bigmix": 20, "csilimits": 20, "resize": 20, "sidecars": 20, "taints": 20, "volumes": 20}
"""How many clusters a file holds if not 40."""

DIFFERING = {
    "inline_gce_disk": "conflicts of disks that pods name themselves are not known (docs/decision.md)",
}
"""Small clusters on which the decision differs from kube-scheduler's, and why it may."""


def recorded(path):
    with gzip.open(path) as lines:
        return [json.loads(line) for line in lines]


def comparable(decision):
    """The decision with the reasons of each node as a set: kube-scheduler names them in no fixed order."""
    reasons = {node: set(text.split(", ")) for node, text in decision.get("nodeReasons", {}).items()}
    return {"reason": "", **decision, "nodeReasons": reasons}


@pytest.mark.parametrize("path", RANDOM, ids=lambda path: path.name.split(".")[0])
@pytest.mark.slow
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster the whole decision is kube-scheduler's; of equally good nodes the first goes."""
    rows = recorded(path)
    assert len(rows) == COUNTS.get(path.name.split(".")[0], 40)
    for row in rows:
        decision, best = decided(row["input"]), sorted(row["kubeScheduler"]["selected"])
        found = {"name": row["input"]["name"], **as_data(decision)}
        assert comparable(found) == comparable(row["kubeScheduler"])
        assert (decision.selected.node if decision.selected else None) == (best[0] if best else None)


SMALL = {row["input"]["name"]: row for row in recorded(DATA / "micro.jsonl.gz")}


@pytest.mark.parametrize("name", SMALL)
def test_each_rule_by_itself_is_kube_schedulers(name):
    """On each small cluster, too, except for those that are known to differ: these must go on differing."""
    row = SMALL[name]
    agrees = comparable(answer(row["input"])) == comparable(row["kubeScheduler"])
    assert agrees is (name not in DIFFERING), DIFFERING.get(name)


def test_the_small_clusters_are_all_there():
    """All 73 are replayed, and every exception is one of them."""
    assert len(SMALL) == 73
    assert set(DIFFERING) < set(SMALL)
