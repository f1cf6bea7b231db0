"""Members of gangs like any random pod: each fits on its node beside the others once the victims are gone."""

import copy
import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import table
from tests.preemption import building
from tests.preemption.building import HOST, NOW, affinity, as_data, as_pod, gang_decided, node, pod, rules, snapshot_of
from tests.preemption.clusters import FEATURES
from tests.preemption.victims.test_oracle import in_groups
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.decision import decide, fits_on
from webhook.preemption.snapshot.kinds import PODS

pytestmark = pytest.mark.slow

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


@example(seed=4234, features={"sidecars"}, disruption=GroupDisruption.POD)  # two pods hold one port, and one goes
@example(seed=81604, features={"ports", "spread", "resize", "sidecars"}, disruption=GroupDisruption.GROUP)  # 17 groups
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
    claim, volume = building.bound("data", "ReadWriteOncePod")
    members = members_like(pod("p", cpu="4", priority=100, volumes=building.volumes_of("data")), 2)
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


@table("others", ("few units", 2), ("many units", 70))
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
