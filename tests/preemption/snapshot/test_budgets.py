"""Disruption budgets as people read of them, and what each lets go, against the oracle."""

import pytest

from tests.cases import table
from tests.preemption.building import budget, cluster, decided, node, outcome, pod, rules
from tests.preemption.clusters import plain
from tests.preemption.costs import READY
from tests.preemption.test_oracle import BY, answers
from webhook.policy.model.preemption import EvictionMode

DELETE = rules(eviction=EvictionMode.DELETE)


@table("by", ("evicted", rules()), ("deleted", DELETE))
def test_a_used_up_budget_is_named(by):
    """A pod kept by its budget says so; where victims are deleted, nobody asks whether they are ready."""
    kept = pod("r0", on="n1", cpu="2")
    kept["status"]["conditions"] = READY if by is not DELETE else []
    web = budget("web", {"app": "r0"}, 0, currentHealthy=2, desiredHealthy=2)
    assert outcome([kept], by, podDisruptionBudgets=[web]) == ([], {"r0": "policy/budget"})


@table("by, went", ("the Eviction API refuses it always", rules(), []), ("a delete asks no budget", DELETE, ["victim"]))
def test_a_pod_under_several_budgets(by, went):
    """A pod that two budgets cover cannot be evicted whatever they have left, so it is no victim; it can be deleted."""
    both = [budget("one", {"app": "victim"}, 5), budget("two", {"app": "victim"}, 5)]
    preemptor = pod("preemptor", priority=100, cpu="4")
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], preemptor, podDisruptionBudgets=both)
    decision = decided(data, by)
    assert ([one.name for one in decision.selected.victims] if decision.selected else []) == went
    texts = [one.text for one in decision.excluded("n1")]
    assert texts == ([] if went else ["the Eviction API lets no pod go that several budgets cover: one, two"])


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
def test_what_budgets_let_go(by):
    """By each way to read them the oracle's victims go, and as many violate a budget."""
    for seed in range(100, 150):
        decision, expected = answers(plain(seed, "pdb", *(["oddities"] if seed % 2 else [])), by)
        assert decision == expected, seed
