"""Groups that go whole: by the policy, by their PodGroup, and against an oracle that tries every set of units."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.preemption.building import (
    NOW,
    as_pod,
    budget,
    cluster,
    decided,
    node,
    outcome,
    pod,
    pod_group,
    rules,
    snapshot_of,
)
from tests.preemption.gangs.brute_force import cheapest, chosen_by, cost_of
from tests.preemption.gangs.random_gangs import gang_cluster
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.decision import decide, fits_on, victims_needed
from webhook.preemption.snapshot.pod_groups import GROUP_SOURCES, group_of

WHOLE = rules(groups=GroupDisruption.GROUP)
NEVER = rules(groups=GroupDisruption.NEVER)
RECORDED = Path(__file__).parent / "data" / "groups" / "single-vs-groups.jsonl.gz"


NAMED = {
    "PodGroup": {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
    "coscheduling PodGroup": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "Volcano PodGroup": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "Kueue pod group": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
    "LeaderWorkerSet replica": {
        "labels": {"leaderworkerset.sigs.k8s.io/name": "g", "leaderworkerset.sigs.k8s.io/group-index": "3"}
    },
    "JobSet": {"labels": {"jobset.sigs.k8s.io/jobset-name": "g"}},
    "indexed Job": {"labels": {"batch.kubernetes.io/job-name": "g", "batch.kubernetes.io/job-completion-index": "0"}},
}


@pytest.mark.parametrize("source", [source.title for source in GROUP_SOURCES])
def test_who_names_a_group(source):
    """Each way in which pods name their group is read; another pod of that kind is in the same group."""
    made = {**NAMED[source]}
    data = {"metadata": {"name": "a", "namespace": "ns", **made}, "spec": made.pop("spec", {})}
    key = group_of(as_pod(data))
    assert (key.source, key.namespace, key.name[:1]) == (source, "ns", "g")


def test_pods_without_a_group_are_none_s():
    """A Job whose pods are not numbered is no group, and neither is a pod of a Deployment."""
    labels = {"batch.kubernetes.io/job-name": "g", "app": "web"}
    assert group_of(as_pod({"metadata": {"name": "a", "namespace": "ns", "labels": labels}})).name == ""


BOTH = [
    pod("a-0", group="a", on="n1", priority=10, cpu="4"),
    pod("a-1", group="a", on="n2", priority=10, cpu="1"),
    pod("other", on="n2", priority=50, cpu="3"),
]
TWO_NODES = [node("n1"), node("n2")]


@pytest.mark.parametrize(
    ("by", "groups", "gone"),
    [
        pytest.param(rules(), [], ["a-0"], id="by default pods go one by one"),
        pytest.param(WHOLE, [], ["a-0", "a-1"], id="the policy says Group"),
        pytest.param(
            rules(), [pod_group("a", disruptionMode="PodGroup")], ["a-0", "a-1"], id="its PodGroup says PodGroup"
        ),
        pytest.param(
            rules(),
            [pod_group("a", disruptionMode={"all": {}})],
            ["a-0", "a-1"],
            id="its PodGroup says all, as in 1.37",
        ),
        pytest.param(
            WHOLE, [pod_group("a", disruptionMode="Pod")], ["a-0"], id="its PodGroup says Pod, the policy Group"
        ),
        pytest.param(
            WHOLE, [pod_group("a", disruptionMode={"single": {}})], ["a-0"], id="its PodGroup says single, as in 1.37"
        ),
        pytest.param(WHOLE, [pod_group("a", disruptionMode="later")], ["a-0", "a-1"], id="a mode that nobody knows"),
        pytest.param(
            rules(groups=GroupDisruption.NEVER),
            [pod_group("a", disruptionMode="Pod")],
            ["other"],
            id="the policy says Never",
        ),
    ],
)
def test_who_goes(by, groups, gone):
    """What becomes of a group follows its PodGroup, then the policy; Never is the policy's alone."""
    went, _ = outcome(BOTH, by, nodes=TWO_NODES, preemptor=pod("p", priority=100, cpu="3"), podGroups=groups)
    assert sorted(went) == gone


def test_a_group_counts_with_its_own_priority():
    """A group of higher priority than its pods is no victim of a preemptor between the two."""
    groups = [pod_group("a", disruptionMode="PodGroup", priority=200)]
    went, why = outcome(BOTH[:2], rules(), nodes=TWO_NODES, preemptor=pod("p", priority=100, cpu="4"), podGroups=groups)
    assert (went, why["a-0"]) == ([], "policy/priority")


@pytest.mark.parametrize(
    ("keeper", "more", "rule"),
    [
        pytest.param({"priority": 100}, {}, "policy/priority", id="priority"),
        pytest.param({"schedulerName": "mine"}, {}, "policy/scheduler", id="scheduler"),
        pytest.param({}, {"podDisruptionBudgets": [budget("b", {"app": "a-1"}, 0)]}, "policy/budget", id="budget"),
    ],
)
def test_if_one_may_not_go_none_may(keeper, more, rule):
    """A member on another node that may not go keeps the whole group, and the reason names it."""
    pods = [BOTH[0], {**pod("a-1", group="a", **({"on": "n2", "priority": 10} | keeper))}]
    data = cluster(TWO_NODES, pods, pod("p", priority=100, cpu="4"), **more)
    by = rules(groups=GroupDisruption.GROUP, scheduler_names=("default-scheduler",))
    decision = decided(data, by)
    assert decision.selected is None
    if rule != "policy/priority":  # the group has one priority: the highest of its members
        assert [one.rule for one in decision.excluded("n2")] == [rule]
        assert "default/a-1 stays" in decision.excluded("n1")[0].text


def test_nobody_goes_for_one_of_its_own_group():
    """A member that waits evicts no other member, whatever their priorities."""
    went, why = outcome([BOTH[0]], WHOLE, preemptor=pod("a-9", group="a", priority=100, cpu="4"))
    assert (went, why) == ([], {"a-0": "policy/group"})


def test_fewer_groups_are_preferred():
    """Between nodes with victims of the same highest priority, the one that breaks fewer groups is chosen."""
    pods = [
        pod("a", group="a", on="n1", priority=10, cpu="2"),
        pod("b", group="b", on="n1", priority=10, cpu="2"),
        *(pod(f"c-{n}", group="c", on="n2", priority=10, cpu="1") for n in range(4)),
    ]
    went, _ = outcome(pods, WHOLE, nodes=TWO_NODES, preemptor=pod("p", priority=100, cpu="4"))
    assert sorted(went) == ["c-0", "c-1", "c-2", "c-3"]


def test_what_is_needed_of_a_plan_is_whole_groups():
    """Of victims that are left, a group stays or goes whole: members on other nodes are needed with it."""
    data = cluster(TWO_NODES, [*BOTH[:2], pod("b", on="n2", cpu="1")], pod("p", priority=100, cpu="4"))
    snapshot = snapshot_of(data, WHOLE)
    among = snapshot.pod_rows(["default/a-0", "default/a-1", "default/b"])
    needed = victims_needed(snapshot, as_pod(data["preemptor"]), "n1", among, rules=WHOLE)
    assert [snapshot.pods.names[row] for row in needed.tolist()] == ["a-0", "a-1"]


FOUR = [
    pod("a-0", group="a", on="n1", priority=10, cpu="1"),
    pod("a-1", group="a", on="n2", priority=10, cpu="1"),
    pod("a-2", group="a", on="n1", priority=10, cpu="1"),
    pod("a-10", group="a", on="n1", priority=10, cpu="1"),
]


@pytest.mark.parametrize(
    ("mode", "minimum", "cpu", "gone"),
    [
        pytest.param(None, 0, "2", ["a-0", "a-1", "a-10", "a-2"], id="without a minimum it goes whole"),
        pytest.param(None, 3, "2", ["a-10"], id="the highest index goes first"),
        pytest.param(None, 2, "3", ["a-10", "a-2"], id="all that is above the minimum"),
        pytest.param(None, 2, "4", ["a-0", "a-1", "a-10", "a-2"], id="below it the group goes whole"),
        pytest.param(None, 4, "2", ["a-0", "a-1", "a-10", "a-2"], id="nothing is above the minimum"),
        pytest.param(None, 9, "2", ["a-0", "a-1", "a-10", "a-2"], id="it is below its minimum already"),
        pytest.param("PodGroup", 2, "2", ["a-0", "a-1", "a-10", "a-2"], id="its PodGroup says that it goes whole"),
    ],
)
def test_what_is_above_the_minimum_goes_one_by_one(mode, minimum, cpu, gone):
    """Of a group with a minimum those above it go by themselves, numbers compared as numbers."""
    groups = [pod_group("a", minimum, disruptionMode=mode)]
    went, _ = outcome(
        FOUR, WHOLE, nodes=[node("n1"), node("n2", "2")], preemptor=pod("p", priority=100, cpu=cpu), podGroups=groups
    )
    assert sorted(went) == gone


@pytest.mark.parametrize("of", ["coscheduling", "volcano"])
def test_minima_of_other_schedulers_count(of):
    """`minMember` of coscheduling's and of Volcano's PodGroups is a minimum, each for those that name it that way."""
    named = {
        "coscheduling": {"labels": {"scheduling.x-k8s.io/pod-group": "a"}},
        "volcano": {"annotations": {"scheduling.k8s.io/group-name": "a"}},
    }
    pods = [pod(f"a-{number}", on="n1", priority=10, cpu="2") for number in range(2)]
    for one in pods:
        one["metadata"] |= named[of]
    for kind, gone in (("coscheduling", 1), ("volcano", 1), ("", 2)):
        groups = [{"metadata": {"name": "a", "namespace": "default"}, "spec": {"minMember": 1}}]
        field = f"{kind}PodGroups" if kind else "podGroups"
        went, _ = outcome(pods, WHOLE, preemptor=pod("p", priority=100, cpu="2"), **{field: groups})
        assert len(went) == (gone if kind == of else 2)


def test_whoever_leaves_is_not_kept():
    """Of three with a minimum of two of which one is leaving nobody else can be spared."""
    pods = [pod(f"a-{number}", group="a", on="n1", priority=10, cpu="1") for number in range(3)]
    groups = [pod_group("a", 2)]
    data = cluster([node("n1")], pods, pod("p", priority=100, cpu="4"), podGroups=groups)
    snapshot = snapshot_of(data, WHOLE)
    leaving = np.zeros(snapshot.pods.rows, np.bool_)
    leaving[snapshot.pod_rows(["default/a-0"])] = True
    wanted = as_pod(data["preemptor"])
    assert [one.name for one in decide(snapshot, wanted, WHOLE, NOW).selected.victims] == ["a-0", "a-1", "a-2"]
    wanted = as_pod(pod("p", priority=100, cpu="2"))
    assert [one.name for one in decide(snapshot, wanted, WHOLE, NOW).selected.victims] == ["a-2"]
    victims = decide(snapshot, wanted, WHOLE, NOW, leaving=leaving).selected.victims
    assert [one.name for one in victims] == ["a-0"]


# Random clusters.

NOBODYS = {"metadata": {"name": "nobody's"}, "spec": {}}


def random_cluster(seed):
    """One of the clusters that gangs are decided in, with a pod that waits, a gang of one that is nobody's."""
    waiting = pod("p", priority=100, cpu=str(random.Random(seed).randint(2, 8)))
    return gang_cluster(seed) | {"preemptor": waiting, "preemptors": [waiting], "podGroup": {**NOBODYS}}


@pytest.mark.slow
def test_no_set_of_units_is_much_better():
    """500 random clusters: no unit is broken, nobody goes in vain, and the price is mostly the lowest there is.

    The lowest by highest priority, then groups, then pods; the highest priority always is, the rest in 95 of 100.
    """
    best = worse = 0
    for seed in range(500):
        data = random_cluster(seed)
        snapshot, preemptor = snapshot_of(data, WHOLE), as_pod(data["preemptor"])
        decision = decide(snapshot, preemptor, WHOLE, NOW)
        if decision.fits:
            continue
        _, lowest = cheapest(data, 1, 100)
        if decision.selected is None:
            assert lowest is None, f"seed {seed}: {lowest} would do"
            continue
        chosen = decision.selected
        own = cost_of(chosen_by(data, "nobody's", {victim.name for victim in chosen.victims}))
        rows = snapshot.pod_rows([victim.key for victim in chosen.victims])
        assert fits_on(snapshot, preemptor, chosen.node, without=rows), f"seed {seed}: in vain"
        assert own.highest == lowest.highest, f"seed {seed}: {own} against {lowest}"
        best += own == lowest
        worse += own != lowest
        assert own.pods <= 2 * lowest.pods, f"seed {seed}: {own} against {lowest}"
    assert best > 100
    assert best / (best + worse) >= 0.95, (best, worse)


@pytest.mark.slow
def test_recorded_clusters_with_groups_keep_them_whole():
    """Where kube-scheduler, for a single pod, breaks groups of mode PodGroup, they go whole or stay."""
    with gzip.open(RECORDED) as lines:
        rows = [json.loads(line) for line in lines]
    broken = 0
    for row in rows:
        data = {**row["input"], "preemptor": row["input"]["preemptors"][0]}
        decision = decided(data, rules())
        whole = {
            one["metadata"]["name"]: one for one in data["podGroups"] if one["spec"].get("disruptionMode") == "PodGroup"
        }
        members = {}
        for one in data["pods"]:
            name = one["spec"].get("schedulingGroup", {}).get("podGroupName")
            if name in whole:
                members.setdefault((one["metadata"]["namespace"], name), set()).add(one["metadata"]["name"])
        gone = {(victim.namespace, victim.name) for victim in decision.selected.victims} if decision.selected else set()
        for (namespace, _), names in members.items():
            assert len({(namespace, name) in gone for name in names}) == 1
        assert (decision.selected is not None) == (row["bound"] is not None and row["bound"]["fewestUnits"] > 0)
        broken += bool(row["kubeScheduler"]["groupsPartlyTaken"])
    assert (len(rows), broken > 0) == (30, True)
