"""Properties that hold for any cluster: of single pods, of units, and of gangs; plans are in `test_oracle`."""

import copy
import random
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import table
from tests.preemption.building import (
    HOST,
    NOW,
    affinity,
    answer,
    as_data,
    as_pod,
    bound,
    gang_decided,
    node,
    pod,
    pod_group,
    rules,
    snapshot_of,
    volumes_of,
)
from tests.preemption.clusters import FEATURES, plain
from webhook.policy.model.preemption import GroupDisruption
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
WHOLE = rules(groups=GroupDisruption.GROUP)
COSTLY = rules(groups=GroupDisruption.GROUP, cost=EvictionCost(deletion_cost=True))
POLICIES = [kubernetes_rules(), rules(), WHOLE, COSTLY]


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


JOBSET = "jobset.sigs.k8s.io/jobset-name"
REMOVED_TOGETHER = ("pdb", "placement", "ports", "antiaffinity", "nominated", "resize", "sidecars", "volumes")
"""Features under which more pods never help: there nobody goes who could stay."""
_SHARING = ("bigmix", "csilimits", "mixed", "ports", "sidecars", "volumes")
FIT_WITHOUT = [feature for feature in FEATURES if feature not in _SHARING]
"""Features without pods that share on a node what only one of them can have."""


def in_groups(seed, features):
    """A cluster of which many pods are in groups of one to four, and the groups' members by name."""
    data, dice = plain(seed, *sorted(features)), random.Random(seed)
    groups = {}
    for number, made in enumerate(dice.sample(data["pods"], len(data["pods"]) * 2 // 3)):
        group = f"g{number // dice.choice((2, 3, 4))}"
        made["metadata"].setdefault("labels", {})[JOBSET] = group
        namespace = made["metadata"]["namespace"]
        groups.setdefault((namespace, group), set()).add(f"{namespace}/{made['metadata']['name']}")
    return data, {member: members for members in groups.values() for member in members}


@settings(max_examples=200)
@given(
    seed=SEEDS, features=st.one_of(*(st.sets(st.sampled_from(of)) for of in (FEATURES, FIT_WITHOUT, REMOVED_TOGETHER)))
)
def test_groups_go_whole_and_for_a_fit(seed, features):
    """With a pod of a group all its members go that are placed and are not on their way out or over.

    Once they are gone, on whatever nodes, the preemptor fits; with any unit put back it does not.
    """
    data, members = in_groups(seed, features)
    snapshot, preemptor = snapshot_of(data, WHOLE), as_pod(data["preemptor"])
    stay = {row for row in range(snapshot.pods.rows) if snapshot.pods.terminating[row] or snapshot.pods.node[row] < 0}
    for candidate in decide(snapshot, preemptor, WHOLE, NOW).candidates:
        fits_without = partial(fits_on, snapshot, preemptor, candidate.node)
        gone = {victim.key for victim in candidate.victims}
        assert features - {*FIT_WITHOUT} or fits_without(without=snapshot.pod_rows(gone))
        for back in gone:
            unit = members.get(back, {back})
            assert set(snapshot.pod_rows(unit - gone).tolist()) <= stay
            if features <= {*REMOVED_TOGETHER}:
                assert not fits_without(without=snapshot.pod_rows(gone - unit))


GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def members_like(preemptor, count):
    """As many pods like the preemptor as members of one coscheduling PodGroup."""
    made = [copy.deepcopy(preemptor) for _ in range(count)]
    for number, member in enumerate(made):
        member["metadata"] |= {"name": f"m{number}", "uid": f"uid-m{number}"}
        member["metadata"]["labels"] = {**member["metadata"].get("labels", {}), GROUP_LABEL: "gang"}
        member["spec"].pop("preemptionPolicy", None)
        member.setdefault("status", {}).pop("nominatedNodeName", None)
    return made


def group_of(members, minimum):
    """Their PodGroup."""
    namespace = members[0]["metadata"]["namespace"]
    return {"metadata": {"name": "gang", "namespace": namespace}, "spec": {"minMember": minimum}}


def carry_out(snapshot, decision):
    """Bind the members one after the other once the victims are gone; each has to fit beside those before it."""
    for victim in decision.victims:
        snapshot.remove(PODS, victim.key)
    for placed in decision.placements:
        assert fits_on(snapshot, placed.pod, placed.node)
        bound = msgspec.structs.replace(placed.pod.spec, node_name=placed.node)
        snapshot.put(PODS, msgspec.structs.replace(placed.pod, spec=bound))


@pytest.mark.slow
@example(seed=4234, features={"sidecars"}, disruption=GroupDisruption.POD)  # two pods hold one port, and one goes
@given(
    seed=st.integers(0, 10**9),
    features=st.sets(st.sampled_from([feature for feature in FEATURES if feature != "oddities"]), max_size=4),
    disruption=st.sampled_from([GroupDisruption.POD, GroupDisruption.GROUP]),
)
def test_all_members_fit_once_the_victims_are_gone(seed, features, disruption):
    """Every member fits on its node beside those that are placed before it; the snapshot is as before the decision."""
    data, dice, by = in_groups(seed, features)[0], random.Random(seed), rules(groups=disruption)
    minimum = dice.randint(2, 4)
    members = members_like(data["preemptor"], minimum + dice.choice((0, 0, 1)))
    data["coschedulingPodGroups"] = [group_of(members, minimum)]
    snapshot, preemptor = snapshot_of(data, by), as_pod(data["preemptor"])
    before = as_data(decide(snapshot, preemptor, by, NOW))
    decision = gang_decided(snapshot, members, by)
    assert as_data(decide(snapshot, preemptor, by, NOW)) == before
    carry_out(snapshot, decision)


def test_members_that_share_a_claim_of_one_pod():
    """Nobody goes for members that name the same ReadWriteOncePod claim: only one of them could ever run."""
    claim, volume = bound("data", "ReadWriteOncePod")
    members = members_like(pod("p", cpu="4", priority=100, volumes=volumes_of("data")), 2)
    hosts = ["n1", "n2"]
    data = {
        "nodes": [node(host) for host in hosts],
        "pods": [pod(f"on-{host}", on=host, cpu="4") for host in hosts],
        "persistentVolumes": [volume],
        "persistentVolumeClaims": [claim],
        "coschedulingPodGroups": [group_of(members, 2)],
    }
    snapshot = snapshot_of(data, rules())
    assert gang_decided(snapshot, members, rules()).placements == ()
    alone = decide(snapshot, as_pod(members[0]), rules(), NOW)
    assert alone.selected is not None


@table(
    "others",
    ("few units", 2),
    ("many units", 70),
)
def test_no_victim_that_another_member_has_to_be_with(others):
    """A member's only companion does not go for the next member: then the first had no room."""
    near = affinity("podAffinity", HOST, app="x")
    members = [
        *members_like(pod("p", cpu="5", priority=100, **near), 1),
        *members_like(pod("p", cpu="4", priority=100), 2)[1:],
    ]
    companion = pod("companion", on="n", cpu="4", priority=1)
    companion["metadata"]["labels"] = {"app": "x"}
    data = {
        "nodes": [node("n", "9"), *(node(f"n{number}") for number in range(others))],
        "pods": [companion, *(pod(f"p{number}", on=f"n{number}", cpu="4", priority=50) for number in range(others))],
        "coschedulingPodGroups": [group_of(members, 2)],
    }
    snapshot = snapshot_of(data, rules())
    decision = gang_decided(snapshot, members, rules())
    assert "companion" not in [victim.name for victim in decision.victims]
    carry_out(snapshot, decision)
