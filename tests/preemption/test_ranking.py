"""The order of candidates, one row a key, and what extenders may do to them."""

from functools import partial

import pytest

from tests.cases import table
from tests.preemption.building import NOW, as_pod, cluster, decided, node, pod, rules, snapshot_of
from webhook.preemption.decision import decide
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.gangs.eviction_units import Price
from webhook.preemption.ranking import RANKING, Ranking, how_compared, preferred_because, shown_keys, sum_of_priorities
from webhook.preemption.result import StaleDecisionError
from webhook.preemption.snapshot.kinds import PODS
from webhook.preemption.victims.candidates import Candidate, Candidates, Victim
from webhook.preemption.victims.costs import COST_KEYS
from webhook.preemption.victims.eligible import only_pods
from webhook.preemption.victims.rules import kubernetes_rules


def candidate(name, *victims, violations=0):
    """A candidate whose victims are (priority, start)."""
    pods = [
        Victim("default", f"{name}-{n}", f"uid-{name}-{n}", priority, start, name)
        for n, (priority, start) in enumerate(victims)
    ]
    return Candidate(name, pods, violations)


def ranked(*given):
    """The candidates compared, on a cluster that has their nodes and victims."""
    victims = [victim for one in given for victim in one.victims]
    pods = [pod(one.name, on=one.node, priority=one.priority, started=abs(NOW - one.start_time)) for one in victims]
    snapshot = snapshot_of(cluster([node(one.node) for one in given], pods, pod("preemptor")))
    return Ranking(Candidates.of(snapshot, given), only_pods(snapshot, None, []))


on_a, on_z = partial(candidate, "a"), partial(candidate, "z")
FEWER, LATER = "it has fewer victims", "its most important victims started later"


@table(
    "winner, loser, because",
    ("1: fewer violated budgets", on_z((9, 1)), on_a((1, 9), violations=1), "it violates fewer budgets"),
    ("2: lower highest priority", on_z((1, 1), (1, 1)), on_a((2, 9)), "its most important victim has a lower priority"),
    ("3: smaller sum", on_z((2, 1), (0, 1)), on_a((2, 9), (1, 9)), "its victims' priorities add up to less"),
    ("3: among negatives fewer pods win", on_z((-1, 1)), on_a((-1, 9), (-5, 9)), FEWER),
    ("3: fewer victims whose plain sum is larger", on_z((80, 1), (80, 1)), on_a((80, 9), (10, 9), (5, 9)), FEWER),
    ("4: fewer victims", on_z((2**31 - 1, 1)), on_a((2**31 - 1, 9), (-(2**31), 9)), FEWER),
    ("5: later earliest start at the top", on_z((2, 7), (1, 0)), on_a((2, 6), (1, 9)), LATER),
    ("5: not started counts as latest", on_z((2, float("inf"))), on_a((2, 9)), LATER),
    ("6: the first by name", on_a((2, 5)), on_z((2, 5)), "its name comes first; the two are equally good"),
)
def test_keys_in_order(winner, loser, because):
    """Each key decides only between candidates that the keys before leave equal, and people are told which one did."""
    for given in ([winner, loser], [loser, winner]):
        ranking = ranked(*given)
        assert given[ranking.equally_good[0]] == winner
        assert ranking.candidates.objects(ranking.first(5)) == [winner, loser]
        assert ranking.candidates.objects(ranking.first(1)) == [winner]
    scores = ranked(winner, loser).scores([0, 1])
    assert preferred_because(*scores) == f"{winner.node} is preferred to {loser.node} because {because}"
    assert sum_of_priorities(scores[0]) == sum(victim.priority for victim in winner.victims)


def test_people_read_every_key():
    """Plain Kubernetes rules look at its own keys alone; victims come before the sum of their priorities."""
    (score,) = ranked(candidate("a", (2, 5), (1, 6))).scores([0])
    shown = {key.heading: key.text(score) for key in shown_keys(score)}
    assert shown == {
        "violated budgets": "0",
        "highest priority": "2",
        "victims": "2",
        "sum of priorities": "3",
        "earliest start": "1970-01-01T00:00:05Z",
    }


def test_people_read_how_keys_are_compared():
    """Victims and the sum of their priorities are one key, and each key of which more is better says so."""
    read = "compared from left to right, victims and sum of priorities as one; less is better"
    assert how_compared(["victims", "sum of priorities"]) == read
    assert how_compared(["violated budgets"]) == "compared from left to right; less is better"
    assert how_compared([key.heading for key in RANKING]) == f"{read}; for earliest start, later is better"


NOT_FOR_GANGS = {
    "earliest_start": "it orders units of equal cost, which are tried by it (`EvictionUnits.by_importance`)",
    "end": "a gang waits for its last node, whichever of the others is free sooner",
    "elsewhere": "a gang is on several nodes anyway",
}
"""Keys that do not decide between sets of victims for a gang, each with the reason."""


def test_gangs_are_compared_by_the_same_keys():
    """A key of `RANKING` has its place in `Price`, in the same order, or a reason why it has none; costs are last."""
    of_gangs = [*Price._fields[:-1], *(key.name for key in COST_KEYS)]
    assert Price._fields[-1] == "costs"
    raised = {"victims": "priority_sum", "priority_sum": "victims"}  # priorities are not raised for gangs
    compared = [key.name for key in RANKING if key.name not in NOT_FOR_GANGS]
    assert [raised.get(name, name) for name in of_gangs] == compared
    assert NOT_FOR_GANGS.keys() <= {key.name for key in RANKING}


def test_no_candidates():
    """Nothing to choose from gives nothing."""
    assert ranked().equally_good == ranked().first(3) == []


class Extender:
    """An extender that answers what it is told to."""

    name = "test"

    def __init__(self, answer, *, ignorable=False, interested=True):
        self.answer, self.ignorable, self.interested = answer, ignorable, interested

    def is_interested(self, preemptor):
        return self.interested

    def __call__(self, preemptor, candidates):
        return self.answer(candidates)


def fail(candidates):
    raise ExtenderError("no answer")


def two_nodes(*extenders):
    pods = [pod("low", on="n1", cpu="3"), pod("high", on="n2", cpu="3", priority=5), pod("also", on="n2", cpu="1")]
    data = cluster([node("n1"), node("n2")], pods, pod("preemptor", priority=100, cpu="4"))
    return decide(snapshot_of(data), as_pod(data["preemptor"]), kubernetes_rules(), NOW, extenders)


def drop(name):
    return lambda candidates: [one for one in candidates if one.node != name]


def emptied(*names):
    """The candidates, those on these nodes without victims."""
    return lambda candidates: [one._replace(victims=[]) if one.node in names else one for one in candidates]


def first_victims(candidates):
    return [one._replace(victims=one.victims[:1]) for one in candidates]


@table(
    "extenders, node, victims",
    ("nobody is asked", [], "n1", ["low"]),
    ("nodes and victims are dropped", [Extender(drop("n1")), Extender(first_victims)], "n2", ["high"]),
    ("what is ignorable may fail", [Extender(fail, ignorable=True)], "n1", ["low"]),
    ("and loses emptied nodes", [Extender(emptied("n1"), ignorable=True)], "n2", ["high", "also"]),
    ("who is not interested is not asked", [Extender(fail, interested=False)], "n1", ["low"]),
    ("when all are dropped, nobody else is", [Extender(lambda _: []), Extender(fail)], None, []),
    ("no answer ends the decision", [Extender(fail)], ExtenderError, []),
    ("so does a node without victims", [Extender(emptied("n1", "n2"))], ExtenderError, []),
)
def test_extenders(extenders, node, victims):
    """The decision goes on with the nodes and victims that extenders leave, one extender after the other."""
    if node is ExtenderError:
        with pytest.raises(ExtenderError):
            two_nodes(*extenders)
        return
    decision = two_nodes(*extenders)
    selected = decision.selected
    assert (selected.node if selected else None) == node
    assert [victim.name for victim in (selected.victims if selected else ())] == victims
    assert [one.node for one in decision.candidates][:1] == ([node] if node else [])


def test_a_decision_knows_that_it_is_old():
    """After the snapshot changed the plan can still be read, lists over all nodes say that they cannot."""
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], pod("preemptor", priority=100, cpu="4"))
    snapshot = snapshot_of(data)
    decision = decide(snapshot, as_pod(data["preemptor"]), kubernetes_rules(), NOW)
    assert decision.node_reasons == {"n1": "Insufficient cpu"}
    snapshot.remove(PODS, "default/victim")
    assert decision.selected.node == "n1"
    assert decision.node_reasons == {"n1": "Insufficient cpu"}
    with pytest.raises(StaleDecisionError):
        _ = decision.candidates


@table(
    "used, best_nodes",
    ("kubernetes", kubernetes_rules(), ["n1", "n2"]),
    ("policy", rules(), ["n2"]),
    ("policy gives all the same time", rules(grace_period=5), ["n1", "n2"]),
)
def test_expected_end_decides_last(used, best_nodes):
    """Among candidates with equal keys a policy takes the one that is free first; Kubernetes' rules do not look."""
    pods = [
        pod("v1", on="n1", cpu="4", terminationGracePeriodSeconds=86400),
        pod("v2", on="n2", cpu="4", terminationGracePeriodSeconds=1),
    ]
    data = cluster([node("n1"), node("n2")], pods, pod("preemptor", priority=100, cpu="4"))
    decision = decided(data, used)
    assert decision.equally_good == best_nodes
    assert decision.selected.node == best_nodes[0]
    assert decision.scores(2)[0].node == best_nodes[0]
