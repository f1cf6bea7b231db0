"""Properties that hold for any cluster: protected pods, incremental state, determinism; plans are in `test_oracle`."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.preemption.building import NOW, answer, as_data, as_pod, decided, pod_group, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.oracle_pods import key, selects
from webhook.policy.model.preemption import GroupDisruption, Protection
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, fits, fits_on, victims_needed
from webhook.preemption.snapshot.kinds import (
    BUDGETS,
    CSI_NODES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from webhook.preemption.snapshot.pod_groups import POD_GROUP
from webhook.preemption.victims.rules import kubernetes_rules

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 10**9)
GROUPS = POD_GROUPS[POD_GROUP]
WHOLE = {"groups": GroupDisruption.GROUP}
POLICIES = [kubernetes_rules(), rules(), rules(**WHOLE), rules(**WHOLE, cost=EvictionCost(deletion_cost=True))]
STRICT = rules(protection=Protection(default=NOW - 1_767_226_600))


@given(seed=SEEDS, features=st.sets(st.sampled_from(FEATURES)), share=st.floats(0, 1))
def test_where_it_fits_once_pods_are_gone(seed, features, share):
    """A decision's second look and one at a single node say what a look at all nodes says; no unknown node fits."""
    cluster = plain(seed, *sorted(features))
    snapshot, preemptor = snapshot_of(cluster), as_pod(cluster["preemptor"])
    placed = np.flatnonzero(snapshot.pods.node[: snapshot.pods.rows] >= 0)
    gone = np.array(sorted(random.Random(seed).sample(placed.tolist(), int(share * len(placed)))), np.intp)
    everywhere = fits(snapshot, preemptor, without=gone)
    assert decide(snapshot, preemptor, kubernetes_rules(), NOW).fits_without(gone) == everywhere
    for name in [*snapshot.node_names(), "gone"]:
        assert fits_on(snapshot, preemptor, name, without=gone) is (name in everywhere)


def refusals(pods, budgets):
    """Why the API server refuses pods that are evicted one by one, by the rules of its eviction."""
    found = []
    left = [budget["status"]["disruptionsAllowed"] for budget in budgets]
    for pod in pods:
        meta = pod["metadata"]
        mine = [
            (place, budget)
            for place, budget in enumerate(budgets)
            if budget["metadata"]["namespace"] == meta["namespace"]
            and selects(budget["spec"]["selector"], meta["labels"])
            and meta["name"] not in budget["status"].get("disruptedPods", {})
        ]
        if "deletionTimestamp" in meta or pod["status"]["phase"] == "Pending" or not mine:
            continue
        if len(mine) > 1:
            found.append((meta["name"], "more than one budget"))
            continue
        ((place, budget),) = mine
        if {"type": "Ready", "status": "True"} not in pod["status"].get("conditions", ()):
            status = budget["status"]
            if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            if status["currentHealthy"] >= status["desiredHealthy"] > 0:
                continue
        if budget["metadata"].get("generation", 0) > budget["status"].get("observedGeneration", 0):
            found.append((meta["name"], "not counted"))
        left[place] -= 1
        if left[place] < 0:
            found.append((meta["name"], "used up"))
    return found


@given(seed=SEEDS, features=st.sets(st.sampled_from(FEATURES)))
def test_a_strict_plan_can_be_carried_out(seed, features):
    """No plan of a strict policy holds a pod of equal priority or a protected one.

    Nor does one ask for an eviction that a budget refuses, however the API server reads budgets.
    """
    cluster = plain(seed, *sorted(features | {"pdb"}))
    pods, highest = {key(pod): pod for pod in cluster["pods"]}, cluster["preemptor"]["spec"].get("priority", 0)
    decision = decided(cluster, STRICT)
    for candidate in decision.candidates:
        victims = [victim.key for victim in candidate.victims]
        assert {one.pod for one in decision.excluded(candidate.node)}.isdisjoint(victims)
        assert all(victim.priority < highest for victim in candidate.victims)
        assert refusals([pods[name] for name in victims], cluster["podDisruptionBudgets"]) == []


@given(seed=SEEDS, features=st.sets(st.sampled_from(FEATURES)))
def test_the_order_of_input_does_not_matter(seed, features):
    """Nodes, pods, budgets and namespaces in any order give the same decision, twice as well as once."""
    cluster = plain(seed, *sorted(features))
    expected = answer(cluster)
    mixer = random.Random(seed)
    shuffled = {
        field: mixer.sample(value, len(value)) if isinstance(value, list) else value for field, value in cluster.items()
    }
    assert answer(shuffled) == expected
    snapshot = snapshot_of(cluster)
    assert answer(cluster, snapshot=snapshot) == answer(cluster, snapshot=snapshot) == expected


def grouped(cluster, dice):
    """The cluster, of which many pods are in PodGroups of any mode, priority and minimum."""
    for one in cluster["pods"]:
        if dice.random() < 0.7:
            one["spec"]["schedulingGroup"] = {"podGroupName": dice.choice("abcd")}
    spaces = sorted({one["metadata"]["namespace"] for one in cluster["pods"]})
    groups = [
        pod_group(name, dice.choice((0, 1, 2, 4)), disruptionMode=mode, priority=dice.choice((None, None, 5, 30)))
        for name, mode in zip("abcd", dice.choices(("Pod", "PodGroup", None), k=4), strict=True)
        for _ in spaces
    ]
    for place, group in enumerate(groups):
        group["metadata"]["namespace"] = spaces[place % len(spaces)]
    return cluster | {"podGroups": groups}


def apply_events(snapshot, cluster, mixer, there):
    """Apply 40 random single-object events to the snapshot and, by kind and key, to what is there."""
    kinds = (NODES, PODS, BUDGETS, NAMESPACES, VOLUMES, VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES, GROUPS)
    for _ in range(40):
        kind = mixer.choices(kinds, weights=(6, 12, 2, 1, 6, 6, 2, 3, 4))[0]
        if not cluster[kind.field]:
            continue
        item = mixer.choice(cluster[kind.field])
        meta = item["metadata"]
        name = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        if mixer.random() < 0.25:
            snapshot.remove(kind, name)
            there[kind.field].pop(name, None)
            continue
        if mixer.random() < 0.4:
            other = mixer.choice(cluster[kind.field])
            labels = other["metadata"].get("labels")
            item = {**other, "metadata": {**meta, **({"labels": labels} if labels is not None else {})}}
        snapshot.put(kind, msgspec.convert(item, kind.type_))
        there[kind.field][name] = item


@settings(max_examples=80)
@given(seed=SEEDS, features=st.sets(st.sampled_from(FEATURES)), by=st.sampled_from(POLICIES))
def test_events_end_where_a_fresh_snapshot_starts(seed, features, by):
    """After any sequence of single-object events decisions equal those on a snapshot made from what is there.

    So do their scores, and whom of every second pod the preemptor needs on the first node.
    """
    mixer = random.Random(seed)
    cluster = grouped(plain(seed, *sorted(features)), mixer)
    preemptor, snapshot = as_pod(cluster["preemptor"]), snapshot_of({}, by)
    there = {kind: {} for kind in cluster if isinstance(cluster[kind], list)}
    for _ in range(4):
        apply_events(snapshot, cluster, mixer, there)
        found, expected = [], []
        fresh = snapshot_of({kind: list(items.values()) for kind, items in there.items()}, by)
        for one, said in ((snapshot, found), (fresh, expected)):
            decision = decide(one, preemptor, by, NOW)
            said += [as_data(decision), decision.scores(4)]
            rows = one.pod_rows(sorted(there["pods"])[::2])
            for name in sorted(there["nodes"])[:1]:
                needed = victims_needed(one, preemptor, name, rows, rules=by)
                said.append(sorted(one.pods.names[row] for row in needed.tolist()))
        assert found == expected
