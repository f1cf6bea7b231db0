"""Clusters with groups, recorded from kube-scheduler 1.36: groups go whole, and gangs pay no more than there."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest

from tests.preemption.building import decided, gang_decided, rules, snapshot_of
from tests.preemption.recorded import DATA
from tests.preemption.units import Cost, group_name
from webhook.policy.model.preemption import BudgetMode

pytestmark = pytest.mark.slow

LENIENT = rules(budgets=BudgetMode.BEST_EFFORT)
PROFILES = ("gang-vs-pods", "gang-vs-groups", "gang-partly-bound", "gang-impossible", "budgets")


def recorded_groups(profile):
    """Clusters, the PodGroup of the gang among the others, with what kube-scheduler did."""
    with gzip.open(DATA / "groups" / f"{profile}.jsonl.gz") as lines:
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
    beyond = snapshot.budgets.violating(rows, strict=False, evicts=True, groups=np.zeros(len(rows), np.int64))
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
