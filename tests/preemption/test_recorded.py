"""Decisions recorded from kube-scheduler 1.36 on 400 clusters."""

import gzip
import json
from pathlib import Path

import pytest

from tests.preemption.building import answer, as_pod, snapshot_of
from webhook.preemption.decision import decide
from webhook.preemption.rules import kubernetes_rules

RECORDED = sorted((Path(__file__).parent / "data").glob("*.jsonl.gz"))


def recorded(path):
    with gzip.open(path) as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_decisions_equal_kube_schedulers(path):
    """On every recorded cluster the whole decision equals kube-scheduler's, reasons included."""
    empty = {"reason": "", "nodeReasons": {}}
    rows = recorded(path)
    assert len(rows) == 40
    for row in rows:
        expected = empty | row["kubeScheduler"]
        assert answer(row["input"]) == expected


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_the_selected_node_is_the_first_of_the_equally_good(path):
    """Where kube-scheduler would take any of several nodes, the first by name is taken."""
    for row in recorded(path):
        decision = decide(snapshot_of(row["input"]), as_pod(row["input"]["preemptor"]), kubernetes_rules(), 0.0)
        best = sorted(row["kubeScheduler"]["selected"])
        assert (decision.selected.node if decision.selected else None) == (best[0] if best else None)
