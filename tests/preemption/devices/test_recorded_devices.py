"""Decisions for pods with claims, recorded from kube-scheduler's own plugin and allocator, victims' devices being free.

kube-scheduler 1.36 does not preempt for devices. For these records its plugin was told which pods are removed.
"""

import json
import lzma
from pathlib import Path

import pytest

from tests.preemption.building import answer

DATA = Path(__file__).parents[1] / "data" / "devices"
PROFILES = sorted(path for path in DATA.glob("*.jsonl.xz") if path.name != "named.jsonl.xz")


def recorded(path):
    with lzma.open(path) as lines:
        return [json.loads(line) for line in lines]


def comparable(decision):
    """The decision with the reasons of each node as a set: kube-scheduler names them in no fixed order."""
    reasons = {node: set(text.split(", ")) for node, text in (decision.get("nodeReasons") or {}).items()}
    return {"reason": "", **decision, "nodeReasons": reasons}


NAMED = {row["input"]["name"]: row for row in recorded(DATA / "named.jsonl.xz")}


@pytest.mark.parametrize("name", NAMED)
def test_each_rule_by_itself(name):
    """On a tiny cluster about one rule the whole decision is the recorded one."""
    row = NAMED[name]
    assert comparable(answer(row["input"])) == comparable(row["expected"])


@pytest.mark.slow
@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name.split(".")[0])
def test_decisions_with_devices_equal_the_recorded_ones(path):
    """On every recorded cluster nodes, candidates, victims in their order and reasons are the recorded ones."""
    rows = recorded(path)
    assert len(rows) == 12
    for row in rows:
        assert comparable(answer(row["input"])) == comparable(row["expected"])


def test_the_records_are_all_there():
    """There are 20 named cases and 15 profiles."""
    assert (len(NAMED), len(PROFILES)) == (20, 15)
