"""Properties of units in any cluster: groups go whole, they make room, and nobody goes who could stay."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.preemption.building import NOW, as_pod, cluster, node, pod, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.decision import decide, fits_on

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 10**9)
WHOLE = rules(groups=GroupDisruption.GROUP)
JOBSET = "jobset.sigs.k8s.io/jobset-name"
REMOVED_TOGETHER = ("pdb", "placement", "ports", "antiaffinity", "nominated", "resize", "sidecars", "volumes")
"""Features under which more pods never help: there nobody goes who could stay."""
FIT_WITHOUT = [feature for feature in FEATURES if feature not in ("bigmix", "csilimits", "mixed", "ports", "volumes")]
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


@given(seed=SEEDS, features=st.sets(st.sampled_from(FEATURES)))
def test_groups_go_whole(seed, features):
    """With a pod of a group all its members go that are placed and are not on their way out or over."""
    data, members = in_groups(seed, features)
    snapshot = snapshot_of(data, WHOLE)
    stay = {row for row in range(snapshot.pods.rows) if snapshot.pods.terminating[row] or snapshot.pods.node[row] < 0}
    for candidate in decide(snapshot, as_pod(data["preemptor"]), WHOLE, NOW).candidates:
        gone = {victim.key for victim in candidate.victims}
        for key in gone:
            left = members.get(key, set()) - gone
            assert {row for name in left for row in snapshot.pod_rows([name]).tolist()} <= stay


@given(seed=SEEDS, features=st.sets(st.sampled_from(FIT_WITHOUT)))
def test_without_the_units_it_fits(seed, features):
    """Once its victims are gone, on whatever nodes, the preemptor fits on the selected node."""
    data, _ = in_groups(seed, features)
    snapshot, preemptor = snapshot_of(data, WHOLE), as_pod(data["preemptor"])
    selected = decide(snapshot, preemptor, WHOLE, NOW).selected
    if selected is not None:
        rows = snapshot.pod_rows([victim.key for victim in selected.victims])
        assert fits_on(snapshot, preemptor, selected.node, without=rows)


AFFINITY = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
SPREAD = {
    "labelSelector": {"matchLabels": {"app": "db"}},
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
}
LEANING = {
    "affinity": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AFFINITY]}}},
    "spread": {"topologySpreadConstraints": [SPREAD]},
    "nothing": {},
}


@pytest.mark.parametrize("nodes", [1, 40])
@pytest.mark.parametrize(
    ("leaning", "zone", "gone"),
    [("affinity", "a", "costlier"), ("spread", "b", "costlier"), ("nothing", "a", "group")],
)
def test_a_member_elsewhere_that_is_needed(leaning, zone, gone, nodes):
    """A group whose member on another node the preemptor leans on stays, and a pod of higher priority goes."""
    hosts = [node(f"n{number}", labels={"zone": "a"}) for number in range(nodes)]
    pods = [pod(f"here-{number}", on=f"n{number}", cpu="4", priority=5) for number in range(nodes)]
    pods.append(pod("elsewhere", on="other", cpu="1", priority=5))
    for made in pods:
        made["metadata"]["labels"] = {JOBSET: "group"}
    pods[-1]["metadata"]["labels"]["app"] = "db"
    pods += [pod("filler", on="other", cpu="3", priority=200), pod("costlier", on="z", cpu="4", priority=50)]
    if leaning == "spread":
        pods.append(pod("stays", on="z", cpu="1", priority=200))
        pods[-1]["metadata"]["labels"] = {"app": "db"}
    hosts += [node("other", labels={"zone": zone}), node("z", "5", labels={"zone": "a"})]
    preemptor = pod("p", cpu="4", priority=100, **LEANING[leaning])
    preemptor["metadata"]["labels"] = {"app": "db"} if leaning == "spread" else {}
    chosen = decide(snapshot_of(cluster(hosts, pods, preemptor), WHOLE), as_pod(preemptor), WHOLE, NOW).selected
    assert {victim.name for victim in chosen.victims} == (
        {"costlier"} if gone == "costlier" else {"elsewhere", *(f"here-{number}" for number in range(nodes))}
    )


@given(seed=SEEDS, features=st.sets(st.sampled_from(REMOVED_TOGETHER)))
def test_putting_back_any_unit_breaks_the_fit(seed, features):
    """Every unit is needed: with any one of them back the preemptor does not fit on the node."""
    data, members = in_groups(seed, features)
    snapshot, preemptor = snapshot_of(data, WHOLE), as_pod(data["preemptor"])
    for candidate in decide(snapshot, preemptor, WHOLE, NOW).candidates:
        keys = [victim.key for victim in candidate.victims]
        for back in keys:
            others = [key for key in keys if key not in members.get(back, {back})]
            assert not fits_on(snapshot, preemptor, candidate.node, without=snapshot.pod_rows(others))
