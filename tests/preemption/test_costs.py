"""What victims of equal priority cost: each key by itself, all of them against an oracle, and plain rules untouched."""

import random
import re
from datetime import datetime
from itertools import groupby

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.preemption.building import NOW, answer, as_pod, cluster, node, pod, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.costs import EVERY, SAVED, counts, dressed
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, victims_needed
from webhook.preemption.ranking import preferred_because
from webhook.preemption.snapshot.kinds import PODS


def victim(name, on, *, group="", started=600.0, priority=0, cpu="4", **costs):
    """A pod with what the keys look at."""
    made = dressed(pod(name, on=on, cpu=cpu, started=started, priority=priority), **costs)
    made["metadata"]["labels"] |= {"jobset.sigs.k8s.io/jobset-name": group} if group else {}
    return made


def decided(nodes, pods, cost, *, evicted=None, cpu="4", groups="Pod"):
    by = rules(cost=cost, groups=groups)
    data = cluster(nodes, pods, pod("preemptor", priority=1000, cpu=cpu))
    snapshot = snapshot_of(data, by)
    return decide(snapshot, as_pod(data["preemptor"]), by, NOW, evicted=counts(snapshot, evicted or {}))


def test_people_read_which_cost_decided():
    """A node that loses pods of one group is preferred to one that loses pods of two, and why is said."""
    groups = {"a": "x", "b": "y", "c": "z", "d": "z"}
    pods = [victim(name, "n1" if name in "ab" else "n2", group=group, cpu="2") for name, group in groups.items()]
    decision = decided([node("n1"), node("n2")], pods, EvictionCost(group_restarts=True))
    assert decision.selected.node == "n2"
    assert preferred_because(*decision.scores(2)).endswith("because fewer groups of pods lose a member for it")


def test_a_policy_without_keys_decides_as_before():
    """Without keys nothing that victims cost is looked at; with all of them each is, between victims and start."""
    keys = list(msgspec.structs.asdict(EVERY))
    names = decided([node("n1")], [victim("a", "n1")], EvictionCost()).scores(1)[0].values.keys()
    assert names.isdisjoint(keys)
    names = list(decided([node("n1")], [victim("a", "n1")], EVERY).scores(1)[0].values)
    assert [name for name in names if name in keys] == keys
    assert names.index("victims") < names.index(keys[0]) < names.index(keys[-1]) < names.index("earliest_start")


def group_of(one):
    return one["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name", "")


def saved_at(one):
    """When the pod's work was saved, as the reference has it."""
    started = one["status"].get("startTime")
    if started is None:
        return float("inf")
    at = datetime.fromisoformat(started).timestamp()
    text = one["metadata"].get("annotations", {}).get(SAVED)
    try:
        return max(at, datetime.fromisoformat(text).timestamp()) if text else at
    except ValueError:
        return at


def start(one):
    bare = {**one, "metadata": {**one["metadata"], "annotations": {}}}
    return saved_at(bare)


def said_cost(one):
    try:
        return int(one["metadata"].get("annotations", {}).get(POD_DELETION_COST, "0"))
    except ValueError:
        return 0


def expected(nodes, pods, cpu, evicted, on):
    """The node and the victims by the words of the reference: one node after the other, one pod after the other.

    Of the keys those count that are `on`, by their names in a policy.
    """
    tried = []

    def only(**keys):
        return tuple(value for name, value in keys.items() if name in on)

    def grace(each):
        return each["spec"].get("terminationGracePeriodSeconds", 30)

    for one in nodes:
        name, room = one["metadata"]["name"], int(one["status"]["allocatable"]["cpu"])
        here = [each for each in pods if each["spec"]["nodeName"] == name]

        def size(each):
            return int(each["spec"]["containers"][0]["resources"]["requests"]["cpu"])

        if sum(map(size, here)) + cpu <= room:
            return name, []

        def dearest_first(each):
            keys = only(
                readiness=not each["status"]["conditions"],
                groupRestarts=not group_of(each),
                deletionCost=-said_cost(each),
                lostWork=saved_at(each),
                recentEvictions=-evicted.get(each["metadata"]["name"], 0),
                gracePeriod=-grace(each),
            )
            return (-each["spec"]["priority"], *keys, start(each), each["metadata"]["name"])

        used, gone = 0, []
        for each in sorted(here, key=dearest_first):
            if used + size(each) + cpu <= room:
                used += size(each)
            else:
                gone.append(each)
        if used + cpu > room or not gone:
            continue
        top = max(each["spec"]["priority"] for each in gone)
        keys = only(
            readiness=sum(bool(each["status"]["conditions"]) for each in gone),
            groupRestarts=len({group_of(each) for each in gone if group_of(each)}),
            deletionCost=sum(map(said_cost, gone)),
            lostWork=sum(int(max(NOW - saved_at(each), 0)) for each in gone if saved_at(each) < float("inf")),
            recentEvictions=sum(evicted.get(each["metadata"]["name"], 0) for each in gone),
            gracePeriod=max(map(grace, gone)),
        )
        latest = -min(start(each) for each in gone if each["spec"]["priority"] == top)
        sums = (top, sum(each["spec"]["priority"] + 2**31 for each in gone), len(gone))
        value = (*sums, *keys, latest, max(map(grace, gone)), name)
        tried.append((value, name, sorted(each["metadata"]["name"] for each in gone)))
    return min(tried)[1:] if tried else (None, [])


def random_pods(dice, nodes):
    made = []
    for one in nodes:
        left, name = int(one["status"]["allocatable"]["cpu"]), one["metadata"]["name"]
        while left > 0:
            size = dice.randint(1, min(3, left))
            left -= size
            made.append(
                victim(
                    f"{name}-{len(made)}",
                    name,
                    ready=dice.random() < 0.7,
                    group=dice.choice(["", "", "x", "y"]),
                    cost=dice.choice([None, 0, 5, -5, "x", 7]),
                    saved=dice.choice([None, None, 10, 300, 1000, -50, "soon"]),
                    grace=dice.choice([None, 5, 60]),
                    started=dice.choice([0.0, 100.0, 500.0, 500.0, 2000.0]),
                    priority=dice.choice([0, 0, 0, 10]),
                    cpu=str(size),
                )
            )
            if dice.random() < 0.1:
                del made[-1]["status"]["startTime"]
    return made


KEYS = ("readiness", "groupRestarts", "deletionCost", "lostWork", "recentEvictions", "gracePeriod")


@pytest.mark.parametrize("seed", range(200))
def test_decisions_by_costs_are_those_of_the_oracle(seed):
    """Node and victims are the ones that the words of the reference give, by all keys and by some of them.

    So they are after single pods have changed.
    """
    dice = random.Random(seed)
    counted = KEYS if seed % 4 == 0 else tuple(key for key in KEYS if dice.random() < 0.5)
    some = {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key) for key in counted}
    cost = EvictionCost(**{name: value for name, value in msgspec.structs.asdict(EVERY).items() if name in some})
    nodes = [node(f"n{number}", cpu=str(dice.choice([6, 8, 10]))) for number in range(dice.randint(1, 6))]
    pods, by = random_pods(dice, nodes), rules(cost=cost)
    size = dice.randint(2, 6)
    preemptor = pod("preemptor", priority=100, cpu=str(size))
    snapshot = snapshot_of(cluster(nodes, pods, preemptor), by)
    for _ in range(4):
        evicted = {one["metadata"]["name"]: dice.randint(0, 2) for one in pods}
        decision = decide(snapshot, as_pod(preemptor), by, NOW, evicted=counts(snapshot, evicted))
        found = decision.selected
        names = sorted(gone.name for gone in found.victims) if found else []
        assert (found.node if found else None, names) == expected(nodes, pods, size, evicted, counted)
        for place in dice.sample(range(len(pods)), 2):
            name, on = pods[place]["metadata"]["name"], pods[place]["spec"]["nodeName"]
            cpu = pods[place]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            pods[place] = victim(name, on, cpu=cpu, ready=dice.random() < 0.5, cost=dice.randint(-9, 9))
            snapshot.put(PODS, msgspec.convert(pods[place], Pod))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), features=st.sets(st.sampled_from(FEATURES)))
def test_with_all_keys_a_plan_still_needs_each_victim(seed, features):
    """Costs change who goes and never whether somebody can: nodes with a plan are the same, and top priorities too."""
    data = plain(seed, *sorted(features)) | {"podDisruptionBudgets": []}
    without, by = rules(), rules(cost=EVERY)
    ours, theirs = answer(data, by), answer(data, without)
    assert ours["fits"] == theirs["fits"]
    assert [one["node"] for one in ours["candidates"]] == [one["node"] for one in theirs["candidates"]]


def test_of_planned_victims_the_cheapest_go_if_fewer_do():
    """When fewer victims suffice, the costlier of them stay."""
    by = rules(cost=EVERY)
    pods = [victim("dear", "n1", cpu="2", started=900.0), victim("cheap", "n1", cpu="2", started=10.0)]
    data = cluster([node("n1")], pods, pod("preemptor", priority=100, cpu="2"))
    snapshot = snapshot_of(data, by)
    rows = snapshot.pod_rows(["default/dear", "default/cheap"])
    needed = victims_needed(snapshot, as_pod(data["preemptor"]), "n1", rows, rules=by)
    assert [snapshot.pods.names[row] for row in needed] == ["cheap"]


def test_victims_stand_most_important_first():
    """Whatever they cost, the list of victims is in the order of importance, as in Kubernetes."""
    pods = [victim(f"p{n}", "n1", cpu="1", started=100.0 * n, cost=n, priority=n % 2) for n in range(4)]
    (gone,) = [list(one) for _, one in groupby(decided([node("n1")], pods, EVERY).selected.victims, type)]
    assert [(one.priority, one.start_time) for one in gone] == sorted(
        ((one.priority, one.start_time) for one in gone), key=lambda pair: (-pair[0], pair[1])
    )
