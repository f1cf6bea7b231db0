"""Decisions recorded from kube-scheduler 1.36: random clusters, small ones that are each about one rule, and groups.

It does not preempt for devices. For the records with devices its own plugin and allocator were told which pods are
removed, so that the victims' devices are free.
"""

import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.preemption.building import as_data, decided, gang_decided, rules, snapshot_of
from tests.preemption.units import Cost, group_name
from webhook.policy.model.preemption import BudgetMode

pytestmark = pytest.mark.slow


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


LENIENT = rules(budgets=BudgetMode.BEST_EFFORT)
GROUPS = Path(__file__).parent / "data" / "groups"
PROFILES = ("gang-vs-pods", "gang-vs-groups", "gang-partly-bound", "gang-impossible", "budgets")


def recorded_groups(profile):
    """Clusters, the PodGroup of the gang among the others, with what kube-scheduler did."""
    with gzip.open(GROUPS / f"{profile}.jsonl.gz") as lines:
        for row in map(json.loads, lines):
            groups = [*row["input"]["podGroups"], *filter(None, [row["input"].get("podGroup")])]
            yield row, {**row["input"], "podGroups": groups}


def identity(obj):
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def whole(data):
    """The PodGroups that go whole."""
    return {identity(one): one["spec"] for one in data["podGroups"] if one["spec"].get("disruptionMode") == "PodGroup"}


def group_of(data):
    """By `namespace/name` of each pod its group; the name is empty for none."""
    return {"/".join(identity(one)): (one["metadata"]["namespace"], group_name(one)) for one in data["pods"]}


def check_whole(data, victims):
    """No group that goes whole is broken."""
    members = {}
    for key, group in group_of(data).items():
        members.setdefault(group, []).append(key in victims)
    assert [group for group in whole(data) if len(set(members.get(group, ()))) > 1] == [], data["name"]


def test_clusters_with_groups_keep_them_whole():
    """Where kube-scheduler, for a single pod, breaks groups of mode PodGroup, they go whole or stay."""
    broken, rows = 0, list(recorded_groups("single-vs-groups"))
    for row, data in rows:
        decision = decided({**data, "preemptor": data["preemptors"][0]}, rules())
        check_whole(data, {victim.key for victim in decision.selected.victims} if decision.selected else set())
        assert (decision.selected is not None) == (row["bound"] is not None and row["bound"]["fewestUnits"] > 0)
        broken += bool(row["kubeScheduler"]["groupsPartlyTaken"])
    assert (len(rows), broken > 0) == (30, True)


def cost_by_keys(data, snapshot, victims):
    """What victims cost by violations, highest priority, groups and pods."""
    specs, groups = whole(data), group_of(data)
    pods = {"/".join(identity(one)): one["spec"] for one in data["pods"]}
    highest = max((specs.get(groups[key], pods[key]).get("priority") or 0 for key in victims), default=-(2**63))
    rows = snapshot.pod_rows(victims)
    beyond = snapshot.budgets.violating_by(rows, np.zeros(len(rows), np.int64), strict=False, evicts=True)
    return int(beyond.sum()), Cost(highest, len({groups[key] for key in victims} & specs.keys()), len(victims))


@pytest.mark.parametrize("profile", PROFILES)
def test_never_worse_than_kube_scheduler(profile):
    """For 141 gangs: its verdict, and never a higher price.

    It asks nobody if one of the pods has preemptionPolicy Never, which is what a policy's pods have, and may take
    members of the gang itself: such answers may be cheaper.
    """
    seen = Counter()
    for row, data in recorded_groups(profile):
        if not data["podGroup"]:
            continue
        by, snapshot = row["kubeScheduler"], snapshot_of(data, LENIENT)
        decision = gang_decided(snapshot, data["preemptors"], LENIENT)
        assert decision.fits == by["fits"], data["name"]
        victims = [victim.key for victim in decision.victims]
        never = any(one["spec"].get("preemptionPolicy") == "Never" for one in data["preemptors"])
        assert bool(victims) == bool(by["victims"]) or never, data["name"]
        assert identity(data["podGroup"]) not in {group_of(data)[key] for key in victims}, data["name"]
        check_whole(data, victims)
        if victims and by["victims"] and not by["ownMembersTaken"]:
            ours, theirs = (cost_by_keys(data, snapshot, keys) for keys in (victims, by["victims"]))
            assert ours <= theirs, f"{data['name']}: {ours}, where kube-scheduler pays {theirs}"
            seen["better" if ours < theirs else "same"] += 1
    assert seen["same"] + seen["better"] >= (1 if profile == "gang-impossible" else 20)
