"""A snapshot that was changed by events is one that is filled in once, and to the oracle the objects that are there."""

import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.preemption import oracle
from tests.preemption.building import NOW, answer, as_data, as_pod, pod_group, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.test_oracle import BY
from webhook.policy.model.preemption import GroupDisruption
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, victims_needed
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.pod_groups import POD_GROUP

pytestmark = pytest.mark.slow

COSTLY = rules(groups=GroupDisruption.GROUP, cost=EvictionCost(deletion_cost=True))
POLICIES = [*BY.values(), (rules(groups=GroupDisruption.GROUP), None), (COSTLY, None)]
"""Rules, and the same in the oracle's words; it knows no groups."""


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


@example(seed=18, features=set(), by=(rules(groups=GroupDisruption.GROUP), None))  # two groups equal but for names
@given(seed=st.integers(0, 10**9), features=st.sets(st.sampled_from(FEATURES)), by=st.sampled_from(POLICIES))
def test_the_order_of_input_does_not_matter(seed, features, by):
    """Nodes, pods, groups, budgets and namespaces in any order give the same decision, twice as well as once."""
    mixer, ours = random.Random(seed), by[0]
    cluster = grouped(plain(seed, *sorted(features)), mixer)
    expected = answer(cluster, ours)
    shuffled = {
        field: mixer.sample(value, len(value)) if isinstance(value, list) else value for field, value in cluster.items()
    }
    assert answer(shuffled, ours) == expected
    snapshot = snapshot_of(cluster, ours)
    assert answer(cluster, ours, snapshot) == answer(cluster, ours, snapshot) == expected


def apply_events(snapshot, cluster, mixer, there):
    """Apply 40 random single-object events to the snapshot and, by kind and key, to what is there."""
    often = (kinds.NODES, kinds.VOLUMES, kinds.VOLUME_CLAIMS, kinds.POD_GROUPS[POD_GROUP], *[kinds.PODS] * 3)
    for _ in range(40):
        kind = mixer.choice((*often, kinds.BUDGETS, kinds.NAMESPACES, kinds.STORAGE_CLASSES, kinds.CSI_NODES))
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


@pytest.mark.parametrize("seeds", [range(75), pytest.param(range(1000, 4000), marks=pytest.mark.soak)])
def test_events_end_where_a_fresh_snapshot_starts(seeds):
    """After any sequence of single-object events decisions equal those on a snapshot made from what is there.

    So they do the oracle's, where it knows the rules; and so do their scores, and whom of every second pod the
    preemptor needs on the first node.
    """
    for seed in seeds:
        mixer, by = random.Random(seed), POLICIES[seed % len(POLICIES)]
        ours, theirs = by
        features = {*mixer.sample(FEATURES, mixer.randint(0, 5)), *(["pdb"] if theirs else [])}
        cluster = plain(seed, *sorted(features)) | {"podGroups": []}
        cluster = cluster if theirs else grouped(cluster, mixer)
        preemptor, snapshot = as_pod(cluster["preemptor"]), snapshot_of({}, ours)
        there = {kind: {} for kind in cluster if isinstance(cluster[kind], list)}
        for _ in range(4):
            apply_events(snapshot, cluster, mixer, there)
            now = {kind: list(items.values()) for kind, items in there.items()}
            said, fresh = (answers(one, preemptor, there, ours) for one in (snapshot, snapshot_of(now, ours)))
            if by in BY.values():
                assert {"name": cluster["name"], **said[0]} == oracle.decide(cluster | now, policy=theirs), seed
            else:  # groups of equal importance go in any order
                for some in (*said[0]["candidates"], *fresh[0]["candidates"]):
                    some["victims"].sort()
            assert said == fresh, seed


def answers(snapshot, preemptor, there, rules):
    """The decision, its scores, and who of every second pod is needed on the first node."""
    decision = decide(snapshot, preemptor, rules, NOW)
    rows = snapshot.pod_rows(sorted(there["pods"])[::2])
    needed = [victims_needed(snapshot, preemptor, name, rows, rules=rules) for name in sorted(there["nodes"])[:1]]
    return as_data(decision), decision.scores(4), [sorted(snapshot.pods.names[row] for row in some) for some in needed]
