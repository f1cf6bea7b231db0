"""Gangs as preemptors: who is waited for, where members go together, and who goes, against a search of all sets."""

import pytest

from tests.preemption import building
from tests.preemption.building import affinity, as_pod, budget, gang_decided, node, pod, pod_group, rules, snapshot_of
from tests.preemption.costs import dressed
from webhook.policy.model.preemption import GroupDisruption
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.gangs.placement import Placer

WHOLE = rules(groups=GroupDisruption.GROUP)


def group(minimum=2, **more):
    """The gang's PodGroup."""
    return pod_group("gang", minimum, **more)


def member(number, **more):
    """A member of a PodGroup that waits, or runs if it is on a node."""
    return pod(f"gang-{number}", group="gang", **({"priority": 100, "cpu": "4"} | more))


def decided(nodes, pods, waiting, groups, by=WHOLE, **more):
    """The decision for the members that wait."""
    budgets = more.pop("budgets", [])
    data = {"nodes": nodes, "pods": pods, "podGroups": groups, "podDisruptionBudgets": budgets}
    snapshot = snapshot_of(data, by)
    return gang_decided(snapshot, waiting, by, **more)


def where(decision):
    """Members by name, with their nodes."""
    return {one.pod.metadata.name: one.node for one in decision.placements}


def gone(decision):
    return sorted(victim.name for victim in decision.victims)


TWO = [node("n1"), node("n2")]
FULL = [pod("a", on="n1", cpu="4", priority=10), pod("b", on="n2", cpu="4", priority=10)]
GATED = {"schedulingGates": [{"name": "wait"}]}


def ranked(*priorities):
    """Members of these priorities that wait."""
    return [member(number, priority=priority) for number, priority in enumerate(priorities)]


WAITING = ranked(100, 100)
LEAVING = member(7, on="n1")
LEAVING["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
OWN = [member(8, on="n1", priority=0), member(9, on="n2", priority=0)]
KEEPER = [FULL[0], pod("b", on="n2", cpu="4", priority=200)]
LIKE_A = [pod(f"a-{n}", on=f"n{n}", cpu="4", priority=10) for n in (1, 2)]
for like_a in LIKE_A:
    like_a["metadata"]["labels"] = {"app": "a"}
NOBODY = "makes room for 2 pods of PodGroup default/gang together"
SMALL = {
    "all go for all, each on a node of its own": (FULL, WAITING, group(), 9, "", ["a", "b"]),
    "nobody goes for one of two": (KEEPER, WAITING, group(), 9, NOBODY, []),
    "a member that is leaving is missing again": ([LEAVING], WAITING[:1], group(), 9, "0 are bound", []),
    "members are missing": ([], WAITING[:1], group(3), 9, "1 wait, so 2 more have to come", []),
    "gated ones": ([], [member(0), member(1, **GATED), member(2, **GATED)], group(3), 9, "2 are held back", []),
    "one is bound": ([member(7, on="n1")], WAITING[:1], group(3), 9, "1 are bound and 1 wait, so 1 more", []),
    "the PodGroup's priority counts": (FULL, ranked(0, 0), group(priority=1000), 9, "", ["a", "b"]),
    "whatever its pods have": (FULL, WAITING, group(priority=5), 9, NOBODY, []),
    "without one that of the lowest member": (FULL, ranked(100, 5), group(), 9, NOBODY, []),
    "if that is higher": (FULL, ranked(100, 50), group(), 9, "", ["a", "b"]),
    "without the topology's label there is no domain": (FULL, WAITING, group(topology="zone"), 9, NOBODY, []),
    "own members that go one by one stay": (OWN, WAITING[:1], group(3, disruptionMode="Pod"), 9, "no nodes where", []),
    "own members that go whole stay": (OWN, WAITING[:1], group(3, disruptionMode="PodGroup"), 9, "no nodes where", []),
    "a budget for both": (LIKE_A, WAITING, group(), 2, "", ["a-1", "a-2"]),
    "a budget for one is kept over all nodes": (LIKE_A, WAITING, group(), 1, NOBODY, []),
}
"""The pods, the members that wait, their PodGroup, what a budget allows, why nobody is placed, and who goes."""


@pytest.mark.parametrize("name", SMALL)
def test_all_or_nobody(name):
    """Room is made for every missing member at once, or nobody goes and nobody is placed."""
    pods, waiting, its, allowed, reason, victims = SMALL[name]
    decision = decided(TWO, pods, waiting, [its], budgets=[budget("b", {"app": "a"}, allowed)])
    assert where(decision) == ({} if reason else {"gang-0": "n1", "gang-1": "n2"})
    assert gone(decision) == victims
    assert reason in decision.reason
    assert bool(decision.reason) is bool(reason)


def test_a_group_goes_with_the_pod_that_it_could_spare():
    """Both are units, which may have their first pod in common: neither stands for the other."""
    pods = [pod(f"g-{number}", on=f"n{2 - number}", cpu="4", priority=10, group="g") for number in (1, 0)]
    decision = decided([node("n1"), node("n2", "6")], pods, [member(0, cpu="6")], [group(1), pod_group("g", 1)])
    assert (where(decision), gone(decision)) == ({"gang-0": "n2"}, ["g-0", "g-1"])


def test_room_that_is_coming_up_is_waited_for():
    """Pods that leave anyway count as gone; if that is enough, nobody else goes."""
    data = {"nodes": TWO, "pods": FULL, "podGroups": [group()]}
    snapshot = snapshot_of(data, WHOLE)
    one, both = (
        gang_decided(snapshot, WAITING, WHOLE, leaving=snapshot.pod_rows(keys))
        for keys in (["default/a"], ["default/a", "default/b"])
    )
    assert (gone(one), gone(both), both.fits) == (["b"], [], True)


def test_members_bound_to_each_other(monkeypatch):
    """Members that may not share a node are placed apart, those that must share a domain together, in few looks."""
    looks, look = [], Placer.look
    monkeypatch.setattr(Placer, "look", lambda *given: looks.append(given) or look(*given))
    zones = {f"{zone}{n}": zone for zone in map(chr, range(65, 135)) for n in (1, 2)}
    hosts = [node(name, labels={"zone": zone}) for name, zone in zones.items()]
    pods = [pod(f"{name}-pod", on=name, cpu="4", priority=10 if name[0] == "t" else 200) for name in zones]
    own = [("podAffinity", topology, topology) for topology in ("zone", building.HOST)]
    for kind, key, topology in (("podAntiAffinity", building.HOST, ""), ("podAffinity", "zone", ""), *own):
        waiting = [member(number, cpu="2", **affinity(kind, key, of="gang")) for number in range(2)]
        for one in waiting:
            one["metadata"]["labels"] = {"of": "gang"}
        decision = decided(hosts, pods, waiting, [group(topology=topology)])
        nodes = where(decision).values()
        assert len(nodes) == 2
        assert len(set(nodes)) == 2 or kind == "podAffinity"
        assert len({name[0] for name in nodes}) == 1 or kind == "podAntiAffinity"
    assert len(looks) < 400


def test_which_pods_are_gangs():
    """A group with a minimum is one, and so is every PodGroup; an ordinary pod is none."""
    by_label, of_kueue = pod("x"), pod("k")
    by_label["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "c"}
    of_kueue["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "k"}
    of_kueue["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    minimum = [{"metadata": {"name": "c", "namespace": "default"}, "spec": {"minMember": 2}}]
    assert is_gang(snapshot_of({"coschedulingPodGroups": minimum}), as_pod(by_label))
    pods = (by_label, of_kueue, member(0), pod("ordinary"))
    assert [is_gang(snapshot_of({}), as_pod(one)) for one in pods] == [False, True, True, False]


@pytest.mark.parametrize("nodes", [3, 40], ids=["few units", "many units"])
def test_the_cheapest_units_go(nodes):
    """Two of three nodes are emptied for two members: those whose pods cost less, though they started earlier."""
    pods = [
        dressed(pod("stays-1", on="n0", cpu="4", priority=10, started=100.0), cost=2),
        *(dressed(pod(f"goes-{n}", on=f"n{n}", cpu="4", priority=10, started=900.0), cost=1) for n in (1, 2)),
        *(dressed(pod(f"dear-{n}-{m}", on=f"n{n}", cpu="2", priority=10)) for n in range(3, nodes) for m in range(2)),
    ]
    hosts = [node(f"n{number}") for number in range(nodes)]
    by = rules(cost=EvictionCost(deletion_cost=True))
    assert gone(decided(hosts, pods, WAITING, [group(priority=100)], by)) == ["goes-1", "goes-2"]


def state_of(snapshot):
    """What a snapshot holds, to see whether a decision leaves it as it was."""
    pods = snapshot.pods
    rows = sorted((pods.namespaces[row], pods.names[row], row) for row in range(1, pods.rows) if pods.names[row])
    return rows, pods.nominated[: pods.rows].tolist(), snapshot.nodes.used.tolist(), snapshot.nodes.pod_count.tolist()


def test_a_decision_leaves_the_snapshot_as_it_was():
    """Members that are put on nodes on trial are taken off, and their nominations stand as before."""
    waiting = [member(0), member(1)]
    waiting[0]["status"]["nominatedNodeName"] = "n2"
    snapshot = snapshot_of({"nodes": TWO, "pods": [*FULL, waiting[0]], "podGroups": [group()]}, WHOLE)
    before, other = state_of(snapshot), decide(snapshot, as_pod(pod("p", priority=100, cpu="4")), WHOLE, building.NOW)
    decision = gang_decided(snapshot, waiting, WHOLE)
    assert len(decision.placements) == 2
    after = state_of(snapshot)
    assert (after[0], after[2:]) == (before[0], before[2:])
    assert [row for row in after[1] if row >= 0] == [row for row in before[1] if row >= 0]
    assert other.candidates  # a decision made before can still be read
